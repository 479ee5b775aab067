package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

type tool struct {
	name     string
	aliases  []string
	parallel bool
	call     func(ctx context.Context, c agent.Call) (agent.Output, error)
}

func (t tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: t.name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}
func (t tool) Aliases() []string { return t.aliases }
func (t tool) Parallel() bool    { return t.parallel }
func (t tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	if t.call == nil {
		return agent.Output{Text: "ok " + c.ID}, nil
	}
	return t.call(ctx, c)
}

type gate func(agent.Call) (agent.Decision, error)

func (g gate) Check(_ context.Context, c agent.Call) (agent.Decision, error) { return g(c) }

func newLoop(t *testing.T, cfg agent.Config, history ...agent.Message) *agent.Loop {
	t.Helper()
	l, err := agent.NewLoop(cfg, history)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ask(l *agent.Loop, text string) (agent.TurnResult, error) {
	return l.Turn(context.Background(), agent.TextBlock(text))
}

// check fails unless every call has exactly one result in the message after it,
// no result stands alone, and no ID comes twice.
func check(t testing.TB, messages []agent.Message) {
	t.Helper()
	ids := map[string]bool{}
	var open []string
	for i, m := range messages {
		blocks, err := m.Blocks()
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if len(blocks) == 0 {
			t.Fatalf("message %d is empty", i)
		}
		var got, next []string
		for _, b := range blocks {
			switch b.Type {
			case "tool_use":
				if b.ID == "" || ids[b.ID] {
					t.Fatalf("message %d: call ID %q is missing or not unique", i, b.ID)
				}
				if !strings.HasPrefix(string(b.Input), "{") {
					t.Fatalf("message %d: input %s", i, b.Input)
				}
				ids[b.ID] = true
				next = append(next, b.ID)
			case "tool_result":
				got = append(got, b.ToolUseID)
			case "text":
				if strings.TrimSpace(b.Text) == "" {
					t.Fatalf("message %d: empty text", i)
				}
			}
		}
		if !slices.Equal(open, got) {
			t.Fatalf("message %d: results %q for calls %q", i, got, open)
		}
		open = next
	}
	if len(open) > 0 {
		t.Fatalf("calls %q without results at the end", open)
	}
}

// results are the tool results of the last message that has any.
func results(t testing.TB, l *agent.Loop) (texts []string, failed []bool) {
	t.Helper()
	messages := l.Messages()
	for i := len(messages) - 1; i >= 0 && texts == nil; i-- {
		blocks, _ := messages[i].Blocks()
		for _, b := range blocks {
			if b.Type == "tool_result" {
				var s string
				if err := json.Unmarshal(b.Content, &s); err != nil {
					t.Fatal(err)
				}
				texts, failed = append(texts, s), append(failed, b.IsError)
			}
		}
	}
	return texts, failed
}

func TestTurnRunsToolsAndReturnsTheLastText(t *testing.T) {
	var seen []string
	model := agenttest.Steps(
		agenttest.Use(agenttest.ToolUse("a", "Look", `{"n":1}`), agenttest.ToolUse("b", "Look", `{"n":2}`)),
		agenttest.Say("found it"))
	l := newLoop(t, agent.Config{Model: model, Tools: []agent.Tool{tool{name: "Look", call: func(_ context.Context, c agent.Call) (agent.Output, error) {
		seen = append(seen, string(c.Input))
		return agent.Output{Text: "r" + c.ID}, nil
	}}}})
	res, err := ask(l, "look")
	if err != nil {
		t.Fatal(err)
	}
	if res.Text != "found it" || res.Reason != "end_turn" || res.Turns != 2 || res.ToolUses != 2 {
		t.Errorf("result %+v", res)
	}
	if !slices.Equal(seen, []string{`{"n":1}`, `{"n":2}`}) {
		t.Errorf("calls %q", seen)
	}
	if got, _ := results(t, l); !slices.Equal(got, []string{"ra", "rb"}) {
		t.Errorf("results %q", got)
	}
	// Input counts once, output is summed (PT-03 to PT-05).
	if got := l.Totals(); got.Tokens() != 10+5+5 || got.Turns != 2 || got.ToolUses != 2 {
		t.Errorf("totals %+v", got)
	}
	check(t, l.Messages())
}

func TestParallelCallsOverlapAndSerialOnesDoNot(t *testing.T) {
	for _, parallel := range []bool{true, false} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			var mu sync.Mutex
			live, most := 0, 0
			both := make(chan struct{})
			run := func(ctx context.Context, _ agent.Call) (agent.Output, error) {
				mu.Lock()
				live++
				most = max(most, live)
				if live == 2 {
					close(both)
				}
				mu.Unlock()
				if parallel {
					select {
					case <-both:
					case <-time.After(10 * time.Second):
						t.Error("the calls do not overlap")
						return agent.Refuse("alone"), nil
					}
				} else {
					runtime.Gosched()
				}
				mu.Lock()
				live--
				mu.Unlock()
				return agent.Output{Text: "done"}, nil
			}
			l := newLoop(t, agent.Config{
				Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "X", `{}`), agenttest.ToolUse("b", "X", `{"k":1}`)), agenttest.Say("end")),
				Tools: []agent.Tool{tool{name: "X", parallel: parallel, call: run}},
			})
			if _, err := ask(l, "go"); err != nil {
				t.Fatal(err)
			}
			want := 1
			if parallel {
				want = 2
			}
			if most != want {
				t.Errorf("%d calls at a time, want %d", most, want)
			}
		})
	}
}

