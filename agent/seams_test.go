package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// hooks answers by functions; a nil one has nothing to say.
type hooks struct {
	called func(agent.Call, agent.Output) agent.Output
	batch  func([]agent.Done) string
	stop   func(res agent.TurnResult, blocked int) string
}

func (h hooks) Called(_ context.Context, c agent.Call, out agent.Output, _ time.Duration) agent.Output {
	if h.called == nil {
		return out
	}
	return h.called(c, out)
}

func (h hooks) Batch(_ context.Context, done []agent.Done) string {
	if h.batch == nil {
		return ""
	}
	return h.batch(done)
}

func (h hooks) Stop(_ context.Context, res agent.TurnResult, blocked int) string {
	if h.stop == nil {
		return ""
	}
	return h.stop(res, blocked)
}

// contents is the texts of a message, results in brackets.
func contents(t testing.TB, m agent.Message) []string {
	t.Helper()
	blocks, err := m.Blocks()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			all = append(all, b.Text)
		case "tool_result":
			var text string
			_ = json.Unmarshal(b.Content, &text)
			all = append(all, "["+text+"]")
		case "tool_use":
			all = append(all, "call "+b.ID)
		}
	}
	return all
}

func TestWhatGoesBehindResults(t *testing.T) {
	mail := &agenttest.Mail{}
	var told []string
	var most sync.Mutex
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(
			agenttest.Use(agenttest.ToolUse("a", "P", `{"n":1}`), agenttest.ToolUse("b", "P", `{}`), agenttest.ToolUse("c", "None", `{}`), agenttest.ToolUse("d", "P", `{}`)),
			agenttest.Say("end")),
		Mail: mail,
		Tools: []agent.Tool{tool{name: "P", parallel: true, call: func(_ context.Context, c agent.Call) (agent.Output, error) {
			if c.ID == "a" {
				mail.Send(agent.MailMessage{Seq: 1, Text: "letter"})
			}
			return agent.Output{Text: "ran " + c.ID + string(c.Input)}, nil
		}}},
		Gate: gate(func(c agent.Call) (agent.Decision, error) {
			d := agent.Decision{Allow: c.ID != "d", Reason: "no", Context: "context " + c.ID}
			if c.ID == "a" {
				d.Input = json.RawMessage(`{"n":2}`)
			}
			return d, nil
		}),
		Hooks: hooks{
			called: func(c agent.Call, out agent.Output) agent.Output {
				most.Lock()
				defer most.Unlock()
				told = append(told, c.ID)
				if c.ID == "b" {
					panic("a bad hook")
				}
				out.Text += ", hooked"
				return out
			},
			batch: func(done []agent.Done) string {
				var ids []string
				for _, d := range done {
					ids = append(ids, d.Call.ID+string(d.Call.Input))
				}
				return strings.Join(ids, " ")
			},
		},
		Reminders: &reminders{due: []string{"first", "second"}},
	})
	res, err := ask(l, "go")
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, l.Messages()[0]); !slices.Equal(got, []string{"first (start)", "go"}) {
		t.Errorf("first message %q", got)
	}
	got := contents(t, l.Messages()[2])
	want := []string{`[ran a{"n":2}, hooked]`, "[ran b{}]", `[there is no tool "None"; the tools are P]`, "[no]",
		"context a", "context b", "context d", `a{"n":2} b{} c{} d{}`, "second", "letter"}
	if !slices.Equal(got, want) {
		t.Errorf("behind the results:\n%q\nwant\n%q", got, want)
	}
	if slices.Sort(told); !slices.Equal(told, []string{"a", "b"}) {
		t.Errorf("told of %q: only calls that ran", told)
	}
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "a bad hook") {
		t.Errorf("warnings %q", res.Warnings)
	}
	check(t, l.Messages())
}

