package control

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// MaxPrompts is how many prompts are listed: the newest.
const MaxPrompts = 1000

// Prompts are what the user has written in the conversation, oldest first.
type Prompts struct {
	Prompts []PromptEntry `json:"prompts"`
}

// PromptEntry is a prompt that began a turn.
type PromptEntry struct {
	N    int       `json:"n"`  // counted from 1 in the whole conversation
	ID   string    `json:"id"` // of its line in the transcript
	At   time.Time `json:"at"`
	Text string    `json:"text"` // as the user has typed it
	Cut  int       `json:"cut,omitempty"`
}

// ForkRequest asks for a copy of the conversation as a session of its own.
type ForkRequest struct {
	At      int     `json:"at,omitempty"`         // before the prompt with this number; 0: the whole conversation
	Session task.ID `json:"session_id,omitempty"` // of the copy; empty: a new one
	Images  bool    `json:"images,omitempty"`     // the answer has the images of the prompt
}

// Forked is the new session with a copy of the conversation.
type Forked struct {
	Session task.ID `json:"session_id"`
	Prompt  string  `json:"prompt,omitempty"` // before which it was forked
	Images  []Image `json:"images,omitempty"` // of that prompt, if they were asked for
}