func TestBadCallsGetErrorResults(t *testing.T) {
	crash := func(context.Context, agent.Call) (agent.Output, error) { panic("boom") }
	quit := func(context.Context, agent.Call) (agent.Output, error) { runtime.Goexit(); return agent.Output{}, nil }
	tools := []agent.Tool{
		tool{name: "Read", aliases: []string{"view"}}, tool{name: "Crash", call: crash}, tool{name: "Quit", call: quit},
	}
	for name, c := range map[string]struct {
		tool, input string
		want        string // in the result
		failed      bool
	}{
		"exact":    {"Read", `{}`, "ok", false},
		"folded":   {"rEAD", `{}`, "ok", false},
		"alias":    {"View", `{}`, "ok", false},
		"noinput":  {"Read", ``, "ok", false},
		"unknown":  {"constructor", `{}`, "Crash, Quit, Read", true},
		"odd-name": {"no such/tool\n", `{}`, "there is no tool", true},
		"no-name":  {"", `{}`, "there is no tool", true},
		"invalid":  {"Read", `{"a":`, "JSON object", true},
		"null":     {"Read", `null`, "JSON object", true},
		"list":     {"Read", `[1]`, "JSON object", true},
		"utf8":     {"Read", "{\"a\":\"\xff\"}", "JSON object", true},
		"huge":     {"Read", `{"a":"` + strings.Repeat("x", 50<<20) + `"}`, "1 MiB", true},
		"deep":     {"Read", `{"a":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}`, "levels", true},
		"panic":    {"Crash", `{}`, "boom", true},
		"goexit":   {"Quit", `{}`, "crashed", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.jsonl")
			tr, _, err := agent.OpenTranscript(path, agent.Meta{})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			l := newLoop(t, agent.Config{
				Model:      agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", c.tool, c.input)), agenttest.Say("end")),
				Tools:      tools,
				Transcript: tr,
			})
			if _, err := ask(l, "go"); err != nil {
				t.Fatal(err)
			}
			got, failed := results(t, l)
			if len(got) != 1 || !strings.Contains(got[0], c.want) || failed[0] != c.failed {
				t.Errorf("result %q, error %v", got, failed)
			}
			check(t, l.Messages())
			_ = tr.Close()
			_, h, err := agent.OpenTranscript(path, agent.Meta{})
			if err != nil || h.Skipped != 0 || len(h.Messages) != 4 {
				t.Errorf("reopened: %v, %+v", err, h)
			}
		})
	}
}

func TestCallIDsAreMadeUnique(t *testing.T) {
	var ran []string
	model := agenttest.Steps(
		agenttest.Use(agenttest.ToolUse("x", "T", `{"n":1}`), agenttest.ToolUse("x", "T", `{"n":1}`),
			agenttest.ToolUse("x", "T", `{"n":2}`), agenttest.ToolUse("", "T", `{"n":3}`)),
		agenttest.Use(agenttest.ToolUse("x", "T", `{"n":4}`)),
		agenttest.Say("end"))
	l := newLoop(t, agent.Config{Model: model, Tools: []agent.Tool{tool{name: "T", call: func(_ context.Context, c agent.Call) (agent.Output, error) {
		ran = append(ran, string(c.Input))
		return agent.Output{Text: c.ID}, nil
	}}}})
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	check(t, l.Messages())
	if want := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
}

