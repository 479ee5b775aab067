// Package recording has the format of a recording of a run: a file of JSON lines that holds what
// came from outside of a session, and what happened in it.
//
// It reads and writes, and does nothing else. The first line says what the file is, the last one
// how many lines there are and their digest, so that a file that was cut or changed is refused.
package recording

import (
	"encoding/json"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Format names the format, and Version is the newest one that this program reads.
const (
	Format  = "drover-recording"
	Version = 1
)

// About is told in every file.
const About = "A recorded run of Drover. It holds prompts, answers, tool results and outputs of commands: " +
	"share it as you would share the conversation."

// The limits of a file.
const (
	MaxBytes     = 1 << 30  // of the file
	MaxLineBytes = 96 << 20 // of one line
	MaxOutput    = 32 << 20 // of one output that is kept; more is cut
)

// Head is the first line.
type Head struct {
	Format  string          `json:"format"`
	V       int             `json:"v"`
	About   string          `json:"about"`
	Drover  string          `json:"drover_version"`
	Created time.Time       `json:"created"`
	Session task.ID         `json:"session_id"`
	Folder  string          `json:"folder"` // in which the session worked
	State   string          `json:"state"`  // folder of the session's files
	Prompt  json.RawMessage `json:"prompt"` // of `drover record`, with its flags
	Of      *Place          `json:"replay_of,omitempty"`
}

// Place is where a run was that is played.
type Place struct {
	Session task.ID `json:"session_id"`
	Folder  string  `json:"folder"`
	State   string  `json:"state"`
}

// Kind says what an [Entry] is.
type Kind string

// The kinds of entries.
const (
	Agent    Kind = "agent"    // an agent begins: Tools, Deferred, Window
	Call     Kind = "call"     // a model was called: Reply or Failure
	Gate     Kind = "gate"     // a call of a tool was decided: Tool, Decision
	Tool     Kind = "tool"     // a call of a tool has ended: Tool, Output
	Mail     Kind = "mail"     // an agent has read Texts, before its model call Call
	Found    Kind = "found"    // an agent has looked for mail after its turn Turn: Works; Texts is empty: there was none
	Reminder Kind = "reminder" // an agent was reminded of Texts
	Stop     Kind = "stop"     // hooks were asked whether a turn may end; Texts has their objection
	Batch    Kind = "batch"    // hooks were told of all calls of a reply; Texts has what they said
	Told     Kind = "told"     // a task has told its owner something: Task, Message
	Sent     Kind = "sent"     // an agent has sent a message: Message
	Event    Kind = "event"    // a change of a task: Event
	Output   Kind = "output"   // what a task has printed: Task, Data
	Text     Kind = "text"     // what an agent reads from outside: What, Texts or Failure
	Command  Kind = "command"  // what a prompt with the name of a command has become: Texts or Failure; Calls were run
	Worktree Kind = "worktree" // an agent works in a worktree of its own: Tree; or that is over: Left
)

// Entry is a line between the first and the last.
type Entry struct {
	N     int      `json:"n"` // counted from 1
	Kind  Kind     `json:"kind"`
	MS    int64    `json:"ms"`              // since the begin of the run
	After task.Seq `json:"after,omitempty"` // number of the newest event of the log then
	Agent task.ID  `json:"agent,omitempty"` // the session itself for its main agent
	Call  int      `json:"call,omitempty"`  // of the agent's model, from 1; of mail: those made before
	Turn  int      `json:"turn,omitempty"`  // of mail and found: in or after which turn of the agent, from 1

	Tools    []agent.ToolSpec `json:"tools,omitempty"`
	Deferred []string         `json:"deferred,omitempty"` // of Tools, those that requests leave out
	Window   *Window          `json:"window,omitempty"`   // of an agent whose conversation is compacted
	Request  *Request         `json:"request,omitempty"`
	Chunks   []Chunk          `json:"chunks,omitempty"`
	Reply    *agent.Reply     `json:"reply,omitempty"`
	Failure  *Failure         `json:"failure,omitempty"`
	Tool     *agent.Call      `json:"tool,omitempty"`
	Decision *agent.Decision  `json:"decision,omitempty"`
	Output   *Result          `json:"output,omitempty"`
	Texts    []string         `json:"texts,omitempty"`
	Event    *task.Event      `json:"event,omitempty"`
	Message  *task.Message    `json:"message,omitempty"`
	Task     task.ID          `json:"task,omitempty"`
	Data     []byte           `json:"data,omitempty"`
	Cut      bool             `json:"cut,omitempty"` // the end of an output was not kept
	What     string           `json:"what,omitempty"`
	Calls    []agent.Call     `json:"calls,omitempty"`
	Works    bool             `json:"works,omitempty"` // a task of the agent was at work
	Tree     *Tree            `json:"tree,omitempty"`
	Left     *task.Worktree   `json:"left,omitempty"`
}

// Window is when a conversation is compacted, as in [agent.Compaction].
type Window struct {
	Tokens int64   `json:"tokens"`
	Share  float64 `json:"share"`
}

// Tree is the worktree of an agent. All but the branch are absolute.
type Tree struct {
	Path   string `json:"path"`
	Dir    string `json:"dir"` // in which the agent works
	Branch string `json:"branch"`
	Repo   string `json:"repo"`
	Common string `json:"common"`
}

// Request is what is kept of a call of a model.
type Request struct {
	Name    string   `json:"name"` // by which the model was found
	Model   string   `json:"model"`
	Label   string   `json:"label"` // of the agent
	Purpose string   `json:"purpose,omitempty"`
	Count   int      `json:"messages"`
	Digest  string   `json:"digest"` // of all that is compared, see [Names.Request]
	New     []string `json:"new"`    // the messages that the call before did not have, normalised
}

// Chunk is a part of a reply as it came in.
type Chunk struct {
	MS    int64          `json:"ms"` // since the call
	Kind  agent.PartKind `json:"kind"`
	Index int            `json:"index"`
	Text  string         `json:"text,omitempty"`
	ID    string         `json:"id,omitempty"`
	Name  string         `json:"name,omitempty"`
	Block *agent.Block   `json:"block,omitempty"`
	Usage agent.Usage    `json:"usage,omitzero"`
}

// Failure is a call without a reply.
type Failure struct {
	Interrupted bool          `json:"interrupted,omitempty"` // whoever waited for it was ended
	Cut         bool          `json:"cut,omitempty"`
	Whole       []agent.Block `json:"whole,omitempty"`
	Usage       agent.Usage   `json:"usage,omitzero"`
	Status      int           `json:"status,omitempty"`
	Kind        string        `json:"kind,omitempty"`
	Text        string        `json:"text"`
	Until       time.Time     `json:"until,omitzero"`
	At          agent.Spot    `json:"at,omitzero"`
}

// Result is what a call of a tool handed back.
type Result struct {
	Text       string          `json:"text"`
	Images     []agent.Block   `json:"images,omitempty"`
	IsError    bool            `json:"is_error,omitempty"`
	EndTurn    bool            `json:"end_turn,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
}

// Recording is a whole file.
type Recording struct {
	Head    Head
	Entries []Entry
}

// tail is the last line.
type tail struct {
	End    bool   `json:"end"`
	Lines  int    `json:"lines"`
	SHA256 string `json:"sha256"` // of all bytes before this line
}

// Tools is how many calls of tools have ended.
func (r *Recording) Tools() (n int) {
	for _, e := range r.Entries {
		if e.Kind == Tool {
			n++
		}
	}
	return n
}

// Until are the entries up to the end of the n-th call of a tool, in the order in which calls ended, with what all
// tasks have printed; 0: all entries.
func (r *Recording) Until(n int) []Entry {
	if n <= 0 {
		return r.Entries
	}
	var last *Entry
	for i, e := range r.Entries {
		if e.Kind == Tool {
			if n--; n == 0 {
				last = &r.Entries[i]
				break
			}
		}
	}
	if last == nil {
		return r.Entries
	}
	var out []Entry
	for _, e := range r.Entries {
		switch e.Kind {
		case Output:
		case Event:
			if e.Event.Seq > last.After {
				continue
			}
		default:
			if e.N > last.N {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}
