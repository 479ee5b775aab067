package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// drive opens a main agent that is on autopilot, and lets it run.
func drive(r *testSession, change ...func(*MainConfig)) *converser {
	r.t.Helper()
	return converseAs(r, append([]func(*MainConfig){func(c *MainConfig) { c.Autopilot = true }}, change...)...)
}

// converseAs is converse with another configuration.
func converseAs(r *testSession, change ...func(*MainConfig)) *converser {
	r.t.Helper()
	c := &converser{testSession: r, turns: make(chan conversation.Turn, 100)}
	cfg := MainConfig{Done: func(turn conversation.Turn) { c.turns <- turn }}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if c.main, err = r.OpenMain(r.ctx, cfg); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); c.main.Run(ctx) }()
	c.stop = func() { cancel(); <-ended }
	r.t.Cleanup(c.stop)
	return c
}

// origins are those of all turns so far.
func (c *converser) origins() (origins []string) {
	for range len(c.turns) {
		turn := <-c.turns
		origins = append(origins, turn.Origin)
	}
	return origins
}

const doneTool = `{name: task_complete, input: {summary: " did it "}}`

// TestAutopilot is when it goes on and when it stops.
func TestAutopilot(t *testing.T) {
	reminders := func(n int) []string {
		return append([]string{""}, slices.Repeat([]string{conversation.AutopilotOrigin}, n)...)
	}
	for _, c := range []struct {
		name, script string
		change       func(*MainConfig)
		origins      []string
		err, last    string // what Settle says, and how the last turn failed
		text         string
		complete     bool
	}{
		{name: "at-once", script: `
    - tools: [` + doneTool + `]
`, origins: reminders(0), text: "did it", complete: true},
		{name: "reminded", script: `
    - text: I think that is all.
    - {when: {last_contains: not marked as complete}, text: All is well., tools: [` + doneTool + `]}
`, origins: reminders(1), text: "All is well.", complete: true},
		{name: "limit", script: `
    - {text: I think that is all., repeat: -1}
`, origins: reminders(5), err: "after 5 reminders", text: "I think that is all."},
		{name: "other-limit", script: `
    - {text: I think that is all., repeat: -1}
`, change: func(c *MainConfig) { c.Reminders = 2 }, origins: reminders(2), err: "after 2 reminders", text: "I think that is all."},
		{name: "passing-error", script: `
    - error: {status: 529, type: overloaded_error, message: busy}
    - tools: [` + doneTool + `]
`, origins: reminders(1), text: "did it", complete: true},
		{name: "passing-errors", script: `
    - {error: {status: 529, type: overloaded_error, message: busy}, repeat: -1}
`, change: func(c *MainConfig) { c.Reminders = 2 }, origins: reminders(2), last: "busy"},
		{name: "cut", script: `
    - {text: half an, cut: true}
    - tools: [` + doneTool + `]
`, origins: reminders(1), text: "did it", complete: true},
		{name: "error", script: `
    - error: {status: 400, type: invalid_request_error, message: wrong}
    - tools: [` + doneTool + `]
`, origins: reminders(0), last: "wrong"},
		{name: "max-turns", script: `
    - {tools: [{name: Bash, input: {command: "echo {{turn}}"}}], repeat: -1}
`, change: func(c *MainConfig) { c.MaxTurns = 2 }, origins: reminders(0), last: "limit of 2 turns"},
		{name: "refused-first", script: `
    - tools: [{name: task_complete}]
    - {when: {last_contains: summary}, tools: [` + doneTool + `]}
`, origins: reminders(0), text: "did it", complete: true},
		{name: "behind-work", script: `
    - tools: [{name: Agent, input: {description: d, prompt: look, subagent_type: explore, run_in_background: true}}]
    - text: started
    - {when: {last_contains: task-notification}, text: looked at it}
    - tools: [` + doneTool + `]
  explore:
    - {text: found it, delay: 30ms}
`, origins: []string{"", conversation.TaskOrigin, conversation.AutopilotOrigin}, text: "did it", complete: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*MainConfig) {}
			}
			d := drive(open(t, "\n  main:"+c.script), c.change)
			if d.main.Mode() != "autopilot" || !slices.Contains(d.main.Tools(), "task_complete") {
				t.Errorf("mode %s, tools %q", d.main.Mode(), d.main.Tools())
			}
			d.say("go")
			_, err := d.settle(time.Minute)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("settled with %v, want %q", err, c.err)
			}
			last := d.main.Last()
			if c.last == "" && last.Err != nil || c.last != "" && (last.Err == nil || !strings.Contains(last.Err.Error(), c.last)) {
				t.Errorf("last turn: %v, want %q", last.Err, c.last)
			}
			if c.last == "" && last.Result.Text != c.text {
				t.Errorf("answer %q, want %q", last.Result.Text, c.text)
			}
			if got := d.origins(); !slices.Equal(got, c.origins) {
				t.Errorf("turns %q, want %q", got, c.origins)
			}
			s := d.until("rest", isIdle)
			if complete := s.Completed != nil && s.Completed.Success; complete != c.complete || complete && s.Completed.Summary != "did it" {
				t.Errorf("state %+v", s)
			}
		})
	}
}

