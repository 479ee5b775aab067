package subagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
	"github.com/drover-dev/drover/test/tasktest"
)

// EX-13, EX-06: however a run ends, what Start has opened is closed by one End,
// before Close.
func TestStartAndEnd(t *testing.T) {
	stopped := errors.New("stopped")
	broken := errors.New("close")
	use := agenttest.ToolUse("a", "Look", `{}`)
	for name, c := range map[string]struct {
		model  func(cancel context.CancelCauseFunc) agent.Model
		start  func() string
		close  error
		order  string // what was told, in order
		failed bool   // as End is told
		want   error  // of the run
		panics bool
		reason task.Reason
	}{
		"normal": {order: "start turn end close"},
		"failure": {model: func(context.CancelCauseFunc) agent.Model { return agenttest.Steps(agenttest.Fail(stopped)) },
			order: "start end close", failed: true, want: stopped, reason: task.ReasonError},
		"killed": {model: func(cancel context.CancelCauseFunc) agent.Model {
			return agenttest.ModelFunc(func(ctx context.Context, _ *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
				cancel(stopped)
				return nil, context.Cause(ctx)
			})
		}, order: "start end close", failed: true, want: stopped},
		"limit": {model: func(context.CancelCauseFunc) agent.Model { return agenttest.Steps(agenttest.Use(use)) },
			order: "start end close", failed: true, reason: task.ReasonMaxTurns},
		"panic": {model: func(context.CancelCauseFunc) agent.Model {
			return agenttest.ModelFunc(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) { panic("model") })
		}, order: "start end close", failed: true, panics: true},
		"panic-in-start": {start: func() string { panic("start") }, order: "start end close", failed: true, panics: true},
		"close":          {close: broken, order: "start turn end close", want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var order []string
			model := agent.Model(agenttest.ModelFunc(func(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
				order = append(order, "turn")
				blocks, _ := req.Messages[0].Blocks()
				if len(req.Messages) != 1 || len(blocks) != 2 || blocks[0].Text != "from the hook" || blocks[1].Text != "look" {
					t.Errorf("the model was asked %+v", blocks)
				}
				return &agent.Reply{Blocks: []agent.Block{agent.TextBlock("found")}, StopReason: "end_turn"}, nil
			}))
			if c.model != nil {
				model = c.model(cancel)
			}
			d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
				return &subagent.Assembly{
					Config: agent.Config{Model: model, MaxTurns: 1, Tools: []agent.Tool{look{func() {}}}},
					Start: func(context.Context) string {
						order = append(order, "start")
						if c.start != nil {
							return c.start()
						}
						return "from the hook"
					},
					End: func(ctx context.Context, res agent.TurnResult, err error) {
						order = append(order, "end")
						if _, limited := ctx.Deadline(); ctx.Err() != nil || !limited {
							t.Errorf("End has a context that is over, or without end: %v", ctx.Err())
						}
						if (err != nil) != c.failed || !c.failed && res.Text != "found" {
							t.Errorf("End is told %+v, %v", res, err)
						}
					},
					Close: func() error { order = append(order, "close"); return c.close },
				}, nil
			})
			panicked := true
			var err error
			func() {
				defer func() { _ = recover() }()
				_, err = d.Run(ctx, tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"agent_type":"explore","prompt":"look"}`)))
				panicked = false
			}()
			if got := strings.Join(order, " "); got != c.order {
				t.Errorf("order %s, want %s", got, c.order)
			}
			if panicked != c.panics || c.want != nil && !errors.Is(err, c.want) || c.want == nil && c.reason == "" && err != nil {
				t.Errorf("panicked %v, error %v", panicked, err)
			}
			if fail := (*task.FailError)(nil); c.reason != "" && (!errors.As(err, &fail) || fail.Reason != c.reason) {
				t.Errorf("error %v, want reason %s", err, c.reason)
			}
		})
	}
}

// What an agent leaves behind is handed back on every path, also of a crash.
func TestLeaveHandedBack(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  agent.Config
		want string
	}{
		"good":     {agent.Config{Model: agenttest.Steps(agenttest.Say("found"))}, ""},
		"no-model": {agent.Config{}, "model"},
		"failure":  {agent.Config{Model: agenttest.Steps(agenttest.Fail(errors.New("broken")))}, "broken"},
		"panic": {agent.Config{Model: agenttest.ModelFunc(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
			panic("model")
		})}, "panic"},
	} {
		closed := false
		d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
			return &subagent.Assembly{Config: c.cfg, Close: func() error { closed = true; return nil },
				Leave: func(context.Context) *task.Worktree { return &task.Worktree{Path: "/w"} }}, nil
		})
		res, err := d.Run(t.Context(), tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"prompt":"look"}`)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || !closed {
			t.Errorf("%s: %v, closed %v", name, err, closed)
		}
		if res.Leave == nil || res.Leave(t.Context()).Path != "/w" {
			t.Errorf("%s: what it leaves is lost", name)
		}
	}
}