func TestWhoEndsTheTurn(t *testing.T) {
	use := agenttest.Use(agenttest.ToolUse("a", "T", `{}`), agenttest.ToolUse("b", "T", `{}`))
	for name, c := range map[string]struct {
		gate   gate
		hooks  hooks
		reason string
		ran    int
	}{
		"gate": {gate: func(c agent.Call) (agent.Decision, error) {
			return agent.Decision{Allow: c.ID == "b", Reason: "no", EndTurn: c.ID == "a"}, nil
		}, reason: "gate_end", ran: 1},
		"hook": {hooks: hooks{called: func(c agent.Call, out agent.Output) agent.Output { out.EndTurn = c.ID == "a"; return out }},
			reason: "tool_end", ran: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			c.hooks.stop = func(agent.TurnResult, int) string { t.Error("asked whether the turn may end"); return "" }
			cfg := agent.Config{Model: agenttest.Steps(use), Hooks: c.hooks, Tools: []agent.Tool{tool{name: "T",
				call: func(context.Context, agent.Call) (agent.Output, error) { ran++; return agent.Output{Text: "x"}, nil }}}}
			if c.gate != nil {
				cfg.Gate = c.gate
			}
			l := newLoop(t, cfg)
			res, err := ask(l, "go")
			if err != nil || res.Reason != c.reason || ran != c.ran || res.Turns != 1 {
				t.Errorf("%+v, %v, %d ran", res, err, ran)
			}
			check(t, l.Messages())
		})
	}
}

func TestStopIsBlockedEightTimesAtMost(t *testing.T) {
	for name, c := range map[string]struct {
		most, max  int // times that the hook blocks; replies of a turn
		turns      int
		warning    string
		wantBlocks int
	}{
		"never":   {turns: 1},
		"twice":   {most: 2, turns: 3, wantBlocks: 2},
		"forever": {most: 100, turns: 9, wantBlocks: 8, warning: "8 times"},
		"limit":   {most: 100, max: 3, turns: 3, wantBlocks: 2, warning: "limit of 3 turns"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []int
			var events []string
			l := newLoop(t, agent.Config{
				Model: agenttest.Steps(slices.Repeat([]agenttest.Step{agenttest.Say("done")}, 30)...), MaxTurns: c.max,
				Hooks: hooks{stop: func(res agent.TurnResult, blocked int) string {
					if res.Text != "done" || res.Reason != "end_turn" {
						t.Errorf("asked with %+v", res)
					}
					if asked = append(asked, blocked); len(asked) > c.most {
						return ""
					}
					return fmt.Sprint("because ", blocked)
				}},
				On: func(e agent.Event) {
					if e.Kind == agent.BlockedEvent {
						events = append(events, fmt.Sprint(e.Blocked, e.Text))
					}
				},
			})
			res, err := ask(l, "go")
			if err != nil || res.Reason != "end_turn" || res.Turns != c.turns {
				t.Errorf("%+v, %v", res, err)
			}
			if got := strings.Join(res.Warnings, ""); !strings.Contains(got, c.warning) || (c.warning == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
			if len(events) != c.wantBlocks {
				t.Errorf("events %q", events)
			}
			for i, n := range asked {
				if n != i {
					t.Errorf("told of %v blocks", asked)
				}
			}
			if m := l.Messages(); c.wantBlocks > 0 && !slices.Equal(contents(t, m[2]), []string{"because 0"}) {
				t.Errorf("the model was told %q", contents(t, m[2]))
			}
			check(t, l.Messages())
		})
	}
}

func TestStopIsNotAskedForABadEnd(t *testing.T) {
	use := agenttest.Use(agenttest.ToolUse("", "T", `{}`))
	ctx, cancel := context.WithCancel(context.Background())
	for name, steps := range map[string][]agenttest.Step{
		"refusal": {agenttest.Blocks("refusal")},
		"length":  {agenttest.Blocks("max_tokens", agent.TextBlock("a"))},
		"failure": {agenttest.Fail(errors.New("x"))},
		"limit":   {use, use},
		"interrupt": {func(context.Context, *agent.Request) (*agent.Reply, error) {
			cancel()
			return nil, context.Canceled
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, agent.Config{Model: agenttest.Steps(steps...), MaxTurns: 2, Tools: []agent.Tool{tool{name: "T"}},
				Hooks: hooks{stop: func(agent.TurnResult, int) string { t.Error("asked"); return "on" }}})
			use := context.Background()
			if name == "interrupt" {
				use = ctx
			}
			_, _ = l.Turn(use, agent.TextBlock("go"))
		})
	}
}

// reminders gives one text at a time.
type reminders struct {
	due       []string
	forgotten int
}

func (r *reminders) Due(_ context.Context, start bool) []string {
	if len(r.due) == 0 {
		return nil
	}
	text := r.due[0]
	if r.due = r.due[1:]; start {
		text += " (start)"
	}
	return []string{text}
}

func (r *reminders) Forgotten() { r.forgotten++ }

