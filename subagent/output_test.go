package subagent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/agent/agenttest"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/task/tasktest"
)

// look is a tool that tells the test when it is called.
type look struct{ called func() }

func (look) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Look", Description: "Looks.", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (l look) Call(context.Context, agent.Call) (agent.Output, error) {
	l.called()
	return agent.Output{Text: "three files\nin a row"}, nil
}

const golden = `I shall look.
[Look {"at":"x"}]

[Tool completed]
three files
in a row
[Look {"at":"y"}]

[Tool completed]
three files
in a row
Found: 3
`

// What an agent says and does is in its output as it happens: text as it comes,
// and every call with its result.
func TestOutput(t *testing.T) {
	replies := []*agent.Reply{
		{Blocks: []agent.Block{agent.TextBlock("I shall look."), agenttest.ToolUse("toolu_1", "Look", `{"at":"x"}`)}, StopReason: "tool_use"},
		{Blocks: []agent.Block{agenttest.ToolUse("toolu_2", "Look", `{"at":"y"}`)}, StopReason: "tool_use"},
		{Blocks: []agent.Block{agent.TextBlock("Found: 3")}, StopReason: "end_turn"},
	}
	var h *tasktest.Host
	model := agenttest.ModelFunc(func(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		r := replies[0]
		replies = replies[1:]
		r.Model, r.Usage = "test", agent.Usage{InputTokens: 10, OutputTokens: 5}
		for i, b := range r.Blocks {
			for _, piece := range strings.SplitAfter(b.Text, " ") {
				on(agent.Part{Kind: agent.TextPart, Index: i, Text: piece})
				if !strings.HasSuffix(h.Printed(), piece) {
					t.Errorf("%q is said and not in the output: %q", piece, h.Printed())
				}
			}
		}
		return r, nil
	})
	calls := 0
	tool := look{func() {
		if got := h.Printed(); calls == 0 && got != "I shall look.\n[Look {\"at\":\"x\"}]\n" {
			t.Errorf("while the tool runs the output is %q", got)
		}
		calls++
	}}
	d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
		return &subagent.Assembly{Config: agent.Config{Model: model, ModelName: "test", Tools: []agent.Tool{tool}}}, nil
	})
	h = tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"agent_type":"explore","prompt":"look"}`))
	res, err := d.Run(t.Context(), h)
	if err != nil || res.Text != "Found: 3" {
		t.Errorf("result %+v, %v", res, err)
	}
	if got := h.Printed(); got != golden {
		t.Errorf("printed:\n%s\nwant:\n%s", got, golden)
	}
	p := h.Record().Progress
	if p == nil || p.ToolUseCount != calls || calls != 2 || p.LastActivity.ToolName != "Look" || p.TokenCount != 10+3*5 {
		t.Errorf("progress %+v after %d calls", p, calls)
	}
	if u := res.Usage; u == nil || u.ToolUses != calls || u.Turns != 3 || u.OutputTokens != 15 || u.TotalTokens != 25 {
		t.Errorf("usage %+v", u)
	}
}
