// Package toolkit makes tools for models out of Go functions.
//
// A [Tool] is declared with the type of its input. The schema for the model and
// the decoder of the model's input come from this one type: input that the schema
// does not allow never reaches the function, and the model gets one line that says
// how to correct it. The package owns the [Refusal], the one error whose text is
// for the model. It knows no tool, asks for no permission and runs nothing by itself.
package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Tool declares a tool with input of type In, a struct. Name, Description and
// Call are required.
type Tool[In any] struct {
	Name        string
	Description string   // as the model reads it
	Aliases     []string // names of the same tool in other dialects
	Parallel    bool     // calls may run in parallel with others
	ReadOnly    bool     // calls need no permission

	// List changes the schema that the model reads; all has the unlisted fields too, and must not be
	// changed. The input is read as the type says in any case. nil: nothing is changed.
	List func(listed, all *jsonschema.Schema)

	// Call does the work. A [Refusal] becomes the result of the call, beginning
	// with the name of the tool; another error is a failure of the runtime and
	// ends the turn.
	Call func(ctx context.Context, c agent.Call, in In) (agent.Output, error)
}

// New makes a tool. It panics if In cannot be described by a schema, which is a
// mistake in the program.
func New[In any](t Tool[In]) agent.Tool {
	return &declared[In]{t, sync.OnceValue(func() json.RawMessage { return shapeOf[In]().listed(t.List) })}
}

type declared[In any] struct {
	tool   Tool[In]
	schema func() json.RawMessage
}

// Spec implements [agent.Tool].
func (d *declared[In]) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: d.tool.Name, Description: d.tool.Description, InputSchema: d.schema()}
}

// Parallel implements [agent.Parallel].
func (d *declared[In]) Parallel() bool { return d.tool.Parallel }

// ReadOnly implements [agent.ReadOnly].
func (d *declared[In]) ReadOnly() bool { return d.tool.ReadOnly }

// Aliases implements [agent.Aliased].
func (d *declared[In]) Aliases() []string { return d.tool.Aliases }

// Call implements [agent.Tool].
func (d *declared[In]) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	var out agent.Output
	in, err := Decode[In](c.Input)
	if err == nil {
		out, err = d.tool.Call(ctx, c, in)
	} else {
		err = Refuse(err)
	}
	var refused *Refusal
	if !errors.As(err, &refused) {
		return out, err
	}
	out.IsError = true
	out.Text, _ = excerpt.Tail(d.tool.Name+": "+excerpt.Plain(refused.Text), excerpt.DefaultLimit, "not kept")
	return out, nil
}

// Refusal is an error whose text is for the model: its request cannot be fulfilled,
// and it may correct the call or continue without.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return r.Text }

// Refuse makes a refusal of an error; nil stays nil.
func Refuse(err error) error {
	if err == nil {
		return nil
	}
	return &Refusal{Text: err.Error()}
}

// Refusef makes a refusal of a format, as [fmt.Sprintf] does.
func Refusef(format string, args ...any) error {
	return &Refusal{Text: fmt.Sprintf(format, args...)}
}

// RefuseIn is [Refuse] for work that the end of the turn interrupts: then the
// error is the cause of that.
func RefuseIn(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return Refuse(err)
}