// What never started is not ended.
func TestNoEndWithoutStart(t *testing.T) {
	for name, cfg := range map[string]agent.Config{"no-model": {}, "bad-tools": {Model: agenttest.Steps(), Tools: []agent.Tool{look{}, look{}}}} {
		closed := 0
		d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
			return &subagent.Assembly{
				Config: cfg,
				Start:  func(context.Context) string { t.Error("started"); return "" },
				End:    func(context.Context, agent.TurnResult, error) { t.Error("ended") },
				Close:  func() error { closed++; return nil },
			}, nil
		})
		_, err := d.Run(t.Context(), tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"prompt":"look"}`)))
		if fail := (*task.FailError)(nil); !errors.As(err, &fail) || fail.Reason != task.ReasonStart || closed != 1 {
			t.Errorf("%s: %v, closed %d times", name, err, closed)
		}
	}
}

// intent is the tool by which an agent says what it is about to do.
type intent struct{ look }

func (intent) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "report_intent", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

// PT-08: the latest intent is in the progress; and the output says where the
// conversation was summed up, or its end blocked.
func TestIntentAndSummary(t *testing.T) {
	var h *tasktest.Host
	said := ""
	h = tasktest.NewHost(t, task.LocalAgent, json.RawMessage(`{"prompt":"look"}`))
	step := func(held int64, stop string, blocks ...agent.Block) agenttest.Step {
		return func(c context.Context, r *agent.Request) (*agent.Reply, error) {
			reply, err := agenttest.Blocks(stop, blocks...)(c, r)
			reply.Usage.InputTokens = 0
			reply.Usage.CacheReadTokens = held
			return reply, err
		}
	}
	model := agenttest.Steps(
		step(100, "tool_use", agenttest.ToolUse("a", "report_intent", `{"intent":"Reading\n the tests"}`), agenttest.ToolUse("b", "report_intent", `{"intent":7}`)),
		step(900, "tool_use", agenttest.ToolUse("c", "Look", `{}`)),
		step(950, "end_turn", agent.TextBlock("the sum")),
		step(50, "end_turn", agent.TextBlock("found")),
		step(60, "end_turn", agent.TextBlock("and checked")))
	d := subagent.New(func(context.Context, task.Host, subagent.Input) (*subagent.Assembly, error) {
		return &subagent.Assembly{Config: agent.Config{Model: model, Hooks: once{}, Compaction: &agent.Compaction{Window: 1000}, Tools: []agent.Tool{
			intent{look{func() { said = h.Record().Progress.Message }}}, look{func() {}}}}}, nil
	})
	res, err := d.Run(t.Context(), h)
	if err != nil || res.Text != "and checked" || res.Usage.OutputTokens != 25 || res.Usage.Turns != 4 {
		t.Errorf("%+v, %+v, %v", res, res.Usage, err)
	}
	if said != "Reading the tests" || h.Record().Progress.Message != said {
		t.Errorf("intent %q, at the end %q", said, h.Record().Progress.Message)
	}
	printed := h.Printed()
	for _, want := range []string{"[The conversation of 900 tokens was summed up]\n", "[Going on: check it]\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in the output:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "the sum") {
		t.Error("the summary is shown as an answer")
	}
}

// once blocks the end one time.
type once struct{ agent.Hooks }

func (once) Called(_ context.Context, _ agent.Call, out agent.Output, _ time.Duration) agent.Output {
	return out
}
func (once) Batch(context.Context, []agent.Done) string { return "" }
func (once) Stop(_ context.Context, _ agent.TurnResult, blocked int) string {
	if blocked == 0 {
		return "check it"
	}
	return ""
}

// The JSON names are those of the SDK and of agent files.
func TestDefinitionJSON(t *testing.T) {
	const text = `{"name":"n","displayName":"N","description":"d","prompt":"p","tools":["Read"],"disallowedTools":["Bash"],"model":"haiku","maxTurns":3,` +
		`"effort":"low","skills":["pdf"],"initialPrompt":"i","criticalSystemReminder_EXPERIMENTAL":"c","hooks":{"Stop":[1]},"mcpServers":["docs",{"x":{}}],` +
		`"permissionMode":"plan","background":false,"onEnd":"reparent","isolation":"worktree","source":"f"}`
	var d subagent.Definition
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(d); err != nil || string(again) != text {
		t.Errorf("%s, %v", again, err)
	}
	if !slices.Equal(d.Skills, []string{"pdf"}) || d.Background == nil || *d.Background || d.CriticalReminder != "c" {
		t.Errorf("%+v", d)
	}
	bare, _ := json.Marshal(subagent.Definition{})
	if string(bare) != `{"name":"","description":"","prompt":"","tools":null}` {
		t.Errorf("an empty definition is %s", bare)
	}
}
