package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// talker answers summaries and all else by two functions, and keeps every
// request.
type talker struct {
	reply, summary func(n int, req *agent.Request) (*agent.Reply, error)
	replies, sums  []*agent.Request
}

func (m *talker) Reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	kept := *req
	if req.Purpose == "compaction" {
		m.sums = append(m.sums, &kept)
		return m.summary(len(m.sums)-1, req)
	}
	m.replies = append(m.replies, &kept)
	return m.reply(len(m.replies)-1, req)
}

func saying(text string, context, out int64) *agent.Reply {
	return &agent.Reply{Blocks: []agent.Block{agent.TextBlock(text)}, StopReason: "end_turn", Usage: agent.Usage{InputTokens: context, OutputTokens: out}}
}

func summed(text string) func(int, *agent.Request) (*agent.Reply, error) {
	return func(int, *agent.Request) (*agent.Reply, error) { return saying(text, 900, 40), nil }
}

func tooLong() error {
	return &agent.ModelError{Status: 400, Kind: "context_overflow", Text: "prompt is too long"}
}

// uses is a reply with one call; the context has the tokens given.
func uses(id string, context int64) *agent.Reply {
	return &agent.Reply{Blocks: []agent.Block{agenttest.ToolUse(id, "T", `{}`)}, StopReason: "tool_use", Usage: agent.Usage{InputTokens: context, OutputTokens: 5}}
}

func TestCompactionByShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 3, Text: "letter three"})
	model := &talker{summary: summed("the sum of it"), reply: func(n int, _ *agent.Request) (*agent.Reply, error) {
		switch n {
		case 0:
			return uses("a", 500), nil
		case 1:
			mail.Send(agent.MailMessage{Seq: 5, Text: "letter five"})
			return uses("b", 800), nil // 0.8 of 1000
		}
		return saying("done", 100, 5), nil
	}}
	rem := &reminders{due: []string{"old", "older", "oldest", "again"}}
	m := &meter{t: t}
	var events []string
	var before, after []string
	l := newLoop(t, agent.Config{
		Model: model, ModelName: "m", System: "system", Transcript: tr, Mail: mail, Meter: m, Reminders: rem, Tools: []agent.Tool{tool{name: "T"}},
		Compaction: &agent.Compaction{Window: 1000,
			Restore: func(context.Context) string { return "tasks that run" },
			Before: func(_ context.Context, trigger, instructions string) (string, error) {
				before = append(before, trigger+instructions)
				return "heed this", nil
			},
			After: func(_ context.Context, trigger, summary string) { after = append(after, trigger+" "+summary) },
		},
		On: func(e agent.Event) {
			switch e.Kind {
			case agent.CompactStartEvent:
				events = append(events, "start "+e.Compaction.Trigger)
			case agent.CompactEvent:
				events = append(events, fmt.Sprint("done ", e.Compaction.Before, e.Compaction.Summary, e.Err))
			case agent.ReplyDoneEvent:
				events = append(events, "reply")
			}
		},
	})
	res, err := ask(l, "the prompt")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(events, "; "); got != "reply; reply; start auto; done 800the sum of it<nil>; reply" {
		t.Errorf("events %s", got)
	}
	// The request for the summary begins with the bytes of the one before it.
	last, sum := model.replies[1], model.sums[0]
	for i, m := range last.Messages {
		if !bytes.Equal(m.Encoded(), sum.Messages[i].Encoded()) {
			t.Errorf("message %d of the request for the summary differs", i)
		}
	}
	if sum.System != last.System || len(sum.Tools) != 1 || !bytes.Contains(sum.Messages[len(sum.Messages)-1].Encoded(), []byte("heed this")) {
		t.Errorf("request for the summary %+v", sum)
	}
	check(t, sum.Messages)
	// The conversation is the summary, and what nobody has answered.
	now := model.replies[2].Messages
	if len(now) != 1 || now[0].Role() != agent.User {
		t.Fatalf("%d messages after the summary", len(now))
	}
	got := contents(t, now[0])
	if len(got) != 5 || !strings.Contains(got[0], "<summary>\nthe sum of it\n</summary>") ||
		!slices.Equal(got[1:], []string{"tasks that run", "again (start)", "oldest", "letter five"}) {
		t.Errorf("first message %q", got)
	}
	if rem.forgotten != 1 || !slices.Equal(before, []string{"auto"}) || !slices.Equal(after, []string{"auto the sum of it"}) {
		t.Errorf("told %d, %q, %q", rem.forgotten, before, after)
	}
	// The summary counts by its cost, not as a reply.
	totals := l.Totals()
	if totals.Turns != 3 || totals.Context != 100 || totals.Usage.OutputTokens != 5+5+40+5 || res.Turns != 3 || res.Usage != totals.Usage || m.reserved != 4 || m.open != 0 {
		t.Errorf("totals %+v, result %+v, %d reserved", totals, res, m.reserved)
	}
	want := l.Messages()
	_ = tr.Close()
	tr, h := open(t, path)
	same(t, h.Messages, want)
	if h.Totals != totals || !slices.Equal(h.Mail, []int64{3, 5}) || !tr.Holds(3) || !tr.Holds(5) || h.Meta.AgentName != "scout" {
		t.Errorf("reopened: %+v, letters %v", h.Totals, h.Mail)
	}
	data, _ := os.ReadFile(path)
	for _, text := range []string{`"the prompt"`, `"subtype":"compact_boundary","trigger":"auto","tokens_before":800`} {
		if !bytes.Contains(data, []byte(text)) {
			t.Errorf("%s is not in the file", text)
		}
	}
}

