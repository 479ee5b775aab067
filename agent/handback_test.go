package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// budgetMeter is a meter with a budget of some calls, which lets the last one pass.
type budgetMeter struct {
	meter
	last int
}

func (p *budgetMeter) ReserveLast(ctx context.Context, model string, maxTokens int) (func(), error) {
	p.last++
	most := p.most
	p.most = 0
	defer func() { p.most = most }()
	return p.Reserve(ctx, model, maxTokens)
}

// A turn that runs into a limit ends with what the model hands back, and fails by
// the limit all the same.
func TestHandBack(t *testing.T) {
	call := agenttest.Use(agent.TextBlock("so far"), agenttest.ToolUse("", "T", `{}`))
	words := agenttest.Say("half of it")
	broken := errors.New("overloaded")
	for name, c := range map[string]struct {
		steps  []agenttest.Step
		max    int
		budget int // calls; 0: any
		reason string
		text   string
		calls  int // of the model
		ran    int // calls of the tool
		warned bool
	}{
		"turns":     {steps: []agenttest.Step{call, call, words}, max: 2, reason: "max_turns", text: "half of it", calls: 3, ran: 2},
		"budget":    {steps: []agenttest.Step{call, words}, budget: 1, reason: "max_budget", text: "half of it", calls: 2, ran: 1},
		"calls":     {steps: []agenttest.Step{call, agenttest.Use(agent.TextBlock("half"), agenttest.ToolUse("", "T", `{}`))}, max: 1, reason: "max_turns", text: "half", calls: 2, ran: 1},
		"only-call": {steps: []agenttest.Step{call, agenttest.Use(agenttest.ToolUse("", "T", `{}`))}, max: 1, reason: "max_turns", text: "so far", calls: 2, ran: 1},
		"failed":    {steps: []agenttest.Step{call, agenttest.Fail(broken)}, max: 1, reason: "max_turns", text: "so far", calls: 2, ran: 1, warned: true},
		"circle":    {steps: slices.Repeat([]agenttest.Step{call}, 60), reason: "same_call", text: "so far", calls: 50, ran: 50},
		"well":      {steps: []agenttest.Step{call, words}, max: 2, reason: "end_turn", text: "half of it", calls: 2, ran: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			var tools [][]agent.ToolSpec
			model := agenttest.Steps(c.steps...)
			m := &budgetMeter{meter: meter{t: t, most: c.budget}}
			path := filepath.Join(t.TempDir(), "a.jsonl")
			file, _, err := agent.OpenTranscript(path, agent.Meta{})
			if err != nil {
				t.Fatal(err)
			}
			l := newLoop(t, agent.Config{MaxTurns: c.max, Meter: m, HandBack: true, Transcript: file, Tools: []agent.Tool{
				tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) { ran++; return agent.Output{Text: "same"}, nil }}},
				Model: agenttest.ModelFunc(func(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
					tools = append(tools, req.Tools)
					return model.Reply(ctx, req, on)
				})})
			res, err := ask(l, "go")
			limit := (*agent.LimitError)(nil)
			if name != "well" && (!errors.As(err, &limit) || limit.Limit != c.reason) || name == "well" && err != nil {
				t.Errorf("err = %v", err)
			}
			if res.Reason != c.reason || res.Text != c.text || ran != c.ran || len(tools) != c.calls || c.warned != (len(res.Warnings) > 0) {
				t.Errorf("%+v: %d calls of the tool, %d of the model", res, ran, len(tools))
			}
			if slices.ContainsFunc(tools, func(s []agent.ToolSpec) bool { return !reflect.DeepEqual(s, tools[0]) }) {
				t.Error("the tools of the last request are not those of the others")
			}
			if got := l.Totals().Usage.OutputTokens; got != m.spent.OutputTokens || res.Usage.OutputTokens != got {
				t.Errorf("used %d, metered %d, told %d", got, m.spent.OutputTokens, res.Usage.OutputTokens)
			}
			if m.open != 0 || name == "well" && m.last != 0 {
				t.Errorf("%d reserved still, %d last calls", m.open, m.last)
			}
			check(t, l.Messages())
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			again, history, err := agent.OpenTranscript(path, agent.Meta{})
			if err != nil || len(history.Messages) != len(l.Messages()) {
				t.Errorf("%d messages are kept of %d: %v", len(history.Messages), len(l.Messages()), err)
			}
			_ = again.Close()
		})
	}
}

// What is asked for says why the work ends, and that nothing more can be called.
func TestHandBackPrompt(t *testing.T) {
	model := agenttest.Steps(agenttest.Use(agenttest.ToolUse("", "T", `{}`)), agenttest.Say("x"), agenttest.Say("y"))
	l := newLoop(t, agent.Config{Model: model, MaxTurns: 1, HandBack: true, Tools: []agent.Tool{tool{name: "T"}}})
	if _, err := ask(l, "go"); err == nil {
		t.Fatal("no limit")
	}
	res, err := l.HandBack(t.Context(), "the time is up")
	if err != nil || res.Text != "y" || res.Turns != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	for i, why := range []string{"the limit of 1 turns was reached", "the time is up"} {
		request := model.Requests()[i+1]
		blocks, _ := request[len(request)-1].Blocks()
		if len(blocks) != 1 || !strings.Contains(blocks[0].Text, "ends here: "+why+".") || !strings.Contains(blocks[0].Text, "not carried out") {
			t.Errorf("asked for by %+v", blocks)
		}
	}
	check(t, l.Messages())
}

// Who breaks the turn off is not made to wait for last words.
func TestHandBackIsBrokenOff(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	call := agenttest.Use(agenttest.ToolUse("", "T", `{}`))
	stop := func(ctx context.Context, _ *agent.Request) (*agent.Reply, error) {
		cancel(stopped)
		return nil, context.Cause(ctx)
	}
	l := newLoop(t, agent.Config{Model: agenttest.Steps(call, stop), MaxTurns: 1, HandBack: true, Tools: []agent.Tool{tool{name: "T"}}})
	res, err := l.Turn(ctx, agent.TextBlock("go"))
	if err == nil || res.Turns != 1 || len(res.Warnings) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := l.HandBack(ctx, "the time is up"); !errors.Is(err, stopped) {
		t.Errorf("after the stop: %v", err)
	}
	check(t, l.Messages())
}
