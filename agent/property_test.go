package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/agent/agenttest"
	"pgregory.net/rapid"
)

// Whatever model, tools, gate and user do, each request and the file hold a
// valid history, and a reopened conversation goes on.
func TestHistoryIsAlwaysValid(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		for range rapid.IntRange(1, 3).Draw(r, "runs") {
			oneRun(t, r, path)
		}
	})
}

func oneRun(t *testing.T, r *rapid.T, path string) {
	tr, h, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		r.Fatal(err)
	}
	defer tr.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ids := rapid.SampledFrom([]string{"", "a", "b", "c", "bad id", "d"})
	names := rapid.SampledFrom([]string{"T", "t", "Boom", "Err", "Kill", "none", ""})
	inputs := rapid.SampledFrom([]string{"", "{}", `{"a":1}`, "null", `{"a`})
	stops := rapid.SampledFrom([]string{"end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", ""})
	model := agenttest.ModelFunc(func(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
		check(t, req.Messages)
		if t.Failed() {
			r.FailNow()
		}
		var blocks []agent.Block
		for range rapid.IntRange(0, 4).Draw(r, "blocks") {
			if rapid.Bool().Draw(r, "text") {
				blocks = append(blocks, agent.TextBlock(rapid.SampledFrom([]string{"", " ", "hello"}).Draw(r, "words")))
			} else {
				blocks = append(blocks, agenttest.ToolUse(ids.Draw(r, "id"), names.Draw(r, "name"), inputs.Draw(r, "input")))
			}
		}
		if rapid.IntRange(0, 9).Draw(r, "cut") == 0 {
			return nil, &agent.CutError{Whole: blocks}
		}
		return &agent.Reply{Blocks: blocks, StopReason: stops.Draw(r, "stop")}, nil
	})
	call := func(f func() (agent.Output, error)) func(context.Context, agent.Call) (agent.Output, error) {
		return func(context.Context, agent.Call) (agent.Output, error) { return f() }
	}
	cfg := agent.Config{
		Model: model, Transcript: tr, MaxTurns: 4,
		Tools: []agent.Tool{
			tool{name: "T"},
			tool{name: "Boom", call: call(func() (agent.Output, error) { panic("boom") })},
			tool{name: "Err", call: call(func() (agent.Output, error) { return agent.Output{}, errors.New("err") })},
			tool{name: "Kill", call: call(func() (agent.Output, error) {
				cancel(errors.New("cancelled"))
				return agent.Output{}, nil
			})},
		},
		Gate: gate(func(c agent.Call) (agent.Decision, error) {
			return agent.Decision{Allow: c.ID != "b", Input: json.RawMessage(`{}`)}, nil
		}),
	}
	l, err := agent.NewLoop(cfg, h.Messages)
	if err != nil {
		r.Fatal(err)
	}
	for range rapid.IntRange(1, 3).Draw(r, "turns") {
		_, _ = l.Turn(ctx, agent.TextBlock("go"))
		check(t, l.Messages())
	}
}

func TestRepairAlwaysGivesAValidHistory(t *testing.T) {
	id := rapid.SampledFrom([]string{"", "a", "b", "c"})
	rapid.Check(t, func(r *rapid.T) {
		var history []agent.Message
		for range rapid.IntRange(0, 8).Draw(r, "messages") {
			role := rapid.SampledFrom([]agent.Role{agent.User, agent.Assistant}).Draw(r, "role")
			blocks := []agent.Block{}
			for range rapid.IntRange(0, 3).Draw(r, "blocks") {
				switch {
				case rapid.Bool().Draw(r, "text"):
					blocks = append(blocks, agent.TextBlock("x"))
				case role == agent.User:
					blocks = append(blocks, agent.ToolResultBlock(id.Draw(r, "id"), "r", false))
				default:
					blocks = append(blocks, agenttest.ToolUse(id.Draw(r, "id"), "T", `{}`))
				}
			}
			if len(blocks) == 0 {
				blocks = append(blocks, agent.TextBlock("x"))
			}
			history = append(history, agent.NewMessage(role, blocks...))
		}
		repaired, added, err := agent.Repair(history)
		if err != nil {
			r.Fatal(err)
		}
		check(t, repaired)
		again, more, err := agent.Repair(repaired)
		if err != nil || len(more) > 0 || len(again) != len(repaired) {
			r.Fatalf("repairing a repaired history of %d added %d of %d: %v", len(history), len(more), len(added), err)
		}
	})
}
