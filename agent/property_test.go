package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
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

// world is a conversation that is held in several runs of the program, and the
// mail that is sent to it all the while.
type world struct {
	t    *testing.T
	r    *rapid.T
	path string
	mail *agenttest.Mail
	sent int64
}

// Whenever a conversation is summed up, by itself, by hand or after an overflow,
// every request stays valid, each letter is told once, and the file opens as
// what was in memory.
func TestCompactionAtAnyPoint(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		w := &world{t: t, r: r, path: filepath.Join(dir, fmt.Sprint(n)), mail: &agenttest.Mail{}}
		for range rapid.IntRange(1, 3).Draw(r, "runs") {
			w.run()
		}
		w.letters()
	})
}

func (w *world) run() {
	tr, h, err := agent.OpenTranscript(w.path, agent.Meta{})
	if err != nil {
		w.r.Fatal(err)
	}
	defer tr.Close()
	l, err := agent.NewLoop(agent.Config{
		Model: agenttest.ModelFunc(w.reply), Transcript: tr, Mail: w.mail, MaxTurns: 6, Reminders: w,
		Compaction: &agent.Compaction{Window: 1000, Restore: func(context.Context) string { return "restored" }},
		Tools: []agent.Tool{tool{name: "T", parallel: true}, tool{name: "Mail", call: func(context.Context, agent.Call) (agent.Output, error) {
			w.send()
			return agent.Output{Text: "sent"}, nil
		}}},
	}, h.Messages)
	if err != nil {
		w.r.Fatal(err)
	}
	for range rapid.IntRange(1, 4).Draw(w.r, "steps") {
		switch rapid.IntRange(0, 3).Draw(w.r, "step") {
		case 0:
			_ = l.Compact(context.Background(), "")
		case 1:
			w.send()
		default:
			_, _ = l.Turn(context.Background(), agent.TextBlock("go"))
		}
		w.valid(l.Messages())
	}
	totals, want := l.Totals(), l.Messages()
	_ = tr.Close()
	tr, h, err = agent.OpenTranscript(w.path, agent.Meta{})
	if err != nil {
		w.r.Fatal(err)
	}
	defer tr.Close()
	same(w.t, h.Messages, want)
	if h.Totals != totals || h.Skipped != 0 {
		w.r.Fatalf("totals %+v, reopened %+v, skipped %d", totals, h.Totals, h.Skipped)
	}
}

func (w *world) send() {
	w.sent++
	w.mail.Send(agent.MailMessage{Seq: w.sent, Text: fmt.Sprintf("letter %d.", w.sent)})
}

func (w *world) Due(_ context.Context, start bool) []string {
	return rapid.SampledFrom([][]string{nil, {"remember"}, {"remember", "and this"}}).Draw(w.r, "due")
}
func (w *world) Forgotten() {}

func (w *world) reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	w.valid(req.Messages)
	usage := agent.Usage{InputTokens: rapid.Int64Range(0, 1200).Draw(w.r, "context"), OutputTokens: 3}
	switch rapid.IntRange(0, 9).Draw(w.r, "kind") {
	case 0:
		return nil, &agent.ModelError{Kind: "context_overflow", Text: "too long"}
	case 1:
		return nil, &agent.CutError{Usage: usage}
	case 2:
		return &agent.Reply{StopReason: "refusal", Usage: usage}, nil
	case 3, 4, 5:
		blocks := []agent.Block{agenttest.ToolUse(rapid.SampledFrom([]string{"a", "b", ""}).Draw(w.r, "id"), rapid.SampledFrom([]string{"T", "Mail", "None"}).Draw(w.r, "tool"), `{}`)}
		if rapid.Bool().Draw(w.r, "two") {
			blocks = append(blocks, agenttest.ToolUse("c", "T", `{}`))
		}
		return &agent.Reply{Blocks: blocks, StopReason: "tool_use", Usage: usage}, nil
	}
	return &agent.Reply{Blocks: []agent.Block{agent.TextBlock("text")}, StopReason: "end_turn", Usage: usage}, nil
}

func (w *world) valid(messages []agent.Message) {
	check(w.t, messages)
	if len(messages) > 0 && messages[0].Role() != agent.User {
		w.t.Error("the conversation begins with a reply")
	}
	for i := 1; i < len(messages); i++ {
		if messages[i].Role() == agent.Assistant && messages[i-1].Role() == agent.Assistant {
			w.t.Errorf("replies %d and %d follow each other", i-1, i)
		}
	}
	if w.t.Failed() {
		w.r.FailNow()
	}
}

// letters fails unless each letter is in the file once, and acknowledged, or owed.
func (w *world) letters() {
	records, err := agent.Tail(w.path, 100_000)
	if err != nil {
		w.r.Fatal(err)
	}
	told := map[int64]int{}
	for _, rec := range records {
		if rec.Boundary != nil {
			continue // it lists those that were told before
		}
		all := strings.Join(contents(w.t, rec.Message), " ")
		for _, seq := range rec.Mail {
			told[seq]++
			if !strings.Contains(all, fmt.Sprintf("letter %d.", seq)) {
				w.r.Fatalf("letter %d is not in the message that should hold it", seq)
			}
		}
	}
	acked := w.mail.Acked()
	owed, _ := w.mail.Take(context.Background())
	for seq := int64(1); seq <= w.sent; seq++ {
		isOwed := slices.ContainsFunc(owed, func(l agent.MailMessage) bool { return l.Seq == seq })
		if slices.Contains(acked, seq) == isOwed || told[seq] > 1 || told[seq] == 0 && !isOwed {
			w.r.Fatalf("letter %d: told %d times, owed %v", seq, told[seq], isOwed)
		}
	}
}
