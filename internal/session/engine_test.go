package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// ownTool is a tool of a program.
type ownTool string

func (n ownTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: string(n), Description: "of a program", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (n ownTool) Call(context.Context, agent.Call) (agent.Output, error) {
	return agent.Output{Text: "from " + string(n)}, nil
}

// Tools of a program are like others: a definition may name them, leave them out,
// or take them with all the rest.
func TestOwnTools(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"all": {modeltest.Text("x")}, "one": {modeltest.Text("x")}, "less": {modeltest.Text("x")}, "none": {modeltest.Text("x")},
	}), func(c *Config) {
		c.Agents.Tools = []agent.Tool{ownTool("Weather"), ownTool("Tide")}
		c.Agents.Catalog = func() subagent.Catalog {
			return subagent.NewCatalog(
				subagent.Definition{Name: "all", Prompt: "x"},
				subagent.Definition{Name: "one", Prompt: "x", Tools: []string{"Tide", "Read"}},
				subagent.Definition{Name: "less", Prompt: "x", DisallowedTools: []string{"Tide"}},
				subagent.Definition{Name: "none", Prompt: "x", Tools: []string{}})
		}
	})
	for name, want := range map[string][]string{"all": {"Tide", "Weather"}, "one": {"Tide"}, "less": {"Weather"}, "none": nil} {
		rec, err := r.StartAgent(r.ctx, agents.Own{Input: subagent.Input{Type: name, Prompt: "x"}, Spec: task.Spec{Cwd: r.folder}, Env: r.cfg.Agents.Env})
		if err != nil {
			t.Fatal(err)
		}
		<-r.sup.Done(rec.ID)
		asked := of(server, name)
		if len(asked) != 1 {
			t.Fatalf("agent %s asked %d times", name, len(asked))
		}
		got := slices.DeleteFunc(toolNames(params(t, asked[0])), func(n string) bool { return n != "Tide" && n != "Weather" })
		if !slices.Equal(got, want) {
			t.Errorf("agent %s has %q of the own tools, want %q", name, got, want)
		}
	}
	for _, bad := range [][]agent.Tool{{ownTool("bash")}, {ownTool("A"), ownTool("a")}, {ownTool(" ")}} {
		c := r.cfg
		c.Agents.Tools = bad
		if s, err := Open(r.ctx, c); err == nil || !strings.Contains(err.Error(), "of the program") {
			t.Errorf("opened with the tools %q: %v, %v", bad, s, err)
		}
	}
}

// own is work of a program.
type own struct {
	kind task.Kind
	run  func(ctx context.Context, h task.Host) (task.Result, error)
}

func (o own) Kind() task.Kind             { return o.kind }
func (o own) Check(json.RawMessage) error { return nil }
func (o own) Run(ctx context.Context, h task.Host) (task.Result, error) {
	return o.run(ctx, h)
}

// Work by a driver of a program is supervised: a panic is its end, and closing
// ends what is left.
func TestStartOwn(t *testing.T) {
	r := open(t, "")
	began := make(chan struct{})
	long := own{task.LocalWorkflow, func(ctx context.Context, _ task.Host) (task.Result, error) {
		close(began)
		<-ctx.Done()
		return task.Result{}, context.Cause(ctx)
	}}
	broken := own{task.LocalWorkflow, func(context.Context, task.Host) (task.Result, error) { panic("oops") }}
	for _, bad := range []struct {
		d    task.Driver
		spec task.Spec
		says string
	}{
		{own{kind: "no kind"}, task.Spec{}, "a kind is named by"},
		{long, task.Spec{ID: "w00000000"}, "its ID"},
		{long, task.Spec{Keep: true}, "kept"},
	} {
		if _, err := r.StartOwn(r.ctx, bad.d, bad.spec); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("started %+v: %v", bad.spec, err)
		}
	}
	a, err := r.StartOwn(r.ctx, long, task.Spec{Name: "long"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.StartOwn(r.ctx, broken, task.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	<-r.sup.Done(b.ID)
	if got, _ := r.sup.Get(b.ID); got.Status != task.Failed || got.Cause.Reason != task.ReasonPanic {
		t.Errorf("after a panic %+v", got)
	}
	<-began
	r.sup.Close()
	if got, _ := r.sup.Get(a.ID); got.Status != task.Killed || got.Cause.Reason != task.ReasonClosing {
		t.Errorf("after the close %+v", got)
	}
	if _, err := r.StartOwn(r.ctx, broken, task.Spec{}); !errors.Is(err, subagent.ErrClosed) {
		t.Errorf("started after the close: %v", err)
	}
}

// ER-04: a program decides by types that it can see.
func TestRefused(t *testing.T) {
	var limit *subagent.LimitError
	if err := agents.ProgramError(fmt.Errorf("start: %w", &supervise.LimitError{Limit: "queue", N: 10})); !errors.As(err, &limit) || limit.Limit != "queue" || limit.N != 10 ||
		!strings.HasSuffix(err.Error(), "max concurrent agents reached (10)") {
		t.Errorf("a limit: %v", err)
	}
	for _, err := range []error{supervise.ErrClosing, supervise.ErrFrozen} {
		if got := agents.ProgramError(err); !errors.Is(got, subagent.ErrClosed) || !strings.HasSuffix(got.Error(), err.Error()) {
			t.Errorf("%v is told as %v", err, got)
		}
	}
	if err := agents.ProgramError(context.Canceled); err != context.Canceled {
		t.Errorf("another error: %v", err)
	}
	if agents.ProgramError(nil) != nil {
		t.Error("no error is one")
	}
}
