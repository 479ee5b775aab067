package task

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Bounds of messages.
const (
	MaxMessageBytes = 64 << 10 // of one text
	MaxPromptBytes  = 4 << 20  // of one of kind [Prompt]
	MaxUnread       = 100      // messages of one owner that are not acknowledged
	MaxUnreadEvents = 50       // at which none of kind [MonitorEvent] is added: the rest is for others
	MaxUnreadUser   = 200      // at which none of kind [Prompt] is added: messages of others do not keep the user's out
	maxMessageName  = 200      // bytes of From
	maxMessageKind  = 40       // bytes of Kind
)

// MessageKind says what a [Message] is for. Others may be added by whoever sends.
type MessageKind string

// The kinds that are known here.
const (
	PlainMessage   MessageKind = "message"
	Prompt         MessageKind = "prompt" // what the user wants of a main agent; each has a turn of its own
	TaskAssignment MessageKind = "task_assignment"
	AgentIdle      MessageKind = "agent_idle"    // an agent has answered, and waits for a message
	AgentHalted    MessageKind = "agent_halted"  // the user has broken off the turn of an agent, which waits for a message
	MonitorEvent   MessageKind = "monitor_event" // a running task has seen something; From is its ID
	Stalled        MessageKind = "stalled"       // a running task seems to wait for an answer, or is silent; From: its ID

	TeammateEnd     MessageKind = "teammate_end"          // a run of a teammate has ended
	ShutdownRequest MessageKind = "shutdown_request"      // a teammate is to finish: it ends with the turn that reads this
	PlanRequest     MessageKind = "plan_approval_request" // a teammate wants a plan approved
	PlanApproved    MessageKind = "plan_approved"         // it has been, and the teammate may carry it out from here on
	PlanRejected    MessageKind = "plan_rejected"
)

// Message is mail to an agent that is not the end of a task.
type Message struct {
	Seq      Seq         `json:"seq"` // set by the log; events, notifications and messages are numbered together
	To       ID          `json:"to"`  // an agent's task, or the session for its main agent
	From     string      `json:"from"`
	Kind     MessageKind `json:"kind"`
	Text     string      `json:"text"`
	Priority Priority    `json:"priority,omitempty"`
	At       time.Time   `json:"at"`
	Hops     int         `json:"hops,omitempty"` // of an agent: 1, and one more for each message before it that it answers with nothing else done; 0: of somebody else
}

// MaxUnread is how many messages a receiver may have unread before one of the kind
// is refused.
func (k MessageKind) MaxUnread() int {
	switch k {
	case MonitorEvent:
		return MaxUnreadEvents
	case Prompt:
		return MaxUnreadUser
	}
	return MaxUnread
}

// maxBytes is how long a message of the kind may be.
func (k MessageKind) maxBytes() int {
	if k == Prompt {
		return MaxPromptBytes
	}
	return MaxMessageBytes
}

// ErrMailFull is returned for a message to somebody who has too many unread.
var ErrMailFull = errors.New("mailbox is full")

// Check refuses a message that cannot be sent.
func (m Message) Check() error {
	switch {
	case m.To == "":
		return errors.New("a message needs a receiver")
	case m.From == "" || len(m.From) > maxMessageName || !utf8.ValidString(m.From):
		return fmt.Errorf("the sender of a message is text of 1 to %d bytes", maxMessageName)
	case !isWord(string(m.Kind)):
		return fmt.Errorf("message kind %.60q is not a word of small letters", m.Kind)
	case m.Text == "":
		return errors.New("the message is empty")
	case len(m.Text) > m.Kind.maxBytes():
		return fmt.Errorf("the message is longer than %d KiB", m.Kind.maxBytes()>>10)
	case !utf8.ValidString(m.Text):
		return errors.New("the message is not UTF-8")
	}
	return nil
}

func isWord(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxMessageKind
}