func same(t testing.TB, got, want []agent.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].Encoded(), want[i].Encoded()) || got[i].Role() != want[i].Role() {
			t.Fatalf("message %d is %s\nwant %s", i, got[i].Encoded(), want[i].Encoded())
		}
	}
}

// The prompt that a turn begins with is not lost when it comes to a full window.
func TestCompactionKeepsThePrompt(t *testing.T) {
	model := &talker{summary: summed("sum"), reply: func(n int, _ *agent.Request) (*agent.Reply, error) {
		return saying("answer", []int64{950, 10}[n], 1), nil
	}}
	l := newLoop(t, agent.Config{Model: model, Compaction: &agent.Compaction{Window: 1000}})
	image := agent.Block{Type: "image", Source: json.RawMessage(`{"type":"base64","media_type":"image/png","data":"QUJD"}`)}
	for _, prompt := range []string{"one", "two"} {
		if _, err := l.Turn(context.Background(), agent.TextBlock(prompt), image); err != nil {
			t.Fatal(err)
		}
	}
	blocks, _ := l.Messages()[0].Blocks()
	if len(l.Messages()) != 2 || len(blocks) != 3 || blocks[1].Text != "two" || blocks[2].Type != "image" || len(model.sums) != 1 {
		t.Errorf("%d messages, first %+v", len(l.Messages()), blocks)
	}
}

// Where a summary does not help it is not made again and again.
func TestCompactionThatDoesNotHelp(t *testing.T) {
	model := &talker{summary: summed("sum"), reply: func(n int, _ *agent.Request) (*agent.Reply, error) {
		if n == 19 {
			return saying("done", 990, 1), nil
		}
		return uses(fmt.Sprint("c", n), 900), nil
	}}
	n := 0
	l := newLoop(t, agent.Config{Model: model, Compaction: &agent.Compaction{Window: 1000}, Tools: []agent.Tool{tool{name: "T",
		call: func(context.Context, agent.Call) (agent.Output, error) {
			n++
			return agent.Output{Text: fmt.Sprint(n)}, nil
		}}}})
	if _, err := ask(l, "go"); err != nil || len(model.sums) != 1 {
		t.Errorf("%d summaries, %v", len(model.sums), err)
	}
}

