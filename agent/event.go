package agent

import "time"

// EventKind says what an [Event] tells.
type EventKind int

// The kinds of events, in the order in which a turn tells them:
//
//	TurnStart
//	  [Mail] [Prompt]            once the transcript holds them
//	  then for every reply
//	    [CompactStart Compact]   when the conversation is made shorter first;
//	                             a Part in between says that a call is retried
//	    Part…                    while the reply comes in; a VoidPart takes back
//	                             those of an answer that has failed
//	    Block… ReplyDone         once the transcript holds the reply
//	    ToolStart, ToolDone      one ToolDone per call, as each is decided;
//	                             ToolStart only for a call that runs
//	    ToolProgress             while it runs, as far as its tool tells
//	    [Mail]                   with the results
//	    [Blocked]                the turn would end, and goes on
//	TurnDone
//
// [Loop.Compact] tells CompactStart and Compact alone.
const (
	TurnStartEvent    EventKind = iota
	MailEvent                   // Mail
	PromptEvent                 // Prompt
	PartEvent                   // Part
	BlockEvent                  // Block, and of its reply ReplyID, Model, Usage
	ReplyDoneEvent              // Reply, as it was recorded
	ToolStartEvent              // Call
	ToolDoneEvent               // Call, Output, Duration
	TurnDoneEvent               // Result, Err
	CompactStartEvent           // Compaction, without Summary
	CompactEvent                // Compaction, Duration, Err
	BlockedEvent                // Blocked, Text
	ToolProgressEvent           // Call, Text: how far it is; see [ReportProgress]
)

// Event is something that happened in a turn. Which fields are set follows from
// Kind. What it points to must not be changed.
type Event struct {
	Kind     EventKind
	Mail     []MailMessage
	Prompt   []Block
	Part     Part
	Block    Block
	ReplyID  string
	Model    string
	Usage    Usage
	Reply    *Reply
	Call     Call
	Output   Output
	Duration time.Duration
	Result   *TurnResult
	Err      error

	Compaction *Compacted
	Blocked    int    // how often in a row the end was blocked, this time included
	Text       string // why
}

// Compacted is a compaction as events tell of it.
type Compacted struct {
	Trigger string // manual, auto or overflow
	Before  int64  // tokens of context before it
	Summary string // empty: none was made
	Usage   Usage  // what it has cost
}
