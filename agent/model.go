package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Model answers a conversation. A Model may serve many loops at the same time.
type Model interface {
	// Reply sends the request and streams the answer. on is called on the
	// calling goroutine for every part as it comes, and may be nil. An answer
	// that does not come to its end is told as void, and may be asked for again.
	// What had come of one when ctx ended is in an error that wraps [*CutError].
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
	Thinking  Thinking
	Retain    Retain
}

// Retain says what a provider that caches requests keeps for an hour instead of minutes, at a
// higher price for what it writes. Providers without the choice do not see it.
type Retain struct {
	Head bool // System and Tools: other agents begin with the same
	All  bool // what was said as well: the next request may be long in coming
}

// Thinking is how much a model is asked to think before it answers. The zero value leaves
// it to the provider. A model that cannot be asked is not.
type Thinking struct {
	// Effort is low, medium, high, xhigh or max; empty: the provider's default.
	Effort string `json:"effort,omitempty"`
	// Tokens is the most that one reply may spend on thinking; 0: no such limit is sent;
	// negative: no thinking.
	Tokens int `json:"tokens,omitempty"`
}

// Nearest is the effort that comes nearest to the limit of tokens, for models that are
// asked by effort only. Without a limit it is the effort itself.
func (t Thinking) Nearest() string {
	switch {
	case t.Effort != "" || t.Tokens == 0:
		return t.Effort
	case t.Tokens < 0:
		return ""
	case t.Tokens <= 4096:
		return "low"
	case t.Tokens <= 16_000:
		return "medium"
	}
	return "high"
}

// ModelSettings says which model a [Loop] calls, and how.
type ModelSettings struct {
	Model    Model
	Name     string
	Window   int64 // tokens that the model can read; 0: not known
	Thinking Thinking
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
	RetryPart                    // the call is made again, or waits its turn; Retry says when and why
	FallbackPart                 // the call goes to another model; Fallback says why
	VoidPart                     // what came of the reply so far is void; Usage is what that has cost
	CallPart                     // who answers has begun a call of its own, which the loop does not run; Call is set
	ResultPart                   // that call has ended; Call and Output are set
	IntentPart                   // what who answers is about to do: Name in one line, Text for the output
)

// Part is a piece of a reply while it comes in.
type Part struct {
	Kind  PartKind
	Index int // of the block
	Text  string
	ID    string
	Name  string
	Block *Block
	Usage Usage
	Retry Retry

	Fallback Fallback

	Call   Call
	Output Output
}

// Retry is a call of a model that is made again after a failure.
type Retry struct {
	Attempt int // 1 for the first repetition; 0: the call waits before it is made at all
	Most    int // repetitions that there may be
	After   time.Duration
	Why     ModelError
}

// String says it in one line, for people.
func (r Retry) String() string {
	after := r.After.Round(100 * time.Millisecond)
	if r.Attempt == 0 {
		return fmt.Sprintf("model call waits %v: %s", after, r.Why.Text)
	}
	return fmt.Sprintf("model call failed: %s (retry %d of %d in %v)", r.Why.Text, r.Attempt, r.Most, after)
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

	// HourWriteTokens are those of CacheWriteTokens that are kept for an hour.
	HourWriteTokens int64 `json:"cache_creation_1h_input_tokens,omitempty"`

	// Estimated says that the provider gave no figures, and some of these are guesses by size.
	Estimated bool `json:"estimated,omitempty"`
}

// ModelError is a failure of a model that is told to the user as it is.
type ModelError struct {
	Status int    // HTTP status, 0 without one
	Kind   string // such as rate_limit, usage_limit, auth, overloaded, context_overflow, bad_answer, unreachable, cut
	Text   string // one line: what happened and how to fix it
	Err    error

	Until time.Time // of kind usage_limit: when the limit is reset
	At    Spot      // of kind bad_request: what of the request was refused, if that is known
}

func (e *ModelError) Error() string { return e.Text }
func (e *ModelError) Unwrap() error { return e.Err }

// CutError is a reply that ended without a stop reason. Whole holds the blocks
// that were complete; a tool call among them must not be run. The loop keeps
// their text only where the user has broken the turn off.
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

// Totals is what a conversation has used so far.
type Totals struct {
	Turns    int `json:"turns"`     // replies of the model
	ToolUses int `json:"tool_uses"` // calls in those replies
	// Context is the tokens that the latest request held, cache included. After
	// a compaction it is the tokens of the summary, until the next reply.
	Context int64 `json:"context"`
	Usage   Usage `json:"usage"` // summed over all replies and summaries
}

// Tokens is the one figure that stands for the size of the work: the latest
// input, since every request holds the ones before it, and all output.
func (t Totals) Tokens() int64 { return t.Context + t.Usage.OutputTokens }

// add counts a reply. A reply that reports no input leaves Context as it was.
func (t *Totals) add(u Usage, toolUses int) {
	t.Turns++
	t.ToolUses += toolUses
	t.Usage.add(u)
	if c := u.context(); c > 0 {
		t.Context = c
	}
}

// count takes a record in. A summary that takes the place of the conversation
// counts by its cost, and a record aside by nothing else.
func (t *Totals) count(r Record) {
	switch {
	case r.Usage == nil:
	case r.Boundary != nil:
		t.Usage.add(*r.Usage)
		t.Context = r.Usage.OutputTokens
	case r.Aside:
		t.Usage.add(*r.Usage)
	default:
		t.add(*r.Usage, r.ToolUses)
	}
}

// join counts what came later.
func (t *Totals) join(later Totals) {
	t.Turns += later.Turns
	t.ToolUses += later.ToolUses
	t.Usage.add(later.Usage)
	if later.Context > 0 {
		t.Context = later.Context
	}
}

func (u Usage) context() int64 {
	return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

func (u *Usage) add(v Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.HourWriteTokens += v.HourWriteTokens
	u.Estimated = u.Estimated || v.Estimated
}