func TestStops(t *testing.T) {
	same := agenttest.Use(agenttest.ToolUse("", "T", `{"k":1}`))
	text := agent.TextBlock("some text")
	for name, c := range map[string]struct {
		steps  []agenttest.Step
		max    int
		reason string
		text   string
		limit  string // of a LimitError
		turns  int
		stop   bool // a StopError with the reason
	}{
		"end":      {steps: []agenttest.Step{agenttest.Say("hi")}, reason: "end_turn", text: "hi", turns: 1},
		"empty":    {steps: []agenttest.Step{agenttest.Blocks("end_turn"), agenttest.Blocks("end_turn")}, reason: "end_turn", turns: 2},
		"nudged":   {steps: []agenttest.Step{agenttest.Blocks("end_turn", agent.TextBlock(" \n")), agenttest.Say("now")}, reason: "end_turn", text: "now", turns: 2},
		"thinking": {steps: []agenttest.Step{agenttest.Blocks("end_turn", agent.Block{Type: "thinking", Thinking: "hm"}), agenttest.Say("now")}, reason: "end_turn", text: "now", turns: 2},
		"refusal":  {steps: []agenttest.Step{agenttest.Blocks("refusal")}, reason: "refusal", turns: 1, stop: true},
		"length":   {steps: []agenttest.Step{agenttest.Blocks("max_tokens", text)}, reason: "max_tokens", text: "some text", turns: 1, stop: true},
		"window":   {steps: []agenttest.Step{agenttest.Blocks("model_context_window_exceeded", text)}, reason: "model_context_window_exceeded", text: "some text", turns: 1, stop: true},
		"refusal-call": {steps: []agenttest.Step{agenttest.Blocks("refusal", text, agenttest.ToolUse("", "T", `{}`))},
			reason: "refusal", text: "some text", turns: 1, stop: true},
		"pause": {steps: []agenttest.Step{agenttest.Blocks("pause_turn", text), agenttest.Say("on")}, reason: "end_turn", text: "on", turns: 2},
		"turns": {steps: []agenttest.Step{same, same, same}, max: 2, reason: "max_turns", limit: "max_turns", turns: 2},
		"loop":  {steps: slices.Repeat([]agenttest.Step{same}, 60), reason: "same_call", limit: "same_call", turns: 50},
		"tool":  {steps: []agenttest.Step{agenttest.Use(agenttest.ToolUse("", "End", `{}`), agenttest.ToolUse("", "T", `{}`))}, reason: "tool_end", turns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, agent.Config{
				Model: agenttest.Steps(c.steps...), MaxTurns: c.max,
				Tools: []agent.Tool{
					tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) { return agent.Output{Text: "same"}, nil }},
					tool{name: "End", call: func(context.Context, agent.Call) (agent.Output, error) {
						return agent.Output{Text: "over", EndTurn: true}, nil
					}},
				},
			})
			res, err := ask(l, "go")
			limit, stop := &agent.LimitError{}, &agent.StopError{}
			if got := errors.As(err, &stop); got != c.stop || got && stop.Reason != c.reason {
				t.Fatalf("error %v", err)
			}
			if got := errors.As(err, &limit); got != (c.limit != "") || got && limit.Limit != c.limit || !got && !c.stop && err != nil {
				t.Fatalf("error %v", err)
			}
			if res.Reason != c.reason || res.Text != c.text || res.Turns != c.turns {
				t.Errorf("result %+v", res)
			}
			check(t, l.Messages())
		})
	}
}