func TestCompactionFails(t *testing.T) {
	boom := errors.New("boom")
	reply := func(r *agent.Reply, err error) func(int, *agent.Request) (*agent.Reply, error) {
		return func(int, *agent.Request) (*agent.Reply, error) { return r, err }
	}
	text := func(stop, text string) *agent.Reply {
		return &agent.Reply{Blocks: []agent.Block{agent.TextBlock(text)}, StopReason: stop, Usage: agent.Usage{OutputTokens: 3}}
	}
	for name, c := range map[string]struct {
		summary func(int, *agent.Request) (*agent.Reply, error)
		want    string // in the error; empty: it is done
		kept    string // in the summary
	}{
		"empty":    {summary: reply(text("end_turn", " "), nil), want: "gave no summary"},
		"refused":  {summary: reply(text("refusal", "no"), nil), want: "refusal"},
		"calls":    {summary: reply(&agent.Reply{Blocks: []agent.Block{agenttest.ToolUse("x", "T", `{}`)}, StopReason: "tool_use"}, nil), want: "gave no summary"},
		"failure":  {summary: reply(nil, boom), want: "boom"},
		"cut":      {summary: reply(nil, &agent.CutError{Usage: agent.Usage{OutputTokens: 3}, Err: boom}), want: "boom"},
		"text":     {summary: reply(&agent.Reply{Blocks: []agent.Block{agent.TextBlock("sum"), agenttest.ToolUse("x", "T", `{}`)}, StopReason: "tool_use"}, nil), kept: "sum"},
		"too-long": {summary: reply(text("max_tokens", "half"), nil), kept: "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.jsonl")
			tr, _ := open(t, path)
			model := &talker{summary: c.summary, reply: func(int, *agent.Request) (*agent.Reply, error) { return saying("a", 10, 1), nil }}
			l := newLoop(t, agent.Config{Model: model, Transcript: tr, Tools: []agent.Tool{tool{name: "T",
				call: func(context.Context, agent.Call) (agent.Output, error) {
					t.Error("a call ran")
					return agent.Output{}, nil
				}}}})
			if _, err := ask(l, "go"); err != nil {
				t.Fatal(err)
			}
			was, cost := l.Messages(), l.Totals().Usage.OutputTokens
			err := l.Compact(context.Background(), "short, please")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v", err)
			}
			if !bytes.Contains(model.sums[0].Messages[2].Encoded(), []byte("short, please")) {
				t.Error("the instructions were not told")
			}
			if c.want != "" {
				same(t, l.Messages(), was)
			} else if got := contents(t, l.Messages()[0]); len(got) != 1 || !strings.Contains(got[0], c.kept) {
				t.Errorf("first message %q", got)
			}
			if wants := map[string]int64{"empty": 3, "refused": 3, "cut": 3, "too-long": 3}[name]; l.Totals().Usage.OutputTokens-cost != wants || l.Totals().Turns != 1 {
				t.Errorf("totals %+v", l.Totals())
			}
			want, totals := l.Messages(), l.Totals()
			_ = tr.Close()
			if _, h := open(t, path); h.Totals != totals {
				t.Errorf("totals %+v, reopened %+v", totals, h.Totals)
			} else {
				same(t, h.Messages, want)
			}
		})
	}
}

func TestCompactionIsPrevented(t *testing.T) {
	no := func(context.Context, string, string) (string, error) { return "", errors.New("not now") }
	model := &talker{summary: summed("sum"), reply: func(int, *agent.Request) (*agent.Reply, error) { return saying("a", 900, 1), nil }}
	l := newLoop(t, agent.Config{Model: model, Compaction: &agent.Compaction{Window: 1000, Before: no}})
	for range 2 {
		if _, err := ask(l, "go"); err != nil {
			t.Fatal(err)
		}
	}
	res, err := ask(l, "go")
	if err != nil || len(model.sums) != 0 || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "not now") {
		t.Errorf("%d summaries, %v, warnings %q", len(model.sums), err, res.Warnings)
	}
	if err := l.Compact(context.Background(), ""); err == nil || len(model.sums) != 0 {
		t.Errorf("by hand: %v", err)
	}
}

