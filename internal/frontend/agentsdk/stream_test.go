package agentsdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: StreamJSON})
		w.run(func() {
			for _, id := range []task.ID{"b11111111", "b22222222"} {
				w.create(task.Record{ID: id, Kind: task.LocalBash, Command: "make"})
				w.begin(id)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if got := w.kinds(); !slices.Equal(got, []string{"task_started b11111111"}) {
				t.Errorf("after 2 s and 1 s: %q", got)
			}
			time.Sleep(time.Second - time.Millisecond)
			synctest.Wait()
			if got := w.kinds(); len(got) != 1 {
				t.Errorf("just before its 2 s: %q", got)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got := w.kinds(); !slices.Equal(got, []string{"task_started b11111111", "task_started b22222222"}) {
				t.Errorf("after 2 s of both: %q", got)
			}
		})
	})
}

// A command that took its time is told of also by a stream that looks only
// after its end.
func TestLateLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: StreamJSON})
		w.create(task.Record{ID: "b11111111", Kind: task.LocalBash, Command: "make"})
		w.begin("b11111111")
		time.Sleep(patience)
		w.end("b11111111", nil, exit(0), nil)
		w.start("go")
		w.done(result(1, "done"), nil)
		want := []string{"task_started b11111111", "task_updated b11111111", "task_notification b11111111", "init", "result"}
		if got := w.kinds(); !slices.Equal(got, want) {
			t.Errorf("printed %q\nwant    %q", got, want)
		}
	})
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name   string
		format Format
	}{{"unset", ""}, {"text", Text}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{Format: c.format})
				w.run(func() {
					shellStory(w)
					if got := w.out.String(); got != "" {
						t.Errorf("printed before the end: %q", got)
					}
				})
				if got := w.out.String(); got != "The tests failed.\n" {
					t.Errorf("printed %q", got)
				}
				want := "task b11111111 started: run the tests\ntask b11111111 failed (exit code 3)\n"
				if got := w.notes.String(); got != want {
					t.Errorf("told %q, want %q", got, want)
				}
			})
		})
	}
}

func TestTextAnswer(t *testing.T) {
	for _, c := range []struct {
		name, answer, out, notes string
		err                      error
	}{
		{"newline", "a\n\n", "a\n", "", nil},
		{"empty", " \n", "", "the answer is empty\n", nil},
		{"control", "a\x1b[31m\u009bb\tc\r\nd", "a[31mb\tc\nd\n", "", nil},
		{"emoji", "👩\u200d💻 é", "👩\u200d💻 é\n", "", nil},
		{"partial", "so far", "so far\n", "", errors.New("limit")},
		{"failed", "", "", "", errors.New("limit")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{Format: Text})
			w.run(func() {
				w.start("go")
				w.done(agent.TurnResult{Text: c.answer}, c.err)
			})
			if got := w.out.String(); got != c.out {
				t.Errorf("printed %q, want %q", got, c.out)
			}
			if got := w.notes.String(); got != c.notes {
				t.Errorf("told %q, want %q", got, c.notes)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: JSON})
		w.run(func() {
			agentStory(w)
			if got := w.out.String(); got != "" {
				t.Errorf("printed before the end: %q", got)
			}
			// It ends after the last turn, and is counted.
			w.create(task.Record{ID: "a22222222", Kind: task.LocalAgent, AgentType: "helper", Backgrounded: true})
			w.end("a22222222", stopped, task.Result{}, errExit)
		})
		var got resultLine
		if err := json.Unmarshal([]byte(w.out.String()), &got); err != nil || len(w.lines()) != 1 {
			t.Fatalf("not one object: %v\n%s", err, w.out.String())
		}
		if got.Type != "result" || *got.Result != "All is well, says the agent." || got.Index != 1 || got.Origin.Kind != "task-notification" {
			t.Errorf("got %s", w.out.String())
		}
		if s := got.Stats; s.Spawned != 2 || s.Completed != 1 || s.Killed[task.ReasonStopped] != 1 || s.ByType["helper"] != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// A reader that has gone ends the work instead of letting it run unseen.
func TestBrokenPipe(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{Format: StreamJSON})
	w.s.o.Out = pipe
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ran <- w.s.Run(ctx) }()
	w.start("go")
	select {
	case err := <-ran:
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run goes on")
	}
	w.done(result(1, "done"), nil)
	if err := w.s.Finish(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Finish: %v", err)
	}
}