func TestNoToolRunsFromAnUnfinishedReply(t *testing.T) {
	use := agenttest.ToolUse("a", "T", `{}`)
	cut := &agent.CutError{Whole: []agent.Block{agent.TextBlock("so far"), use}, Usage: agent.Usage{OutputTokens: 7}}
	for name, step := range map[string]agenttest.Step{
		"cut":    agenttest.Fail(fmt.Errorf("read stream: %w", cut)),
		"nostop": agenttest.Blocks("", agent.TextBlock("so far"), use),
		"length": agenttest.Blocks("max_tokens", agent.TextBlock("so far"), use),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, agent.Config{
				Model: agenttest.Steps(step, agenttest.Say("end")),
				Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) {
					t.Error("the tool ran")
					return agent.Output{}, nil
				}}},
			})
			_, err := ask(l, "go")
			want := &agent.CutError{}
			if name != "length" && !errors.As(err, &want) {
				t.Errorf("error %v", err)
			}
			check(t, l.Messages())
			all, _ := json.Marshal(l.Messages())
			if kept := strings.Contains(string(all), "so far"); kept != (name == "length") {
				t.Errorf("the text is kept: %v", kept)
			}
			if _, err := ask(l, "on"); err != nil && name != "length" {
				t.Errorf("next turn: %v", err)
			}
		})
	}
}

// Of a reply that failed nothing is kept but its cost; of one that the user broke
// off, what the user has read.
func TestPartialText(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted bool
		kept        string
		void        int
		turns       int
	}{
		"failed":      {void: 1},
		"interrupted": {interrupted: true, kept: "half a sent", turns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			path := filepath.Join(t.TempDir(), "t.jsonl")
			tr, _ := open(t, path)
			model := agenttest.ModelFunc(func(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
				on(agent.Part{Kind: agent.TextPart, Index: 0, Text: "half "})
				on(agent.Part{Kind: agent.TextPart, Index: 0, Text: "a sent"})
				if c.interrupted {
					cancel(errors.New("no more"))
				}
				return nil, &agent.CutError{Usage: agent.Usage{OutputTokens: 7}}
			})
			void, m := 0, &meter{t: t}
			l := newLoop(t, agent.Config{Model: model, Transcript: tr, Meter: m, On: func(e agent.Event) {
				if e.Kind == agent.PartEvent && e.Part.Kind == agent.VoidPart {
					void++
				}
			}})
			res, err := l.Turn(ctx, agent.TextBlock("go"))
			if err == nil || res.Text != c.kept || void != c.void || m.spent.OutputTokens != 7 {
				t.Errorf("text %q, %d times void, %d tokens spent, error %v", res.Text, void, m.spent.OutputTokens, err)
			}
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			_, h := open(t, path)
			all, _ := json.Marshal(h.Messages)
			if kept := strings.Contains(string(all), "half a sent"); kept != c.interrupted {
				t.Errorf("the transcript holds %s", all)
			}
			if h.Totals.Usage.OutputTokens != 7 || h.Totals.Turns != c.turns {
				t.Errorf("totals %+v", h.Totals)
			}
		})
	}
}

// A budget that is used up by answers that failed ends the tries.
func TestVoidIsBounded(t *testing.T) {
	m := &meter{t: t, most: 3}
	tries := 0
	model := agenttest.ModelFunc(func(ctx context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		for ctx.Err() == nil {
			tries++
			on(agent.Part{Kind: agent.VoidPart, Usage: agent.Usage{OutputTokens: 7}})
			on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: tries, Most: 9}})
		}
		return nil, context.Cause(ctx)
	})
	l := newLoop(t, agent.Config{Model: model, Meter: m})
	res, err := ask(l, "go")
	if err == nil || err.Error() != "the budget is used up" || res.Reason != "max_budget" || tries != 3 || m.spent.OutputTokens != 21 || m.open != 0 {
		t.Errorf("%+v, %v after %d tries, spent %+v, %d open", res, err, tries, m.spent, m.open)
	}
}

// What came of an answer that failed before the one that is kept is counted, in the
// meter, the result and the transcript, and is no turn.
func TestVoidIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	model := agenttest.ModelFunc(func(_ context.Context, _ *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
		on(agent.Part{Kind: agent.TextPart, Text: "half"})
		for range 2 {
			on(agent.Part{Kind: agent.VoidPart, Usage: agent.Usage{InputTokens: 100, OutputTokens: 7}})
		}
		on(agent.Part{Kind: agent.VoidPart})
		return &agent.Reply{Blocks: []agent.Block{agent.TextBlock("whole")}, StopReason: "end_turn", Usage: agent.Usage{InputTokens: 100, OutputTokens: 9}}, nil
	})
	m := &meter{t: t}
	l := newLoop(t, agent.Config{Model: model, Transcript: tr, Meter: m})
	res, err := ask(l, "go")
	want := agent.Usage{InputTokens: 300, OutputTokens: 23}
	if err != nil || res.Text != "whole" || res.Turns != 1 || res.Usage != want || res.Context != 100 || m.spent.OutputTokens != 23 {
		t.Errorf("%+v, %v, spent %+v", res, err, m.spent)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, h := open(t, path); h.Totals.Usage != want || h.Totals.Turns != 1 || len(h.Messages) != 2 {
		t.Errorf("the transcript holds %d messages, %+v", len(h.Messages), h.Totals)
	}
}

