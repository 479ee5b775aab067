package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
)

func sub(b *Base) { b.AgentID, b.AgentType = "a1", "explore" }

// TestOneStop plays any course of a subagent: of the stops that were sent, exactly
// one was not vetoed, and it is the last.
func TestOneStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var vetoes []bool
		var veto bool
		set, _ := new(Set).With(Callback{Event: "SubagentStop", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			vetoes = append(vetoes, veto)
			if veto {
				return json.RawMessage(`{"decision":"block","reason":"not yet"}`), nil
			}
			return nil, nil
		}})
		base := Base{}
		sub(&base)
		r := NewRunner(set, base)
		defer r.Close()
		l := NewLoop(r, nil)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l.Start(ctx)
		accepted, heeded := 0, 0
		for blocked := range rapid.IntRange(0, 12).Draw(t, "stops") {
			veto = rapid.Bool().Draw(t, "veto")
			if rapid.IntRange(0, 9).Draw(t, "kill") == 0 {
				cancel()
			}
			before := len(vetoes)
			reason := l.Stop(ctx, agent.TurnResult{}, blocked)
			if len(vetoes) == before && accepted == 0 {
				t.Fatal("a stop was not sent")
			}
			if reason == "" {
				accepted++
				break // the turn ends
			}
			heeded++
			if !veto || ctx.Err() != nil || blocked >= maxBlocks {
				t.Fatalf("a veto was heeded: %q", reason)
			}
		}
		before := len(vetoes)
		veto = true
		l.End(context.Background(), agent.TurnResult{Reason: "interrupted"}, errors.New("killed"))
		l.End(context.Background(), agent.TurnResult{}, nil)
		if sent := len(vetoes) - before; sent+accepted != 1 || len(vetoes) != heeded+1 {
			t.Fatalf("%d by the end, %d by a stop; %d sent and %d heeded", sent, accepted, len(vetoes), heeded)
		}
	})
}

// Without a start there is no end.
func TestNoStart(t *testing.T) {
	var e ears
	l := NewLoop(playSet(t, with(t, e.on("SubagentStop", "")), sub).Runner, nil)
	l.End(t.Context(), agent.TurnResult{}, nil)
	if e.count() != 0 {
		t.Errorf("%d ends", e.count())
	}
}

// A stop hook that a stop of the agent meets is not told twice.
func TestStopOutlives(t *testing.T) {
	s := play(t, claude("SubagentStop", "echo > up; read x < go; echo told >> log"), sub)
	up, gate := s.gate(t, "up"), s.gate(t, "go")
	l := NewLoop(s.Runner, nil)
	ctx, cancel := context.WithCancel(t.Context())
	l.Start(ctx)
	var opened atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = open(t, up, 0)
		cancel()
		opened.Store(true)
		_, _ = open(t, gate, 1).WriteString("x\n")
	}()
	if reason := l.Stop(ctx, agent.TurnResult{}, 0); reason != "" || !opened.Load() {
		t.Errorf("%q", reason)
	}
	<-done
	l.End(t.Context(), agent.TurnResult{}, context.Canceled)
	if got := s.read(t, "log"); got != "told\n" {
		t.Errorf("%q", got)
	}
}

// Hooks that are told of what has happened go on for a time when their turn ends
// under them, and not for ever.
func TestOutlive(t *testing.T) {
	for event, c := range map[string]struct {
		most time.Duration
		tell func(context.Context, *Loop)
	}{
		"SubagentStop": {afterStop, func(ctx context.Context, l *Loop) { l.Stop(ctx, agent.TurnResult{}, 0) }},
		"PostToolUse":  {afterCall, func(ctx context.Context, l *Loop) { l.Called(ctx, call("Bash", `{}`), agent.Output{}, 0) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			begun, told := time.Now(), false
			set := with(t, Callback{Event: event, Call: func(own context.Context, _ json.RawMessage) (json.RawMessage, error) {
				cancel()
				synctest.Wait()
				told = own.Err() == nil
				<-own.Done()
				return nil, nil
			}})
			base := Base{}
			sub(&base)
			r := NewRunner(set, base)
			defer r.Close()
			c.tell(ctx, NewLoop(r, nil))
			if took := time.Since(begun); !told || took != c.most {
				t.Errorf("%s: %v, %v", event, told, took)
			}
		})
	}
}

// TestH8 blocks the end again and again, for the main agent.
func TestH8(t *testing.T) {
	s := play(t, claude("Stop", "echo again >&2; exit 2"))
	l := NewLoop(s.Runner, nil)
	blocked := 0
	for l.Stop(t.Context(), agent.TurnResult{StopReason: "end_turn"}, blocked) == "again" {
		blocked++
	}
	if blocked != maxBlocks || !strings.Contains(s.told(), "8 times in a row") {
		t.Errorf("%d blocks, %s", blocked, s.told())
	}
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct{ line, reason, told string }{
		"well":     {"echo fine", "", ""},
		"block":    {"echo go on >&2; exit 2", "go on", ""},
		"decision": {`echo '{"decision":"block","reason":"go on"}'`, "go on", ""},
		"other":    {"echo oh >&2; exit 1", "", "oh"},
		"end":      {`echo '{"continue":false,"decision":"block","reason":"go on"}'`, "", ""},
	} {
		for event, change := range map[string]func(*Base){"Stop": func(*Base) {}, "SubagentStop": sub} {
			s := play(t, claude(event, c.line), change)
			if got := NewLoop(s.Runner, nil).Stop(t.Context(), agent.TurnResult{}, 0); got != c.reason || !strings.Contains(s.told(), c.told) || c.told == "" && s.told() != "" {
				t.Errorf("%s %s: %q, %q", event, name, got, s.told())
			}
		}
	}
}