func TestCompactionByHand(t *testing.T) {
	model := &talker{summary: summed("sum"), reply: func(int, *agent.Request) (*agent.Reply, error) { return saying("a", 10, 1), nil }}
	var l *agent.Loop
	busy := errors.New("not asked")
	rem := &reminders{}
	l = newLoop(t, agent.Config{Model: model, Reminders: rem, Tools: []agent.Tool{tool{name: "T"}}, On: func(e agent.Event) {
		if e.Kind == agent.TurnStartEvent {
			busy = l.Compact(context.Background(), "")
		}
	}}, agent.NewMessage(agent.User, agent.TextBlock("x")), agent.NewMessage(agent.Assistant, agenttest.ToolUse("lost", "T", `{}`)))
	if err := l.Compact(context.Background(), ""); err != nil { // the lost call gets its result first
		t.Fatal(err)
	}
	check(t, model.sums[0].Messages)
	if len(l.Messages()) != 1 || l.Totals().Context != 40 || rem.forgotten != 1 {
		t.Errorf("%d messages, totals %+v", len(l.Messages()), l.Totals())
	}
	if _, err := ask(l, "on"); err != nil || !errors.Is(busy, agent.ErrBusy) {
		t.Errorf("%v, within a turn %v", err, busy)
	}
	// A second summary takes the place of the first.
	if err := l.Compact(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	if err := l.Compact(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, l.Messages()[0]); len(got) != 1 {
		t.Errorf("first message %q", got)
	}
	none := newLoop(t, agent.Config{Model: model})
	if err := none.Compact(context.Background(), ""); err == nil {
		t.Error("nothing was summed up")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(busy)
	if err := l.Compact(ctx, ""); !errors.Is(err, busy) {
		t.Errorf("interrupted: %v", err)
	}
}

// A11: overflow, overflow of the summary, overflow again: a bounded number of
// calls, and a text that says what to do.
func TestA11Overflow(t *testing.T) {
	big := strings.Repeat("many words ", 30_000)
	for name, c := range map[string]struct {
		replies, summaries int // that overflow
		none               bool
		calls, sums        int
		want               string
	}{
		"once":      {replies: 1, calls: 3, sums: 1},
		"summary":   {replies: 1, summaries: 1, calls: 3, sums: 2},
		"summaries": {replies: 9, summaries: 9, calls: 2, sums: 3, want: "does not fit the window"},
		"again":     {replies: 9, calls: 3, sums: 1, want: "even summed up"},
		"nobody":    {replies: 9, none: true, calls: 2, want: "prompt is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			model := &talker{
				summary: func(n int, req *agent.Request) (*agent.Reply, error) {
					check(t, req.Messages)
					if n < c.summaries {
						return nil, tooLong()
					}
					return saying("sum", 10, 1), nil
				},
				reply: func(n int, req *agent.Request) (*agent.Reply, error) {
					check(t, req.Messages)
					switch {
					case n == 0:
						return uses("a", 10), nil
					case n <= c.replies:
						return nil, tooLong()
					}
					return saying("end", 10, 1), nil
				},
			}
			cfg := agent.Config{Model: model, Compaction: &agent.Compaction{Window: 50_000}, Tools: []agent.Tool{tool{name: "T",
				call: func(context.Context, agent.Call) (agent.Output, error) { return agent.Output{Text: big}, nil }}}}
			if c.none {
				cfg.Compaction = nil
			}
			l := newLoop(t, cfg)
			_, err := ask(l, "the prompt "+strings.Repeat("and more ", 1000))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if e := (*agent.ModelError)(nil); err != nil && !errors.As(err, &e) {
				t.Errorf("%v does not wrap the model's error", err)
			}
			if len(model.replies) != c.calls || len(model.sums) != c.sums {
				t.Errorf("%d calls, %d summaries; want %d, %d", len(model.replies), len(model.sums), c.calls, c.sums)
			}
			size := 0
			for i, req := range model.sums {
				was := size
				size = 0
				for _, m := range req.Messages {
					size += len(m.Encoded())
				}
				if i > 0 && size >= was || size > 160_000 {
					t.Errorf("request %d for a summary has %d bytes, the one before %d", i, size, was)
				}
				if i == 0 && !bytes.Contains(req.Messages[0].Encoded(), []byte("the prompt")) {
					t.Error("the prompt was cut before the long result")
				}
			}
			check(t, l.Messages())
		})
	}
}

// A11: one message that is over the limit by itself ends the turn, and the next
// one goes on without it.
func TestA11OneMessageOverTheLimit(t *testing.T) {
	fits := func(req *agent.Request) bool {
		size := 0
		for _, m := range req.Messages {
			size += len(m.Encoded())
		}
		return size < 100_000
	}
	guarded := func(n int, req *agent.Request) (*agent.Reply, error) {
		if !fits(req) {
			return nil, tooLong()
		}
		return saying("ok", 10, 1), nil
	}
	model := &talker{reply: guarded, summary: guarded}
	l := newLoop(t, agent.Config{Model: model, Compaction: &agent.Compaction{Window: 25_000}})
	if _, err := ask(l, strings.Repeat("x ", 200_000)); err == nil || !strings.Contains(err.Error(), "even summed up") {
		t.Fatalf("error %v", err)
	}
	if res, err := ask(l, "short"); err != nil || res.Text != "ok" {
		t.Errorf("%+v, %v", res, err)
	}
	if len(model.replies) != 4 {
		t.Errorf("%d calls", len(model.replies))
	}
}

