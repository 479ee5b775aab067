package modelwire_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// counting is a tool that counts its runs.
type counting struct{ runs atomic.Int64 }

func (*counting) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "Bash", Description: "runs", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (c *counting) Call(_ context.Context, call agent.Call) (agent.Output, error) {
	c.runs.Add(1)
	return agent.Output{Text: "ran " + string(call.Input)}, nil
}

func loopOver(t *testing.T, m agent.Model, on ...func(agent.Event)) (*agent.Loop, *counting) {
	t.Helper()
	tool := &counting{}
	cfg := agent.Config{Model: m, ModelName: "m", System: "s", Tools: []agent.Tool{tool}, MaxTurns: 30}
	if len(on) > 0 {
		cfg.On = on[0]
	}
	l, err := agent.NewLoop(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, tool
}

// A loop over the wire runs no tool of an answer that was cut and keeps nothing of
// it but its cost: the conversation goes on from the answer that came whole.
func TestLoopCut(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		full := rich()
		body := full.StreamOf(d.api, "m")
		end := strings.LastIndex(string(body), `"toolu_2"`)
		for at := 0; at < end; at += 37 {
			a := full
			a.Break, a.Reset, a.CutAt = true, at%2 == 0, at
			m, s := d.asked(t, a, modeltest.Text("whole"))
			l, tool := loopOver(t, m)
			res, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("go"))
			if err != nil || res.Text != "whole" || tool.runs.Load() != 0 || s.Count() != 2 || len(l.Messages()) != 2 ||
				res.Turns != 1 {
				t.Fatalf("cut at %d: %+v, %v, %d runs, %d calls, %d messages", at, res, err, tool.runs.Load(), s.Count(),
					len(l.Messages()))
			}
			if told := d.api == modeltest.Messages && at > after(body, "message_start"); told &&
				res.Usage.InputTokens != full.Usage.InputTokens {
				t.Fatalf("cut at %d: usage %+v", at, res.Usage)
			}
			m.Close()
			s.Close()
		}
	})
}

// What models get wrong reaches them as results, over each wire and back again.
func TestLoopOdd(t *testing.T) {
	text := func(s string) modeltest.Answer { return modeltest.Text(s) }
	blocks := func(b ...agent.Block) modeltest.Answer { return modeltest.Answer{Blocks: b} }
	ended := func(reason string, a modeltest.Answer) modeltest.Answer { a.StopReason = reason; return a }
	ok := map[string]any{"a": 1}
	odd := agent.Block{Type: "tool_use", ID: "toolu_1", Name: "Bash", Input: json.RawMessage(`[1`)}
	large := modeltest.ToolUse("toolu_1", "Bash", map[string]any{"a": strings.Repeat("x", 1<<20)})
	each(t, func(t *testing.T, d dialect) {
		for _, c := range []struct {
			name  string
			turns []modeltest.Answer
			runs  int64
			says  string // in the results that the model gets
			stop  string
			calls int
		}{
			{"call", []modeltest.Answer{blocks(modeltest.ToolUse("toolu_1", "Bash", ok)), text("done")}, 1, `ran {"a":1}`,
				"end_turn", 2},
			{"same-id", []modeltest.Answer{blocks(modeltest.ToolUse("x", "Bash", ok),
				modeltest.ToolUse("x", "Bash", map[string]any{"b": 2})), text("done")}, 2, `ran {"b":2}`, "end_turn", 2},
			{"id-again", []modeltest.Answer{blocks(modeltest.ToolUse("x", "Bash", ok)),
				blocks(modeltest.ToolUse("x", "Bash", ok)), text("done")}, 2, `ran {"a":1}`, "end_turn", 3},
			{"unknown", []modeltest.Answer{blocks(modeltest.ToolUse("x", "constructor", ok)), text("done")}, 0,
				"there is no tool", "end_turn", 2},
			{"letter-case", []modeltest.Answer{blocks(modeltest.ToolUse("x", "bASH", ok)), text("done")}, 1, "ran", "end_turn",
				2},
			{"no-json", []modeltest.Answer{blocks(odd), text("done")}, 1, "invalid_input", "end_turn", 2},
			{"large", []modeltest.Answer{blocks(large), text("done")}, 0, "at most 1 MiB", "end_turn", 2},
			{"refusal", []modeltest.Answer{ended("refusal", text("I will not"))}, 0, "", "refusal", 1},
			{"length-with-call", []modeltest.Answer{ended("max_tokens", blocks(agent.TextBlock("so"),
				modeltest.ToolUse("x", "Bash", ok))), text("done")}, 0, "", "end_turn", 2},
			{"empty", []modeltest.Answer{{}, text("done")}, 0, "", "end_turn", 2},
			{"thoughts-only", []modeltest.Answer{blocks(agent.Block{Type: "thinking", Thinking: "hm", Signature: "s"}),
				text("done")}, 0, "", "end_turn", 2},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, s := d.asked(t, c.turns...)
				l, tool := loopOver(t, m)
				res, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("go"))
				var stopped *agent.StopError
				if errors.As(err, &stopped) && stopped.Reason == c.stop {
					err = nil
				}
				if err != nil || res.StopReason != c.stop || tool.runs.Load() != c.runs || s.Count() != c.calls {
					t.Fatalf("stop %q, %d runs, %d calls, %v; want %q, %d, %d", res.StopReason, tool.runs.Load(), s.Count(), err,
						c.stop, c.runs, c.calls)
				}
				for _, r := range s.Requests() {
					paired(t, r)
				}
				sent := s.Requests()
				if got := sent[len(sent)-1].LastText(); !strings.Contains(got, c.says) {
					t.Errorf("the model got %q, want %q", got, c.says)
				}
			})
		}
	})
}