// A reminder that was taken is told although its message could not be kept.
func TestReminderIsNotLostWithAMessage(t *testing.T) {
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`)), agenttest.Say("end")), Mail: &brokenMail{after: 1},
		Tools: []agent.Tool{tool{name: "T"}}, Reminders: &reminders{due: []string{"one", "two"}},
	})
	if _, err := ask(l, "go"); err == nil {
		t.Fatal("no error")
	}
	if _, err := ask(l, "on"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range l.Messages() {
		all = append(all, contents(t, m)...)
	}
	if got := strings.Join(all, "|"); strings.Count(got, "one") != 1 || strings.Count(got, "two") != 1 {
		t.Errorf("told %q", got)
	}
}

// brokenMail fails once, after so many times.
type brokenMail struct{ after int }

func (m *brokenMail) Take(context.Context) ([]agent.MailMessage, error) {
	if m.after--; m.after == -1 {
		return nil, errors.New("no mail")
	}
	return nil, nil
}
func (m *brokenMail) Ack(context.Context, []agent.MailMessage) error { return nil }

// meter counts what is reserved, given back and spent.
type meter struct {
	t        testing.TB
	most     int // calls that are allowed; 0: any
	reserved int
	open     int
	calls    []string
	spent    agent.Usage
}

func (m *meter) Reserve(_ context.Context, model string, maxTokens int) (func(), error) {
	if m.most > 0 && m.reserved >= m.most {
		return nil, &agent.LimitError{Limit: "max_budget", Text: "the budget is used up"}
	}
	m.calls = append(m.calls, fmt.Sprint(model, maxTokens))
	m.reserved++
	m.open++
	freed := false
	return func() {
		if freed {
			m.t.Error("freed twice")
		}
		freed = true
		m.open--
	}, nil
}

func (m *meter) Spent(_ string, u agent.Usage) {
	if m.open != 1 {
		m.t.Errorf("spent while %d are reserved", m.open)
	}
	m.spent.OutputTokens += u.OutputTokens
}

func TestMeter(t *testing.T) {
	cut := &agent.CutError{Usage: agent.Usage{OutputTokens: 7}}
	for name, c := range map[string]struct {
		steps  []agenttest.Step
		most   int
		spent  int64
		calls  int
		reason string
	}{
		"plain":  {steps: []agenttest.Step{agenttest.Use(agenttest.ToolUse("a", "T", `{}`)), agenttest.Say("x")}, spent: 10, calls: 2, reason: "end_turn"},
		"nudge":  {steps: []agenttest.Step{agenttest.Blocks("end_turn"), agenttest.Say("x")}, spent: 10, calls: 2, reason: "end_turn"},
		"cut":    {steps: []agenttest.Step{agenttest.Fail(cut)}, spent: 7, calls: 1, reason: "error"},
		"failed": {steps: []agenttest.Step{agenttest.Fail(errors.New("x"))}, calls: 1, reason: "error"},
		"empty":  {steps: []agenttest.Step{agenttest.Use(agenttest.ToolUse("a", "T", `{}`))}, most: 1, spent: 5, calls: 1, reason: "max_budget"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &meter{t: t, most: c.most}
			l := newLoop(t, agent.Config{Model: agenttest.Steps(c.steps...), ModelName: "m", MaxTokens: 9, Meter: m, Tools: []agent.Tool{tool{name: "T"}}})
			res, err := ask(l, "go")
			if res.Reason != c.reason || m.spent.OutputTokens != c.spent || m.reserved != c.calls || m.open != 0 {
				t.Errorf("%+v, %v: spent %d in %d calls, %d open", res, err, m.spent.OutputTokens, m.reserved, m.open)
			}
			if m.calls[0] != "m9" {
				t.Errorf("asked for %q", m.calls)
			}
			if c.reason == "max_budget" && (err == nil || err.Error() != "the budget is used up") {
				t.Errorf("error %v", err)
			}
			check(t, l.Messages())
		})
	}
}

// A crash of the model gives back what was reserved.
func TestMeterIsFreedWhenTheModelPanics(t *testing.T) {
	m := &meter{t: t}
	l := newLoop(t, agent.Config{Meter: m, Model: agenttest.ModelFunc(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) { panic("model") })})
	func() {
		defer func() { _ = recover() }()
		_, _ = ask(l, "go")
	}()
	if m.open != 0 {
		t.Errorf("%d are reserved still", m.open)
	}
}