// A prompt that no provider reads is not summed up over and over.
func TestCompactionOfAHugePrompt(t *testing.T) {
	model := &talker{summary: summed("sum"), reply: func(n int, _ *agent.Request) (*agent.Reply, error) {
		if n == 0 {
			return uses("a", 1), nil
		}
		return saying("end", 1, 1), nil
	}}
	l := newLoop(t, agent.Config{Model: model, Compaction: &agent.Compaction{MaxBytes: 1 << 20}, Tools: []agent.Tool{tool{name: "T"}}})
	if _, err := ask(l, strings.Repeat("x", 2<<20)); err != nil || len(model.sums) != 1 || len(model.replies) != 2 {
		t.Errorf("%d summaries, %d calls, %v", len(model.sums), len(model.replies), err)
	}
}

// A conversation far beyond any window goes on after a resume.
func TestCompactionOfAHugeConversation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	body := strings.Repeat("some words of a tool's output\n", 130)
	for i := range 1500 {
		id := fmt.Sprint("c", i)
		add(t, tr, agent.Record{Message: agent.NewMessage(agent.Assistant, agent.TextBlock(fmt.Sprint("step ", i)), agenttest.ToolUse(id, "T", `{}`))},
			agent.Record{Message: agent.NewMessage(agent.User, agent.ToolResultBlock(id, body+body, false))})
	}
	_ = tr.Close()
	tr, h := open(t, path)
	model := &talker{summary: summed("sum"), reply: func(_ int, req *agent.Request) (*agent.Reply, error) { return saying("on", 10, 1), nil }}
	l := newLoop(t, agent.Config{Model: model, Transcript: tr, Compaction: &agent.Compaction{Window: 50_000, MaxBytes: 4 << 20}}, h.Messages...)
	if _, err := ask(l, "go on"); err != nil {
		t.Fatal(err)
	}
	// Nobody is sent 12 MB where 4 are the limit.
	size := 0
	for _, m := range model.sums[0].Messages {
		size += len(m.Encoded())
	}
	if len(model.sums) != 1 || size > 152_000 || size < 75_000 {
		t.Errorf("%d summaries, the first of %d bytes", len(model.sums), size)
	}
	check(t, model.sums[0].Messages)
	if all, _ := json.Marshal(model.sums[0].Messages); !bytes.Contains(all, []byte("step 1499")) || bytes.Contains(all, []byte(`"step 1"`)) || !bytes.Contains(all, []byte("earlier messages left out")) {
		t.Error("the oldest must go first, and be named")
	}
	_ = tr.Close()
	if _, h := open(t, path); len(h.Messages) != 2 {
		t.Errorf("%d messages after the summary", len(h.Messages))
	}
}

// A boundary whose writing was cut off does not count, and the conversation is
// whole.
func TestTornBoundary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	add(t, tr, say(agent.User, "one"), say(agent.Assistant, "two"))
	before, _ := os.ReadFile(path)
	add(t, tr, agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock("sum")), Usage: &agent.Usage{OutputTokens: 1}, Boundary: &agent.Boundary{Trigger: "auto"}})
	_ = tr.Close()
	data, _ := os.ReadFile(path)
	for cut := len(before); cut <= len(data); cut++ {
		at := filepath.Join(t.TempDir(), "cut.jsonl")
		if err := os.WriteFile(at, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		tr, h := open(t, at)
		_ = tr.Close()
		if want := map[bool]int{true: 1, false: 2}[cut == len(data)]; len(h.Messages) != want {
			t.Fatalf("cut at %d of %d: %d messages", cut, len(data), len(h.Messages))
		}
	}
}

func TestBoundaryMustBeTheUsers(t *testing.T) {
	tr, _ := open(t, filepath.Join(t.TempDir(), "t.jsonl"))
	r := say(agent.Assistant, "x")
	r.Boundary = &agent.Boundary{}
	if err := tr.Append(r); err == nil {
		t.Error("accepted")
	}
}