func TestStart(t *testing.T) {
	for line, c := range map[string]struct{ context, told string }{
		"echo hello":                          {"hello", ""},
		"echo no >&2; exit 2":                 {"", "no"},
		"echo oh >&2; exit 1":                 {"", "oh"},
		`echo '{"additionalContext":"json"}'`: {"json", ""},
		`echo '{"hookSpecificOutput":{"additionalContext":"json"}}'`:    {"json", ""},
		`echo '{"decision":"block","reason":"no"}'`:                     {"", ""},
		`jq -r '.agent_id+.agent_type+.agent_name+.agent_display_name'`: {"a1exploreexploreExplore", ""},
	} {
		s := play(t, claude("SubagentStart", line), sub, func(b *Base) { b.DisplayName = "Explore" })
		got := NewLoop(s.Runner, nil).Start(t.Context())
		if want := Marked(SubagentStart, c.context); got != want || !strings.Contains(s.told(), c.told) {
			t.Errorf("%s: %q, %q", line, got, s.told())
		}
	}
}

func TestCalled(t *testing.T) {
	ok, bad := agent.Output{Text: "out", Structured: 1}, agent.Refuse("err")
	for name, c := range map[string]struct {
		event, answer string
		in            agent.Output
		want          agent.Output
	}{
		"context": {"PostToolUse", `{"hookSpecificOutput":{"additionalContext":"c"}}`, ok, agent.Output{Text: "out\n" + Marked(PostToolUse, "c"), Structured: 1}},
		"failure": {"PostToolUseFailure", `{"additionalContext":"c"}`, bad, agent.Output{Text: "err\n" + Marked(PostToolUseFailure, "c"), IsError: true}},
		"other":   {"PostToolUse", `{"additionalContext":"c"}`, bad, bad},
		"replace": {"PostToolUse", `{"updatedToolOutput":"new"}`, ok, agent.Output{Text: "new"}},
		"block":   {"PostToolUse", `{"decision":"block","reason":"r"}`, ok, agent.Output{Text: "out\n" + Marked(PostToolUse, "r"), Structured: 1}},
		"end":     {"PostToolUse", `{"continue":false,"stopReason":"s"}`, ok, agent.Output{Text: "out\n" + Marked(PostToolUse, "s"), Structured: 1, EndTurn: true}},
		"nothing": {"PostToolUse", ``, ok, ok},
	} {
		s := playSet(t, with(t, new(ears).on(c.event, c.answer)))
		if got := NewLoop(s.Runner, nil).Called(t.Context(), call("Bash", `{}`), c.in, time.Second); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A call that was interrupted has run, and is told of.
func TestCalledInterrupted(t *testing.T) {
	var e ears
	s := playSet(t, with(t, e.on("PostToolUseFailure", "")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewLoop(s.Runner, nil).Called(ctx, call("Bash", `{}`), agent.Refuse("interrupted"), 0)
	if e.count() != 1 || e.all[0]["is_interrupt"] != true {
		t.Errorf("%v", e.all)
	}
}

func TestBatch(t *testing.T) {
	s := playSet(t, with(t, new(ears).on("PostToolBatch", `{"decision":"block","reason":"r","additionalContext":"c"}`)))
	if got := NewLoop(s.Runner, nil).Batch(t.Context(), []agent.Done{{Call: call("Bash", `{}`)}}); got != Marked(PostToolBatch, "r", "c") {
		t.Errorf("%q", got)
	}
}

func TestMoments(t *testing.T) {
	no := func(event string) *stage { return play(t, claude(event, "echo no >&2; exit 2")) }
	ctx := t.Context()
	if _, err := no("UserPromptSubmit").UserPromptSubmit(ctx, "p"); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("prompt: %v", err)
	}
	if err := no("TaskCreated").TaskCreated(ctx, Todo{}); err == nil || err.Error() != "no" {
		t.Errorf("created: %v", err)
	}
	if err := no("TaskCompleted").TaskCompleted(ctx, Todo{}); err == nil || err.Error() != "no" {
		t.Errorf("completed: %v", err)
	}
	if _, err := no("PreCompact").PreCompact(ctx, "auto", ""); err == nil {
		t.Error("the compaction was not prevented")
	}
	s := play(t, claude("UserPromptSubmit", "jq -r .prompt"))
	if text, err := s.UserPromptSubmit(ctx, "hello"); err != nil || text != Marked(UserPromptSubmit, "hello") {
		t.Errorf("%q, %v", text, err)
	}
	s = play(t, claude("PreCompact", `echo '{"additionalContext":"keep paths"}'`))
	if text, err := s.PreCompact(ctx, "auto", "keep names"); err != nil || text != "keep paths" {
		t.Errorf("%q, %v", text, err)
	}
	s = no("SessionStart")
	if text := s.SessionStart(ctx, "startup"); text != "" || !strings.Contains(s.told(), "no") {
		t.Errorf("%q, %q", text, s.told())
	}
}
