package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// caller forwards the calls that name a tool.
type caller struct{ tool }

func (c caller) Forward(raw json.RawMessage) (string, json.RawMessage, error) {
	var in struct {
		Name  string
		Input json.RawMessage
	}
	if err := json.Unmarshal(raw, &in); err != nil || in.Name == "" {
		return "", nil, errors.New("name the tool")
	}
	return in.Name, in.Input, nil
}

// Whoever decides about a forwarded call, keeps it or hears of it sees the call of the other tool.
func TestForwardedCalls(t *testing.T) {
	var ran, asked, heard, offered []string
	run := func(_ context.Context, c agent.Call) (agent.Output, error) {
		ran = append(ran, c.Name+" "+string(c.Input))
		return agent.Output{Text: "ran"}, nil
	}
	steps := agenttest.Steps(
		agenttest.Use(
			agenttest.ToolUse("1", "CallTool", `{"name":"rare","input":{"a":1}}`),
			agenttest.ToolUse("2", "Rare", `{"a":2}`),
			agenttest.ToolUse("3", "CallTool", `{"name":"forbidden","input":{"a":3}}`),
			agenttest.ToolUse("4", "CallTool", `{"name":"nothing","input":{}}`),
			agenttest.ToolUse("5", "CallTool", `{"name":"CallTool","input":{"name":"rare"}}`),
			agenttest.ToolUse("6", "CallTool", `{"name":"rare","input":[]}`),
			agenttest.ToolUse("7", "CallTool", `{}`),
		), agenttest.Say("done"))
	model := agenttest.ModelFunc(func(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		for _, s := range req.Tools {
			offered = append(offered, s.Name)
		}
		return steps.Reply(ctx, req, on)
	})
	l := newLoop(t, agent.Config{
		Model:    model,
		Tools:    []agent.Tool{tool{name: "usual", call: run}, tool{name: "rare", call: run}, tool{name: "forbidden", call: run}, caller{tool{name: "CallTool", call: run}}},
		Deferred: []string{"rare", "forbidden"},
		Gate: gate(func(c agent.Call) (agent.Decision, error) {
			asked = append(asked, c.Name+" "+string(c.Input))
			return agent.Decision{Allow: c.Name != "forbidden", Reason: "no"}, nil
		}),
		On: func(e agent.Event) {
			if e.Kind == agent.ToolStartEvent {
				heard = append(heard, e.Call.Name)
			}
		},
	})
	res, err := ask(l, "go")
	if err != nil {
		t.Fatal(err)
	}
	check(t, l.Messages())
	if want := []string{"usual", "CallTool", "usual", "CallTool"}; !slices.Equal(offered, want) {
		t.Errorf("the model is offered %q, want %q", offered, want)
	}
	if want := []string{`rare {"a":1}`, `Rare {"a":2}`, `forbidden {"a":3}`}; !slices.Equal(asked, want) {
		t.Errorf("the gate is asked about %q, want %q", asked, want)
	}
	if want := []string{`rare {"a":1}`, `Rare {"a":2}`}; !slices.Equal(ran, want) || !slices.Equal(heard, []string{"rare", "Rare"}) {
		t.Errorf("ran %q, and %q was heard, want %q", ran, heard, want)
	}
	if len(res.Denials) != 1 || res.Denials[0].Name != "forbidden" || string(res.Denials[0].Input) != `{"a":3}` {
		t.Errorf("denials: %+v", res.Denials)
	}
	texts, failed := results(t, l)
	for i, want := range []string{"ran", "ran", "no", `there is no tool "nothing"`, "not itself", "must be a JSON object", "name the tool"} {
		if !strings.Contains(texts[i], want) || failed[i] != (i > 1) {
			t.Errorf("result %d: %q, failed: %v; want %q", i, texts[i], failed[i], want)
		}
	}
	blocks, err := l.Messages()[1].Blocks()
	if err != nil || blocks[0].Name != "rare" || string(blocks[0].Input) != `{"a":1}` || blocks[2].Name != "forbidden" {
		t.Errorf("kept: %+v, %v", blocks, err)
	}
}