func TestGate(t *testing.T) {
	var got []string
	g := gate(func(c agent.Call) (agent.Decision, error) {
		switch c.ID {
		case "yes":
			return agent.Decision{Allow: true}, nil
		case "change":
			return agent.Decision{Allow: true, Input: json.RawMessage(`{"safe":true}`)}, nil
		case "badchange":
			return agent.Decision{Allow: true, Input: json.RawMessage(`[]`)}, nil
		case "error":
			return agent.Decision{Allow: true}, errors.New("no rules")
		case "panic":
			panic("gate")
		}
		return agent.Decision{Reason: "because"}, nil
	})
	var calls []agent.Block
	for _, id := range []string{"yes", "change", "badchange", "error", "panic", "no"} {
		calls = append(calls, agenttest.ToolUse(id, "T", `{}`))
	}
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(calls...), agenttest.Say("end")), Gate: g,
		Tools: []agent.Tool{tool{name: "T", call: func(_ context.Context, c agent.Call) (agent.Output, error) {
			got = append(got, c.ID+string(c.Input))
			return agent.Output{}, nil
		}}},
	})
	res, err := ask(l, "go")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"yes{}", `change{"safe":true}`}; !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	if len(res.Denials) != 4 || res.Denials[3].Reason != "because" || res.Denials[3].ToolUseID != "no" {
		t.Errorf("denials %+v", res.Denials)
	}
	if texts, failed := results(t, l); texts[5] != "because" || !failed[5] || failed[0] {
		t.Errorf("results %q %v", texts, failed)
	}
}

func TestToolFailureEndsTheTurnWithAValidHistory(t *testing.T) {
	disk := errors.New("disk is gone")
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`), agenttest.ToolUse("b", "T", `{}`)), agenttest.Say("ok")),
		Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) { return agent.Output{}, disk }}},
	})
	res, err := ask(l, "go")
	if !errors.Is(err, disk) || res.Reason != "error" {
		t.Errorf("%+v, %v", res, err)
	}
	check(t, l.Messages())
	if _, err := ask(l, "again"); err != nil {
		t.Error(err)
	}
}

func TestMailGoesInAtSafePoints(t *testing.T) {
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 1, Text: "early"})
	model := agenttest.Steps(
		agenttest.Use(agenttest.ToolUse("a", "T", `{}`)),
		func(ctx context.Context, r *agent.Request) (*agent.Reply, error) {
			mail.Send(agent.MailMessage{Seq: 3, Text: "late"})
			return agenttest.Say("end")(ctx, r)
		},
		agenttest.Say("read it"))
	l := newLoop(t, agent.Config{Model: model, Mail: mail, Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) {
		mail.Send(agent.MailMessage{Seq: 2, Text: "during"})
		return agent.Output{Text: "result"}, nil
	}}}})
	if _, err := ask(l, "prompt"); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range l.Messages() {
		told = append(told, string(m.Encoded()))
	}
	if !strings.Contains(told[0], `"early"},{"type":"text","text":"prompt"`) {
		t.Errorf("first message %s", told[0])
	}
	if i, j := strings.Index(told[2], `"result"`), strings.Index(told[2], `"during"`); i < 0 || j < i {
		t.Errorf("results %s", told[2])
	}
	if got := mail.Acked(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("acknowledged %v", got)
	}
	// What came after the last call is left to the caller, and starts a turn alone.
	if res, err := l.Turn(context.Background()); err != nil || res.Text != "read it" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := mail.Acked(); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("acknowledged %v", got)
	}
	if _, err := l.Turn(context.Background()); !errors.Is(err, agent.ErrNothing) {
		t.Errorf("turn without anything: %v", err)
	}
}

func TestLetterIsToldOnceAndAcknowledgedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	letter := agent.MailMessage{Seq: 7, Text: "only once"}
	for range 2 { // the second time as after a crash before the acknowledgement
		mail := &agenttest.Mail{}
		mail.Send(letter)
		tr, h, err := agent.OpenTranscript(path, agent.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Say("ok")), Mail: mail, Transcript: tr}, h.Messages...)
		if _, err := ask(l, "go"); err != nil {
			t.Fatal(err)
		}
		if got := mail.Acked(); !slices.Equal(got, []int64{7}) {
			t.Errorf("acknowledged %v", got)
		}
		all, _ := json.Marshal(l.Messages())
		if n := strings.Count(string(all), letter.Text); n != 1 {
			t.Errorf("told %d times", n)
		}
		_ = tr.Close()
	}
}

// One message holds no more mail than the model can read; the rest is owed still.
func TestMailComesInPortions(t *testing.T) {
	mail := &agenttest.Mail{}
	for seq := range int64(40) {
		mail.Send(agent.MailMessage{Seq: seq + 1, Text: strings.Repeat("m", 30_000)})
	}
	l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`)), agenttest.Say("ok"), agenttest.Say("more")), Mail: mail,
		Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) { return agent.Output{Text: "result"}, nil }}}})
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := mail.Acked(); len(got) != 3*5 || got[len(got)-1] != 15 {
		t.Errorf("acknowledged %v", got)
	}
	for _, m := range l.Messages() {
		if n := strings.Count(string(m.Encoded()), "mm"); n > 5*15_000 {
			t.Errorf("a message with %d bytes of mail", 2*n)
		}
	}
}

