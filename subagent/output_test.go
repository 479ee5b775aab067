package subagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
	"github.com/drover-dev/drover/test/tasktest"
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

// What is void of an answer is said behind it, and that it is asked for again.
func TestOutputVoid(t *testing.T) {
	model := agenttest.ModelFunc(func(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		on(agent.Part{Kind: agent.TextPart, Text: "half a sent"})
		on(agent.Part{Kind: agent.VoidPart, Usage: agent.Usage{OutputTokens: 2}})
		on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: 1, Most: 9, After: time.Second, Why: agent.ModelError{Text: "connection reset"}}})
		on(agent.Part{Kind: agent.TextPart, Text: "whole"})
		return &agent.Reply{Blocks: []agent.Block{agent.TextBlock("whole")}, StopReason: "max_tokens", Usage: agent.Usage{OutputTokens: 5}}, nil
	})
	d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
		return &subagent.Assembly{Config: agent.Config{Model: model}}, nil
	})
	h := tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"agent_type":"explore","prompt":"look"}`))
	res, err := d.Run(t.Context(), h)
	var failed *task.FailError
	if !errors.As(err, &failed) || failed.Reason != "max_tokens" || res.Text != "whole" || res.Usage == nil || res.Usage.OutputTokens != 7 || res.Usage.Turns != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	want := "half a sent\n[The partial answer above is discarded]\n[model call failed: connection reset (retry 1 of 9 in 1s)]\nwhole\n"
	if got := h.Printed(); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// An agent that a limit holds says until when, and goes on without a word of it.
func TestParked(t *testing.T) {
	h := tasktest.NewHost(t, task.LocalAgent, nil)
	w := subagent.NewWatcher(h)
	w.On(agent.Event{Kind: agent.PartEvent, Part: agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{After: time.Minute, Most: 9}}})
	if p := h.Record().Progress; p == nil || p.ParkedUntil == nil || p.Message == "" {
		t.Errorf("it is held: %+v", p)
	}
	w.On(agent.Event{Kind: agent.PartEvent, Part: agent.Part{Kind: agent.TextPart, Text: "on"}})
	if p := h.Record().Progress; p.ParkedUntil != nil || p.Message != "" {
		t.Errorf("it has gone on: %+v", p)
	}
}

// How far calls are is what the agent is about, until the last of them is over.
func TestCallsReport(t *testing.T) {
	h := tasktest.NewHost(t, task.LocalAgent, nil)
	w := subagent.NewWatcher(h)
	says := func(want string) {
		t.Helper()
		if p := h.Record().Progress; p == nil || p.Message != want {
			t.Errorf("it says %+v, want %q", p, want)
		}
	}
	a, b := agent.Call{ID: "a", Name: "dig"}, agent.Call{ID: "b", Name: "fill"}
	w.On(agent.Event{Kind: agent.ToolStartEvent,
		Call: agent.Call{ID: "i", Name: "report_intent", Input: json.RawMessage(`{"intent":"build a dam"}`)}})
	w.On(agent.Event{Kind: agent.ToolProgressEvent, Call: a, Text: "sand (10%)"})
	says("dig: sand (10%)")
	w.On(agent.Event{Kind: agent.ToolProgressEvent, Call: b, Text: "50%"})
	says("fill: 50%")
	w.On(agent.Event{Kind: agent.ToolDoneEvent, Call: b})
	says("fill: 50%") // until the other tells again
	w.On(agent.Event{Kind: agent.ToolProgressEvent, Call: a, Text: "mud (90%)"})
	says("dig: mud (90%)")
	w.On(agent.Event{Kind: agent.ToolDoneEvent, Call: a})
	says("build a dam")
	for _, line := range []string{"[dig: sand (10%)]\n", "[dig: mud (90%)]\n"} {
		if !strings.Contains(h.Printed(), line) {
			t.Errorf("printed without %q: %q", line, h.Printed())
		}
	}
}