func TestLogFails(t *testing.T) {
	w := newWorld(t, Options{Format: StreamJSON})
	w.broken = errors.New("disk on fire")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.s.Run(ctx); !errors.Is(err, w.broken) || ctx.Err() != nil {
		t.Errorf("Run: %v", err)
	}
	if err := w.s.Finish(); !errors.Is(err, w.broken) {
		t.Errorf("Finish: %v", err)
	}
}

func TestPartial(t *testing.T) {
	part := func(w *world, from task.ID, p agent.Part) {
		w.s.Agent(from, agent.Event{Kind: agent.PartEvent, Part: p})
	}
	play := func(w *world) {
		w.start("go")
		part(w, session, agent.Part{Kind: agent.TextPart, Text: "void"})
		part(w, session, agent.Part{Kind: agent.VoidPart, Usage: agent.Usage{InputTokens: 100, OutputTokens: 1}})
		part(w, session, retried())
		thinking := agent.Block{Type: "thinking", Thinking: "hm", Signature: "sig"}
		redacted := agent.Block{Type: "redacted_thinking", Data: "xyz"}
		text, call := agent.TextBlock("I look."), use("toolu_1", "Read", `{"a":1}`)
		for _, p := range []agent.Part{
			{Kind: agent.ThinkingPart, Index: 0, Text: "hm"},
			{Kind: agent.BlockPart, Index: 0, Block: &thinking},
			{Kind: agent.BlockPart, Index: 1, Block: &redacted},
			{Kind: agent.TextPart, Index: 2, Text: "I "},
			{Kind: agent.TextPart, Index: 2, Text: "look."},
			{Kind: agent.BlockPart, Index: 2, Block: &text},
			{Kind: agent.ToolPart, Index: 3, ID: "toolu_1", Name: "Read"},
			{Kind: agent.InputPart, Index: 3, Text: `{"a"`},
			{Kind: agent.InputPart, Index: 3, Text: `:1}`},
			{Kind: agent.BlockPart, Index: 3, Block: &call},
		} {
			part(w, session, p)
		}
		w.reply(session, "msg_1", thinking, redacted, text, call)
		w.tool(session, "toolu_1", "Read", agent.Output{Text: "ok"})
		part(w, session, agent.Part{Kind: agent.TextPart, Text: "Done."})
		part(w, session, agent.Part{Kind: agent.VoidPart})
		w.done(result(1, ""), errors.New("the model's answer was cut off"))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: StreamJSON, Partial: true})
		w.run(func() { play(w) })
		golden(t, filepath.Join("testdata", "partial.ndjson"), normal(w.out.String()))

		plain := newWorld(t, Options{Format: StreamJSON})
		plain.run(func() { play(plain) })
		if strings.Contains(plain.out.String(), "stream_event") {
			t.Error("parts are printed without being asked for")
		}
	})
}

// Waking for mail that was told already is no turn.
func TestNoTurn(t *testing.T) {
	w := newWorld(t, Options{Format: StreamJSON})
	w.run(func() {
		w.start("")
		w.done(agent.TurnResult{Reason: "error"}, agent.ErrNothing)
		w.start("go")
		w.done(result(1, "done"), nil)
	})
	if got := w.kinds(); !slices.Equal(got, []string{"init", "result"}) {
		t.Errorf("printed %q", got)
	}
	if got := w.lines()[1].Index; got != 0 {
		t.Errorf("the first result has index %d", got)
	}
}