// A prompt that came by mail stands in the transcript under its number, and is
// acknowledged; after a crash before that it is not told again.
func TestPromptIsALetter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	for _, prompt := range []string{"only once", ""} {
		mail := &agenttest.Mail{}
		tr, h, err := agent.OpenTranscript(path, agent.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Say("ok")), Mail: mail, Transcript: tr}, h.Messages...)
		if prompt != "" {
			_, err = l.Answer(t.Context(), agent.Prompt{Seq: 7, Blocks: []agent.Block{agent.TextBlock(prompt)}})
		} else {
			mail.Send(agent.MailMessage{Seq: 7, Text: "only once"}) // as the mailbox has it by then
			_, err = l.Turn(t.Context(), agent.TextBlock("more"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := mail.Acked(); !slices.Equal(got, []int64{7}) {
			t.Errorf("acknowledged %v", got)
		}
		all, _ := json.Marshal(l.Messages())
		if n := strings.Count(string(all), "only once"); n != 1 {
			t.Errorf("told %d times", n)
		}
		_ = tr.Close()
	}
}

func TestUnrecordedMailIsNotAcknowledged(t *testing.T) {
	mail := &agenttest.Mail{}
	tr, _, err := agent.OpenTranscript(filepath.Join(t.TempDir(), "t.jsonl"), agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`))), Mail: mail, Transcript: tr,
		Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) {
			mail.Send(agent.MailMessage{Seq: 1, Text: "lost?"})
			return agent.Output{Text: "x"}, tr.Close() // nothing can be recorded from here on
		}}},
	})
	if _, err := ask(l, "go"); err == nil {
		t.Fatal("no error")
	}
	if got := mail.Acked(); len(got) > 0 {
		t.Errorf("acknowledged %v", got)
	}
	if n := len(l.Messages()); n != 2 {
		t.Errorf("%d messages in memory, 2 on disk", n)
	}
}

// A turn may be broken off at any event; the history must stay valid and the
// next turn must work.
func TestCancelAtEveryEvent(t *testing.T) {
	why := errors.New("the user pressed escape")
	for n := 0; ; n++ {
		ctx, cancel := context.WithCancelCause(context.Background())
		seen := 0
		model := agenttest.Steps(
			agenttest.Blocks("tool_use", agent.TextBlock("text"), agenttest.ToolUse("a", "P", `{}`), agenttest.ToolUse("b", "P", `{}`), agenttest.ToolUse("c", "S", `{}`)),
			agenttest.Say("end"), agenttest.Say("end"), agenttest.Say("end"))
		wait := func(ctx context.Context, _ agent.Call) (agent.Output, error) {
			if ctx.Err() != nil {
				return agent.Output{}, context.Cause(ctx)
			}
			return agent.Output{Text: "ok"}, nil
		}
		l := newLoop(t, agent.Config{
			Model: model, Tools: []agent.Tool{tool{name: "P", parallel: true, call: wait}, tool{name: "S", call: wait}},
			On: func(agent.Event) {
				if seen == n {
					cancel(why)
				}
				seen++
			},
		})
		_, err := l.Turn(ctx, agent.TextBlock("go"))
		if err != nil && !errors.Is(err, why) {
			t.Fatalf("event %d: error %v", n, err)
		}
		if len(l.Messages()) > 0 {
			check(t, l.Messages())
		}
		if _, err := ask(l, "again"); err != nil {
			t.Fatalf("event %d: next turn: %v", n, err)
		}
		check(t, l.Messages())
		cancel(nil)
		if seen <= n {
			if n < 12 {
				t.Errorf("only %d events", n)
			}
			return
		}
	}
}

func TestCancelWaitsForTheRunningTool(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("stop")
	ended := false
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`), agenttest.ToolUse("b", "T", `{}`))),
		Tools: []agent.Tool{tool{name: "T", call: func(ctx context.Context, _ agent.Call) (agent.Output, error) {
			cancel(why)
			<-ctx.Done()
			ended = true
			return agent.Output{}, context.Cause(ctx)
		}}},
	})
	res, err := l.Turn(ctx, agent.TextBlock("go"))
	if !errors.Is(err, why) || res.Reason != "interrupted" || !ended {
		t.Errorf("%+v, %v, ended %v", res, err, ended)
	}
	texts, failed := results(t, l)
	if len(texts) != 2 || !failed[0] || !failed[1] || !strings.Contains(texts[0], "interrupted") || !strings.Contains(texts[1], "not run") {
		t.Errorf("results %q", texts)
	}
}

