package hook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// echo is a tool that answers with its input.
type echo struct{}

func (echo) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Echo", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (echo) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	return agent.Output{Text: "ran " + string(c.Input)}, nil
}

// TestTurn is a whole turn of a real loop with commands at every point.
func TestTurn(t *testing.T) {
	s := play(t, `{"hooks":{
		"PreToolUse":[{"matcher":"Echo","hooks":[{"command":"jq -e '.tool_input.no' > /dev/null && { echo refused >&2; exit 2; }; echo '{\"hookSpecificOutput\":{\"updatedInput\":{\"changed\":1},\"additionalContext\":\"before\"}}'"}]}],
		"PostToolUse":[{"hooks":[{"command":"echo '{\"hookSpecificOutput\":{\"additionalContext\":\"after\"}}'"}]}],
		"PostToolBatch":[{"hooks":[{"command":"jq -c '[.tool_calls[].tool_input]' > batch"}]}],
		"Stop":[{"hooks":[{"command":"jq -e .stop_hook_active > /dev/null || { echo once more >&2; exit 2; }"}]}]}}`,
		func(b *Base) { b.Tools = []agent.Tool{echo{}} })
	model := agenttest.Steps(
		agenttest.Use(agenttest.ToolUse("toolu_a", "echo", `{"a":1}`), agenttest.ToolUse("toolu_b", "Echo", `{"no":1}`)),
		agenttest.Say("done"), agenttest.Say("really done"))
	loop, err := agent.NewLoop(agent.Config{Model: model, Tools: []agent.Tool{echo{}}, Gate: NewGate(s.Runner, &rules{says: Allow}), Hooks: NewLoop(s.Runner, nil)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := loop.Turn(t.Context(), agent.TextBlock("go"))
	if err != nil || res.Text != "really done" {
		t.Fatalf("%+v, %v", res, err)
	}
	requests := model.Requests()
	var read string
	for _, m := range requests[len(requests)-1] {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		read += string(b) + "\n"
	}
	for _, text := range []string{`ran {\"changed\":1}`, "after", "before", "refused", "once more"} {
		if strings.Count(read, text) != 1 {
			t.Errorf("%q is not there once:\n%s", text, read)
		}
	}
	if got := strings.TrimSpace(s.read(t, "batch")); got != `[{"changed":1},{"no":1}]` {
		t.Errorf("the batch was told of %s", got)
	}
}