// TestAutopilotAbort has the user break a turn off: nobody is reminded until the
// next prompt, which is work anew.
func TestAutopilotAbort(t *testing.T) {
	begun := make(chan struct{}, 10)
	r, _ := served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(string(q.Body), "second-prompt") {
			return blocks(modeltest.ToolUse("", "task_complete", map[string]any{"summary": "did it"}))
		}
		begun <- struct{}{}
		<-ctx.Done()
		return modeltest.Answer{}
	})
	d := drive(r)
	d.say("go")
	<-begun
	d.main.Interrupt()
	if turn := d.next(); !errors.Is(turn.Err, conversation.ErrInterrupted) {
		t.Errorf("turn %+v", turn)
	}
	if _, err := d.settle(time.Minute); err != nil || len(d.turns) != 0 || len(begun) != 0 {
		t.Errorf("%v, %d turns, %d requests", err, len(d.turns), len(begun))
	}
	d.say("second-prompt")
	if _, err := d.settle(time.Minute); err != nil || d.next().Result.Text != "did it" {
		t.Errorf("again: %v", err)
	}
}

// TestAutopilotAbortBetween has the user break off the wait for an agent: the work
// has not failed.
func TestAutopilotAbortBetween(t *testing.T) {
	d := drive(open(t, `
  main:
    - tools: [`+workTool+`, run_in_background: true}}]
    - text: started
  explore:
    - {text: late, delay: 1h}
`))
	d.say("go")
	d.next()
	d.main.Interrupt()
	if _, err := d.settle(time.Minute); err != nil || len(d.turns) != 0 {
		t.Errorf("%v, %d turns", err, len(d.turns))
	}
}

// TestNoAutopilot is an ordinary conversation: no such tool, no reminders, and a
// text ends the turn.
func TestNoAutopilot(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": {modeltest.Text("I think that is all.")}}))
	c := converse(r)
	c.say("go")
	if _, err := c.settle(time.Minute); err != nil || c.main.Mode() != "interactive" {
		t.Errorf("%v, %s", err, c.main.Mode())
	}
	asked := of(server, "main")
	if len(asked) != 1 || slices.Contains(toolNames(params(t, asked[0])), "task_complete") {
		t.Errorf("%d requests", len(asked))
	}
	if s := c.until("rest", isIdle); s.Completed != nil {
		t.Errorf("state %+v", s)
	}
}

// told is what a face hears of a session, in order.
type told struct {
	mu     sync.Mutex
	events []string // guarded by mu
}

func (h *told) hear(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, what)
}

// listen notes the ends of calls and, beside each, what the state says of the
// work by then.
func (h *told) listen(r **testSession) func(*Config) {
	return func(c *Config) {
		c.Agents.On = func(_ task.ID, e agent.Event) {
			if e.Kind != agent.ToolDoneEvent && e.Kind != agent.TurnDoneEvent {
				return
			}
			s, err := (*r).State(context.Background(), control.StateRequest{})
			what := "turn ended"
			if e.Kind == agent.ToolDoneEvent {
				what = fmt.Sprintf("%s error=%v", e.Call.Name, e.Output.IsError)
			}
			if s.Completed != nil {
				what += fmt.Sprintf(", completed %d %v", s.Completed.N, s.Completed.Success)
			}
			if err != nil {
				what += err.Error()
			}
			h.hear(what)
		}
	}
}

// TestCompletionOrder is that a call is told of before what follows from it, and
// what a call without a summary counts for.
func TestCompletionOrder(t *testing.T) {
	var h told
	var r *testSession
	r = open(t, `
  main:
    - tools: [{name: task_complete}]
    - tools: [`+doneTool+`, `+doneTool+`]
`, h.listen(&r))
	d := drive(r)
	d.say("go")
	if _, err := d.settle(time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []string{"task_complete error=true", "task_complete error=false, completed 1 false", "task_complete error=true, completed 2 true", "turn ended, completed 2 true"}
	if !slices.Equal(h.events, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(h.events, "\n"), strings.Join(want, "\n"))
	}
}

// TestCompletionVeto has a hook at the end of a turn hold the completion back.
func TestCompletionVeto(t *testing.T) {
	var h told
	var r *testSession
	r = open(t, `
  main:
    - tools: [`+doneTool+`]
    - {when: {last_contains: run the tests first}, tools: [`+doneTool+`]}
`, h.listen(&r), func(c *Config) {
		once := `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"[ -e asked ] || { touch asked; echo run the tests first >&2; exit 2; }"}]}]}}`
		c.Agents.Hooks, _ = hook.Load([]hook.Source{{Path: "test", Data: []byte(once), Trusted: true}})
	})
	d := drive(r)
	d.say("go")
	if _, err := d.settle(time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []string{"task_complete error=true", "task_complete error=false", "turn ended, completed 1 true"}
	if !slices.Equal(h.events, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(h.events, "\n"), strings.Join(want, "\n"))
	}
}

// TestReminderHidden is that a reminder is no prompt of the user's: hooks do not
// hear it, and the transcript marks it.
func TestReminderHidden(t *testing.T) {
	d := drive(open(t, `
  main:
    - text: I think that is all.
    - tools: [`+doneTool+`]
`, func(c *Config) {
		deny := `{"hooks":{"UserPromptSubmit":[{"hooks":[{"type":"command","command":"[ ! -e heard ] || exit 2; touch heard"}]}]}}`
		c.Agents.Hooks, _ = hook.Load([]hook.Source{{Path: "test", Data: []byte(deny), Trusted: true}})
	}))
	d.say("go")
	if _, err := d.settle(time.Minute); err != nil {
		t.Error(err)
	}
	if got := d.origins(); !slices.Equal(got, []string{"", conversation.AutopilotOrigin}) {
		t.Errorf("turns %q", got)
	}
	messages := d.main.Messages()
	blocks, err := messages[2].Blocks()
	if err != nil || len(blocks) != 1 || !strings.HasPrefix(blocks[0].Text, "<system-reminder>\n") {
		t.Errorf("%+v, %v", blocks, err)
	}
}
