package agent_test

import (
	"context"
	"slices"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// What a tool tells of its progress is heard while its call runs, and not when it is over.
func TestReportProgress(t *testing.T) {
	var heard []string
	late := func() {}
	steps := agenttest.Steps(agenttest.Use(agenttest.ToolUse("1", "slow", `{}`)), agenttest.Say("done"))
	l := newLoop(t, agent.Config{
		Model: steps,
		Tools: []agent.Tool{tool{name: "slow", call: func(ctx context.Context, _ agent.Call) (agent.Output, error) {
			agent.ReportProgress(ctx, "half (50%)")
			agent.ReportProgress(ctx, "")
			late = func() { agent.ReportProgress(ctx, "too late") }
			return agent.Output{Text: "ran"}, nil
		}}},
		On: func(e agent.Event) {
			switch e.Kind {
			case agent.ToolStartEvent:
				heard = append(heard, "start")
			case agent.ToolProgressEvent:
				heard = append(heard, e.Call.Name+": "+e.Text)
			case agent.ToolDoneEvent:
				heard = append(heard, "done")
			}
		},
	})
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	late()
	agent.ReportProgress(t.Context(), "of no call")
	if want := []string{"start", "slow: half (50%)", "done"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}
