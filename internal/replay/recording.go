package replay

import (
	"encoding/json"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Format names the format, and Version is the one that this program writes and plays.
const (
	Format  = "drover-recording"
	Version = 2
)

// About is in the first line of every file.
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

// The kinds of entries: what has come into the turn loops of agents, and what has come into the log.
const (
	AgentEntry   Kind = "agent"   // an agent begins: Tools, Deferred, Window
	CallEntry    Kind = "call"    // a call of a model has ended: Reply or Failure
	ToolEntry    Kind = "tool"    // a call of a tool has ended: Tool, Decision, and Output if it was allowed
	MailEntry    Kind = "mail"    // an agent has looked for mail: Texts
	TextEntry    Kind = "text"    // an agent reads texts from outside of its conversation: What, Texts or Failure
	EventEntry   Kind = "event"   // a change of a task: Event, and Texts with an answer that is no output
	MessageEntry Kind = "message" // a message to an agent: Message
	OutputEntry  Kind = "output"  // what a task has printed: Task, Data
)

// Entry is a line between the first and the last.
type Entry struct {
	N     int      `json:"n"` // counted from 1
	Kind  Kind     `json:"kind"`
	MS    int64    `json:"ms"`              // since the begin of the run
	After task.Seq `json:"after,omitempty"` // number of the newest event or message of the log then
	Agent task.ID  `json:"agent,omitempty"` // the session itself for its main agent
	Call  int      `json:"call,omitempty"`  // of the agent's model, from 1

	Tools    []agent.ToolSpec `json:"tools,omitempty"`
	Deferred []string         `json:"deferred,omitempty"` // of Tools, those that requests leave out
	Window   *Window          `json:"window,omitempty"`   // of an agent whose conversation is compacted
	Request  *Request         `json:"request,omitempty"`
	Chunks   []Chunk          `json:"chunks,omitempty"`
	Reply    *agent.Reply     `json:"reply,omitempty"`
	Failure  *Failure         `json:"failure,omitempty"`
	Tool     *agent.Call      `json:"tool,omitempty"`
	Decision *agent.Decision  `json:"decision,omitempty"`
	Decided  *Point           `json:"decided,omitempty"` // when Tool was decided; MS and After are of its end
	Output   *Result          `json:"output,omitempty"`
	What     string           `json:"what,omitempty"`
	Texts    []string         `json:"texts,omitempty"`
	Event    *task.Event      `json:"event,omitempty"`
	Message  *task.Message    `json:"message,omitempty"`
	Task     task.ID          `json:"task,omitempty"`
	Data     []byte           `json:"data,omitempty"`
	Cut      bool             `json:"cut,omitempty"` // the end of an output was not kept
}

// Point is a moment of a run, as MS and After of an [Entry].
type Point struct {
	MS    int64    `json:"ms"`
	After task.Seq `json:"after,omitempty"`
}

// Window is when a conversation is compacted, as in [agent.Compaction].
type Window struct {
	Tokens int64   `json:"tokens"`
	Share  float64 `json:"share"`
}

// Request is the kept part of a call of a model.
type Request struct {
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

// Result is the result of a call of a tool.
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

// Model is the model of the main agent; empty: it made no call.
func (r *Recording) Model() string {
	for _, e := range r.Entries {
		if e.Kind == CallEntry && e.Agent == r.Head.Session {
			return e.Request.Model
		}
	}
	return ""
}

// Ran reports whether the entry is a call of a tool that was allowed.
func (e Entry) Ran() bool { return e.Kind == ToolEntry && e.Output != nil }

// Tools is how many calls of tools have run.
func (r *Recording) Tools() (n int) {
	for _, e := range r.Entries {
		if e.Ran() {
			n++
		}
	}
	return n
}

// Until are the entries up to the end of the n-th call of a tool, in the order in which calls ended, with what all
// tasks have printed; 0: all entries.
func (r *Recording) Until(n int) []Entry {
	if n <= 0 || n > r.Tools() {
		return r.Entries
	}
	var last Entry
	for _, e := range r.Entries {
		if e.Ran() {
			if n--; n == 0 {
				last = e
				break
			}
		}
	}
	var out []Entry
	for _, e := range r.Entries {
		late := e.N > last.N
		switch e.Kind {
		case OutputEntry:
			late = false
		case EventEntry:
			late = e.Event.Seq > last.After
		case MessageEntry:
			late = e.Message.Seq > last.After
		}
		if !late {
			out = append(out, e)
		}
	}
	return out
}