// paired fails unless each call has exactly one result, right behind it.
func paired(t *testing.T, r *modeltest.Request) {
	t.Helper()
	p, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, m := range p.Messages {
		blocks, err := m.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		if m.Role() == agent.Assistant && len(open) > 0 {
			t.Errorf("calls without results: %v", open)
		}
		for _, b := range blocks {
			switch b.Type {
			case "tool_use":
				if open[b.ID] || b.ID == "" {
					t.Errorf("the ID %q is used twice", b.ID)
				}
				open[b.ID] = true
			case "tool_result":
				if !open[b.ToolUseID] {
					t.Errorf("a result for %q, which nobody called", b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without results: %v", open)
	}
}

// The same call for ever ends.
func TestLoopEndless(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		m, s := d.asked(t, modeltest.Call("Bash", map[string]any{"command": "true"}))
		l, _ := loopOver(t, m)
		_, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("go"))
		var limited *agent.LimitError
		if !errors.As(err, &limited) || s.Count() > 60 {
			t.Errorf("%d calls, then %v", s.Count(), err)
		}
	})
}

// A conversation goes on with the model of another provider: what the first one
// thought is not shown to the second, which would refuse it, and all else is.
func TestSwitch(t *testing.T) {
	for _, from := range dialects() {
		for _, to := range dialects() {
			t.Run(from.name+"-"+to.name, func(t *testing.T) {
				first, _ := from.asked(t, rich(), modeltest.Text("one"))
				l, _ := loopOver(t, first)
				if _, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("go")); err != nil {
					t.Fatal(err)
				}
				second, s := to.asked(t, modeltest.Text("two"))
				l, err := agent.NewLoop(agent.Config{Model: second, ModelName: "m"}, l.Messages())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.Turn(waittest.Context(t, patience), agent.TextBlock("again")); err != nil {
					t.Fatal(err)
				}
				sent := s.Requests()[0]
				paired(t, sent)
				body := string(sent.Body)
				if signed := from.signs && to.signs; strings.Contains(body, "hm hm") != signed ||
					strings.Contains(body, `"blob"`) != signed {
					t.Errorf("thoughts in %s", body)
				}
				for _, want := range []string{"世界", "toolu_1", "echo ✓", "ran {", "one", "again"} {
					if !strings.Contains(body, want) {
						t.Errorf("%q is missing in %s", want, body)
					}
				}
			})
		}
	}
}
