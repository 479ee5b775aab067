package agent

import (
	"context"
	"encoding/json"
	"time"
)

// Model answers a conversation. A Model may serve many loops at the same time.
type Model interface {
	// Reply sends the request and streams the answer. on is called on the
	// calling goroutine for every part as it comes, and may be nil. A stream
	// that was cut gives an error that wraps [*CutError] with what had come.
	// Other failures are a [*ModelError].
	Reply(ctx context.Context, req *Request, on func(Part)) (*Reply, error)
}

// Request is one call of a model. The model must not keep it.
type Request struct {
	Agent     string // label of the caller: an agent type; scripts match on it
	AgentID   string // of a subagent; sent as a header
	SessionID string
	Purpose   string // compaction for a summary, which will be no message of the conversation; else empty
	Model     string
	System    string
	Tools     []ToolSpec
	Messages  []Message
	MaxTokens int // 0: the model's usual
}

// ToolSpec is what a model is told about a tool.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// PartKind says what a [Part] is.
type PartKind int

// The kinds of parts.
const (
	TextPart     PartKind = iota // Text holds more of a text block
	ThinkingPart                 // Text holds more of a thinking block
	ToolPart                     // a tool_use block begins; Name and ID are set
	InputPart                    // Text holds more of a tool's input
	BlockPart                    // Block is complete
	RetryPart                    // the call is tried again; Text says why, After when
)

// Part is a piece of a reply while it comes in.
type Part struct {
	Kind  PartKind
	Index int // of the block
	Text  string
	ID    string
	Name  string
	Block *Block
	After time.Duration
}

// Reply is a whole answer. A reply is returned only when the model has said
// why it stopped.
type Reply struct {
	ID         string
	Model      string
	Blocks     []Block
	StopReason string // end_turn, tool_use, max_tokens, stop_sequence, refusal, pause_turn
	Usage      Usage
}

// Usage is what one reply has cost, in tokens.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_input_tokens"`
	CacheWriteTokens int64 `json:"cache_creation_input_tokens"`
}

// ModelError is a failure of a model that is told to the user as it is.
type ModelError struct {
	Status int    // HTTP status, 0 without one
	Kind   string // such as rate_limit, auth, overloaded, context_overflow, bad_answer, unreachable
	Text   string // one line: what happened and how to mend it
	Err    error
}

func (e *ModelError) Error() string { return e.Text }
func (e *ModelError) Unwrap() error { return e.Err }

// CutError is a reply that ended without a stop reason. Whole holds the blocks
// that were complete; a tool call among them must not be run.
type CutError struct {
	Whole []Block
	Usage Usage
	Err   error
}

func (e *CutError) Error() string {
	if e.Err != nil {
		return "the model's answer was cut off: " + e.Err.Error()
	}
	return "the model's answer was cut off"
}
func (e *CutError) Unwrap() error { return e.Err }
