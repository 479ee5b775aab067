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
	MaxUnreadEvents = 50       // after which a [MonitorEvent] is refused: the rest is for other kinds
	MaxUnreadUser   = 200      // after which a [Prompt] is refused: other messages never shut out the user
	maxMessageName  = 200      // bytes of From
	maxMessageKind  = 40       // bytes of Kind
)

// MessageKind is the purpose of a [Message]. Senders may use further kinds.
type MessageKind string

// The kinds of the runtime.
const (
	PlainMessage   MessageKind = "message"
	Prompt         MessageKind = "prompt" // from the user to a main agent; each has its own turn
	TaskAssignment MessageKind = "task_assignment"
	AgentIdle      MessageKind = "agent_idle"    // an agent has answered and waits for a message
	AgentHalted    MessageKind = "agent_halted"  // the user interrupted the turn of an agent, which waits for a message
	MonitorEvent   MessageKind = "monitor_event" // an event of a running task; From is its ID
	Stalled        MessageKind = "stalled"       // a running task is silent or waits for an answer; From is its ID

	TeammateEnd     MessageKind = "teammate_end"          // a run of a teammate has ended
	ShutdownRequest MessageKind = "shutdown_request"      // a teammate ends after the turn that reads this
	PlanRequest     MessageKind = "plan_approval_request" // a teammate asks for the approval of a plan
	PlanApproved    MessageKind = "plan_approved"         // the teammate may carry out its plan
	PlanRejected    MessageKind = "plan_rejected"
)

// Message is mail to an agent, other than the notification of an end.
type Message struct {
	Seq      Seq         `json:"seq"` // set by the log; events, notifications and messages are numbered together
	To       ID          `json:"to"`  // an agent's task, or the session for its main agent
	From     string      `json:"from"`
	Kind     MessageKind `json:"kind"`
	Text     string      `json:"text"`
	Priority Priority    `json:"priority,omitempty"`
	At       time.Time   `json:"at"`
	Hops     int         `json:"hops,omitempty"` // length of a chain of messages by which agents only answer each other; 0: not from an agent
}

// MaxUnread is the number of unread messages after which a message of the kind is refused.
func (k MessageKind) MaxUnread() int {
	switch k {
	case MonitorEvent:
		return MaxUnreadEvents
	case Prompt:
		return MaxUnreadUser
	}
	return MaxUnread
}

// maxBytes is the longest text of a message of the kind.
func (k MessageKind) maxBytes() int {
	if k == Prompt {
		return MaxPromptBytes
	}
	return MaxMessageBytes
}

// ErrMailFull is returned for a message to a receiver with too many unread ones.
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