// Mail that comes with a prompt, or between tool calls, starts no turn.
func TestOrigin(t *testing.T) {
	note := agent.MailMessage{Seq: 1, Text: "note", Origin: "message"}
	for _, c := range []struct {
		name string
		play func(w *world)
		want string
	}{
		{"mail", func(w *world) { w.start("", note) }, "message"},
		{"unnamed", func(w *world) { w.start("", agent.MailMessage{Text: "x"}) }, "task-notification"},
		{"prompt", func(w *world) { w.start("go") }, ""},
		{"both", func(w *world) { w.start("go", note) }, ""},
		{"between", func(w *world) {
			w.start("go")
			w.reply(session, "msg_1", use("toolu_1", "Read", `{}`))
			w.s.Agent(session, agent.Event{Kind: agent.MailEvent, Mail: []agent.MailMessage{note}})
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{Format: StreamJSON})
			w.run(func() {
				c.play(w)
				w.done(result(1, "done"), nil)
			})
			lines := w.lines()
			got := ""
			if o := lines[len(lines)-1].Origin; o != nil {
				got = o.Kind
			}
			if got != c.want {
				t.Errorf("origin %q, want %q", got, c.want)
			}
		})
	}
}

// What was there before is not told again, but its end is, and the list knows it.
func TestLive(t *testing.T) {
	w := newWorld(t, Options{})
	w.add(task.Create, task.Record{ID: session, Run: "run_s", Kind: task.LocalAgent, AgentType: task.MainSession, Status: task.Running, Backgrounded: true})
	w.create(task.Record{ID: "b11111111", Kind: task.LocalBash, Command: "serve", Backgrounded: true})
	w.begin("b11111111")
	w.create(task.Record{ID: "b22222222", Kind: task.LocalBash, Command: "watch", Backgrounded: true})
	o := w.s.o
	o.Format, o.Start, o.Live = StreamJSON, 4, []task.Record{w.record(session), w.record("b11111111"), w.record("b22222222")}
	w.s = New(o)
	w.run(func() {
		w.start("go")
		w.end("b11111111", nil, exit(0), nil)
		w.do(session, lifecycle.Change{Verb: task.Rest})
		w.done(result(1, "done"), nil)
	})
	want := []string{"init", "background_tasks_changed", "task_updated b11111111", "task_notification b11111111", "background_tasks_changed", "result"}
	if got := w.kinds(); !slices.Equal(got, want) {
		t.Fatalf("printed %q\nwant    %q", got, want)
	}
	first, last := w.lines()[1].Tasks, w.lines()[4].Tasks
	if len(first) != 2 || first[0].Task != "b11111111" || len(last) != 1 || last[0].Task != "b22222222" {
		t.Errorf("listed %v, then %v", first, last)
	}
}

// One table maps our words to those of the wire.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		status              task.Status
		patch, notification string
	}{
		{task.Pending, "pending", ""},
		{task.Running, "running", ""},
		{task.Completed, "completed", "completed"},
		{task.Failed, "failed", "failed"},
		{task.Killed, "killed", "stopped"},
	} {
		r := task.Record{Status: c.status}
		if got := patchStatus(r); got != c.patch {
			t.Errorf("%s is %q in task_updated", c.status, got)
		}
		if got := notificationStatus(c.status); c.status.Terminal() && got != c.notification {
			t.Errorf("%s is %q in task_notification", c.status, got)
		}
		r.Paused = true
		if got := patchStatus(r); (got == "paused") == c.status.Terminal() {
			t.Errorf("%s and paused is %q", c.status, got)
		}
	}
}

// How a turn ended, as the wire has words for it.
func TestResultWords(t *testing.T) {
	limit := func(name string) error { return fmt.Errorf("turn: %w", &agent.LimitError{Limit: name}) }
	for _, c := range []struct {
		reason            string
		err               error
		inTools           bool
		subtype, terminal string
	}{
		{"end_turn", nil, false, "success", "completed"},
		{"tool_end", nil, true, "success", "completed"},
		{"gate_end", nil, true, "success", "hook_stopped"},
		{"max_turns", limit("max_turns"), true, "error_max_turns", "max_turns"},
		{"max_budget_usd", limit("max_budget_usd"), false, "error_max_budget_usd", "max_budget_usd"},
		{"max_tokens", limit("max_tokens"), true, "error_during_execution", "max_tokens"},
		{"same_call", limit("same_call"), true, "error_during_execution", "same_call"},
		{"interrupted", context.Canceled, true, "error_during_execution", "aborted_tools"},
		{"interrupted", context.Canceled, false, "error_during_execution", "aborted_streaming"},
		{"refusal", &agent.StopError{Reason: "refusal"}, false, "error_during_execution", "refusal"},
		{"max_tokens", &agent.StopError{Reason: "max_tokens"}, false, "error_during_execution", "max_tokens"},
		{"error", &agent.ModelError{Text: "no"}, false, "error_during_execution", "model_error"},
	} {
		subtype, terminal := resultWords(agent.TurnResult{Reason: c.reason}, c.err, c.inTools)
		if subtype != c.subtype || terminal != c.terminal {
			t.Errorf("%s: %s, %s", c.reason, subtype, terminal)
		}
	}
}