func TestResumeDoesNotRunALostCallAgain(t *testing.T) {
	history := []agent.Message{
		agent.NewMessage(agent.User, agent.TextBlock("go")),
		agent.NewMessage(agent.Assistant, agenttest.ToolUse("a", "T", `{}`)),
	}
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range history {
		if err := tr.Append(agent.Record{Message: m}); err != nil {
			t.Fatal(err)
		}
	}
	model := agenttest.Steps(agenttest.Say("I see"))
	l := newLoop(t, agent.Config{Model: model, Transcript: tr, Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) {
		t.Error("the call ran again")
		return agent.Output{}, nil
	}}}}, history...)
	if _, err := ask(l, "on"); err != nil {
		t.Fatal(err)
	}
	check(t, model.Requests()[0])
	if texts, failed := results(t, l); !failed[0] || !strings.Contains(texts[0], "may or may not have run") {
		t.Errorf("results %q", texts)
	}
	_ = tr.Close()
	_, h, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, h.Messages) // the repair is in the file
}

func TestEventOrder(t *testing.T) {
	names := map[agent.EventKind]string{
		agent.TurnStartEvent: "start", agent.MailEvent: "mail", agent.PromptEvent: "prompt", agent.PartEvent: "part",
		agent.BlockEvent: "block", agent.ReplyDoneEvent: "reply", agent.ToolStartEvent: "tool", agent.ToolDoneEvent: "result", agent.TurnDoneEvent: "done",
	}
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 1, Text: "m"})
	var got []string
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{}`), agenttest.ToolUse("b", "None", `{}`)), agenttest.Say("end")),
		Tools: []agent.Tool{tool{name: "T"}}, Mail: mail,
		On: func(e agent.Event) { got = append(got, names[e.Kind]) },
	})
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	want := "start mail prompt part part block block reply tool result result part part block reply done"
	if strings.Join(got, " ") != want {
		t.Errorf("events %s\nwant   %s", strings.Join(got, " "), want)
	}
}

func TestNewLoopRefusesBadTools(t *testing.T) {
	model := agenttest.Steps()
	for name, tools := range map[string][]agent.Tool{
		"name":      {tool{name: "a b"}},
		"noname":    {tool{}},
		"duplicate": {tool{name: "A"}, tool{name: "A"}},
		"shadow":    {tool{name: "A"}, tool{name: "B", aliases: []string{"A"}}},
		"aliases":   {tool{name: "A", aliases: []string{"c"}}, tool{name: "B", aliases: []string{"C"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := agent.NewLoop(agent.Config{Model: model, Tools: tools}, nil); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := agent.NewLoop(agent.Config{}, nil); err == nil {
		t.Error("accepted without a model")
	}
}
