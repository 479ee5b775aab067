package control

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// MaxMessages is the number of messages in a view of an agent.
const MaxMessages = 50

// MessagesRequest asks for the newest messages of an agent.
type MessagesRequest struct {
	Ref   string `json:"ref"`
	Limit int    `json:"limit,omitempty"` // 0, or more than [MaxMessages]: MaxMessages
}

// Messages is the end of a conversation. For a main agent that is not a task only the ID of the
// task is set.
type Messages struct {
	Task task.Record `json:"task"`
	List []Message   `json:"messages"`
}

// Message is one message of a conversation, in the form for people.
type Message struct {
	Role  string    `json:"role"` // user or assistant
	At    time.Time `json:"at"`
	Parts []Part    `json:"parts"`
}

// Part is a part of a message, with at most 16 KiB of its text.
type Part struct {
	Type string `json:"type"`           // text, tool_use, tool_result or another block of the transcript
	Tool string `json:"tool,omitempty"` // of a tool_use
	Text string `json:"text,omitempty"` // of a tool_use its input
	Cut  int    `json:"cut,omitempty"`  // bytes that are left out at its end

	Error string `json:"error,omitempty"` // of a tool_result: why the call was denied or failed
}
