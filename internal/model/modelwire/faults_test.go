package modelwire_test

import (
	"github.com/drover-dev/drover/internal/model/modelwire"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// Each way in which a call goes wrong: a loop asks again where that may help and
// nowhere else, runs no call of the half answer, keeps nothing of it, and holds no
// place in the limiter and no goroutine when it is done.
func TestFaults(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	each(t, func(t *testing.T, d dialect) {
		half := modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("a secret half"),
			modeltest.ToolUse("toolu_1", "Bash", map[string]any{"command": "one"}),
			modeltest.ToolUse("toolu_2", "Bash", map[string]any{"command": "two"})}}
		table := modeltest.Faults(d.api, half)
		if len(table) < 40 {
			t.Errorf("%d faults", len(table))
		}
		for _, f := range table {
			t.Run(f.Name, func(t *testing.T) {
				s := answers(t, f.Answer, modeltest.Text("whole"))
				var l modelwire.Limiter
				m := d.connect(t, config{url: s.URL, limiter: &l, calls: 1})
				var told []agent.Retry
				loop, tool := loopOver(t, m, func(e agent.Event) {
					if e.Kind == agent.PartEvent && e.Part.Kind == agent.RetryPart && e.Part.Retry.Attempt > 0 {
						told = append(told, e.Part.Retry)
					}
				})
				res, err := loop.Turn(waittest.Context(t, patience), agent.TextBlock("go"))
				switch {
				case f.Again:
					if err != nil || res.Text != "whole" || s.Count() != 2 || len(told) != 1 || told[0].Why.Kind != f.Kind ||
						told[0].Most < 2 {
						t.Errorf("%+v, %v after %d calls, told %+v", res, err, s.Count(), told)
					}
				case f.Kind == "":
					if err != nil || tool.runs.Load() != 2 || len(told) > 0 {
						t.Errorf("%+v, %v: %d calls were run, told %+v", res, err, tool.runs.Load(), told)
					}
				default:
					if kindOf(err) != f.Kind || s.Count() != 1 || len(told) > 0 {
						t.Errorf("%v (%s) after %d calls, told %+v; want %s", err, kindOf(err), s.Count(), told, f.Kind)
					}
				}
				if f.Kind == "" {
					return
				}
				if tool.runs.Load() != 0 {
					t.Error("a call of half an answer was run")
				}
				for _, msg := range loop.Messages() {
					if strings.Contains(string(msg.Encoded()), "secret") {
						t.Errorf("the conversation holds %s", msg.Encoded())
					}
				}
				if _, err := m.Reply(waittest.Context(t, patience), request("again"), nil); err != nil &&
					!slices.Contains([]string{"auth", "account"}, f.Kind) {
					t.Errorf("the next call: %v", err) // with one place, which is free again
				}
			})
		}
	})
}

// Who listens and panics leaves no place taken.
func TestPanicFreesPlace(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		s := answers(t, modeltest.Text("hello"))
		m := d.connect(t, config{url: s.URL, calls: 1})
		func() {
			defer func() { _ = recover() }()
			_, _ = m.Reply(waittest.Context(t, patience), request("a"), func(agent.Part) { panic("listener") })
			t.Error("it went on")
		}()
		if _, err := m.Reply(waittest.Context(t, patience), request("b"), nil); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}
