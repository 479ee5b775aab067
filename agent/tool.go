package agent

import (
	"context"
	"encoding/json"
)

// Tool is something a model can call. A Tool may be called by several
// goroutines at the same time if it also implements [Parallel].
type Tool interface {
	// Spec is what the model is told. It is the same bytes every time.
	Spec() ToolSpec
	// Call does the work. An error is a failure of the runtime and ends the
	// turn; what the model did wrong, or what failed in the world, is an
	// Output with IsError.
	Call(ctx context.Context, c Call) (Output, error)
}

// Parallel is implemented by tools whose calls may run beside others.
type Parallel interface{ Parallel() bool }

// ReadOnly is implemented by tools that may be used without permission.
type ReadOnly interface{ ReadOnly() bool }

// Aliased is implemented by tools that are also known by other names.
type Aliased interface{ Aliases() []string }

// Forwarder is implemented by a tool whose calls are calls of other tools. The gate, hooks, the
// transcript and listeners see the call of the other tool; only the parts of a reply that is
// still coming in have that of the Forwarder.
type Forwarder interface {
	// Forward returns the tool that is to be called and its input. The text of an error is for
	// the model.
	Forward(input json.RawMessage) (name string, in json.RawMessage, err error)
}

// Call is one call of a tool.
type Call struct {
	ID    string // of the tool_use block
	Name  string // as the model spelled it
	Input json.RawMessage
}

// Output is the result of a call.
type Output struct {
	Text       string  // for the model
	Images     []Block // that the model sees behind the text, of type image
	IsError    bool
	Structured any  // for SDK streams and embedders; nil: none
	EndTurn    bool // the turn ends after this call
}

// Refuse makes an output that tells the model what was wrong.
func Refuse(text string) Output { return Output{Text: text, IsError: true} }

// Gate decides whether a call may run.
type Gate interface {
	// Check returns how the call is decided. Input, if not nil, replaces the
	// input of the call.
	Check(ctx context.Context, c Call) (Decision, error)
}

// Decision of a [Gate].
type Decision struct {
	Allow  bool
	Reason string // told to the model when refused
	Input  json.RawMessage

	Suggest string // a rule that would have allowed what is refused; empty: none would

	// Context is told to the model behind the results of the reply, whatever was
	// decided, as it is: who gives it puts tags around it.
	Context string
	EndTurn bool // the turn ends after the calls of this reply
}

// Mail is a mailbox: messages that a [Loop] gives to its model at the next safe point,
// between replies. It is used by one goroutine at a time.
type Mail interface {
	// Take returns the messages that are not acknowledged, most urgent first, and does
	// not wait for more. The loop passes over those that the transcript holds already.
	Take(ctx context.Context) ([]MailMessage, error)
	// Ack is called once the transcript holds the mail messages durably.
	Ack(ctx context.Context, messages []MailMessage) error
}

// MailMessage is a message or a notification to an agent.
type MailMessage struct {
	Seq    int64  // identifies the message, also after a crash
	Text   string // as the model reads it
	Urgent bool   // goes before waiting prompts
	Origin string // such as task-notification
}
