package agent_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// meterNames records the models that a meter is asked for and told of.
type meterNames struct{ names []string }

func (m *meterNames) Reserve(_ context.Context, model string, _ int) (func(), error) {
	m.names = append(m.names, "reserve "+model)
	return nil, nil
}
func (m *meterNames) Spent(model string, _ agent.Usage) { m.names = append(m.names, "spent "+model) }

// A change holds from the next call of the model on, in the middle of a turn too: the call
// that is under way keeps its model, and is paid as its own.
func TestSetModel(t *testing.T) {
	var asked []agent.Request
	var l *agent.Loop
	second := agenttest.ModelFunc(func(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
		asked = append(asked, *req)
		return agenttest.Say("done")(t.Context(), req)
	})
	first := agenttest.ModelFunc(func(ctx context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
		asked = append(asked, *req)
		err := l.SetModel(agent.ModelSettings{Model: second, Name: "two", Thinking: agent.Thinking{Effort: "high"}})
		if err != nil {
			t.Error(err)
		}
		return agenttest.Use(agenttest.ToolUse("c1", "Echo", `{}`))(ctx, req)
	})
	meter := &meterNames{}
	l, err := agent.NewLoop(agent.Config{Model: first, ModelName: "one", Meter: meter, Tools: []agent.Tool{echoTool{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Turn(t.Context(), agent.TextBlock("go")); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || asked[0].Model != "one" || asked[1].Model != "two" || asked[1].Thinking.Effort != "high" {
		t.Errorf("asked %+v", asked)
	}
	if want := []string{"reserve one", "spent one", "reserve two", "spent two"}; !slices.Equal(meter.names, want) {
		t.Errorf("the meter saw %q, want %q", meter.names, want)
	}
	if err := l.SetModel(agent.ModelSettings{Name: "none"}); err == nil {
		t.Error("no model was accepted")
	}
}

type echoTool struct{}

func (echoTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Echo", Description: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (echoTool) Call(context.Context, agent.Call) (agent.Output, error) {
	return agent.Output{Text: "ok"}, nil
}