// The cost is that of the run so far, and that of the session has a field of its own; where a price
// is missing it is said.
func TestCost(t *testing.T) {
	usd, known := 1.0, true
	w := newWorld(t, Options{Format: StreamJSON, Cost: func() (float64, bool) { return usd, known }})
	w.run(func() {
		usd = 1.25
		w.start("go")
		w.done(result(1, "done"), nil)
		usd, known = 1.5, false
		w.start("go on")
		w.done(result(1, "done"), nil)
	})
	out := w.out.String()
	if !strings.Contains(out, `"total_cost_usd":0.25,"session_cost_usd":1.25,"usage"`) ||
		!strings.Contains(out, `"total_cost_usd":0.5,"session_cost_usd":1.5,"total_cost_is_partial":true`) {
		t.Error(out)
	}
}

// Each model has the cost of its own calls, by its own price, those for summaries included.
func TestCostByModel(t *testing.T) {
	price := map[string]float64{"test-model": 0.5, "other": 2}
	w := newWorld(t, Options{
		Format: StreamJSON,
		Price: func(model string, u agent.Usage) (float64, bool) {
			usd, known := price[model]
			return usd * float64(u.OutputTokens), known
		},
		Limits: func(model string) (int64, int64) { return 1000, int64(len(model)) },
	})
	w.run(func() {
		w.start("go")
		for _, model := range []string{"other", "free", "other"} {
			r := &agent.Reply{Model: model, Usage: agent.Usage{InputTokens: 1, OutputTokens: 2}}
			w.s.Agent(session, agent.Event{Kind: agent.ReplyDoneEvent, Reply: r})
		}
		w.s.Agent(session, agent.Event{Kind: agent.CompactEvent, Compaction: &agent.Compacted{Usage: agent.Usage{OutputTokens: 1}}})
		w.done(result(1, "done"), nil)
	})
	want := `"modelUsage":{` +
		`"free":{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,` +
		`"costUSD":0,"cost_is_partial":true,"contextWindow":1000,"maxOutputTokens":4},` +
		`"other":{"inputTokens":2,"outputTokens":4,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,` +
		`"costUSD":8,"contextWindow":1000,"maxOutputTokens":5},` +
		`"test-model":{"inputTokens":0,"outputTokens":1,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,` +
		`"costUSD":0.5,"contextWindow":1000,"maxOutputTokens":10}}`
	if out := w.out.String(); !strings.Contains(out, want) {
		t.Error(out)
	}
}

// What cannot be encoded, or is no UTF-8, costs its place and not the line.
func TestOddities(t *testing.T) {
	w := newWorld(t, Options{Format: StreamJSON})
	w.run(func() {
		w.start("go")
		w.reply(session, "msg_1", use("toolu_1", "Read", "{\"a\":\n\"\xff\u2028\"}"))
		w.tool(session, "toolu_1", "Read", agent.Output{Text: "ok", Structured: func() {}})
		w.done(result(1, "done"), context.Canceled)
	})
	if got := w.kinds(); !slices.Equal(got, []string{"init", "assistant", "user", "result"}) {
		t.Errorf("printed %q", got)
	}
	if strings.Contains(w.out.String(), "tool_use_result") {
		t.Error("a result that cannot be encoded is printed")
	}
}
