package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// Before each call of the model and of a tool it is asked whether the turn may go
// on; while it may not nothing is begun, and a turn that ends then keeps its form.
func TestHold(t *testing.T) {
	var seen []string
	look := tool{name: "Look", call: func(context.Context, agent.Call) (agent.Output, error) {
		seen = append(seen, "tool")
		return agent.Output{Text: "r"}, nil
	}}
	model := agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "Look", `{}`)), agenttest.Say("found it"))
	l := newLoop(t, agent.Config{Model: model, Tools: []agent.Tool{look}, WaitWhilePaused: func(context.Context) error {
		seen = append(seen, "hold")
		return nil
	}})
	if res, err := ask(l, "look"); err != nil || res.Text != "found it" {
		t.Fatalf("%+v, %v", res, err)
	}
	if want := []string{"hold", "hold", "hold", "tool", "hold"}; !slices.Equal(seen, want) {
		t.Errorf("in the order %q, want %q", seen, want)
	}

	why := errors.New("stopped while paused")
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	model = agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "Look", `{}`)), agenttest.Say("never"))
	seen = nil
	l = newLoop(t, agent.Config{Model: model, Tools: []agent.Tool{look}, WaitWhilePaused: func(ctx context.Context) error {
		if n++; n == 2 {
			cancel(why)
		}
		return context.Cause(ctx)
	}})
	if _, err := l.Turn(ctx, agent.TextBlock("look")); !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
	if len(seen) > 0 || len(model.Requests()) != 1 {
		t.Errorf("%d calls and %d requests", len(seen), len(model.Requests()))
	}
	check(t, l.Messages())
}
