package session

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// until waits for a state that is as wanted, as a face would.
func (r *testSession) until(what string, want func(control.State) bool) control.State {
	r.t.Helper()
	var now control.State
	for {
		next, err := r.State(r.ctx, control.StateRequest{After: now.Version, Wait: time.Minute})
		if err != nil {
			r.t.Fatalf("no %s: %v; at last %+v", what, err, now)
		}
		if now = next; want(now) {
			return now
		}
	}
}

func isIdle(s control.State) bool { return s.Idle }
func busy(s control.State) bool   { return !s.Idle }

// holder is a task that runs until it is told to end.
type holder struct {
	kind task.Kind
	end  chan struct{}
}

func (h holder) Kind() task.Kind           { return h.kind }
func (holder) Check(json.RawMessage) error { return nil }
func (h holder) Run(ctx context.Context, _ task.Host) (task.Result, error) {
	select {
	case <-h.end:
		return task.Result{}, nil
	case <-ctx.Done():
		return task.Result{}, context.Cause(ctx)
	}
}

// hold starts a task and returns when it runs.
func (r *testSession) hold(kind task.Kind) (task.Record, holder) {
	r.t.Helper()
	h := holder{kind, make(chan struct{})}
	rec, err := r.sup.Start(r.ctx, h, task.Spec{Backgrounded: true, AgentType: string(kind)})
	if err != nil {
		r.t.Fatal(err)
	}
	for e, err := range r.log.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Task.ID == rec.ID && e.Verb == task.Begin {
			return e.Task, h
		}
	}
	return rec, h
}

// What holds a session from being idle: agents at work, of whoever, and neither
// commands nor monitors nor agents that rest.
func TestIdle(t *testing.T) {
	r := open(t, "")
	if s := r.until("rest", isIdle); s.IdleCount != 1 || s.Completed != nil || s.Version == 0 {
		t.Errorf("at first %+v", s)
	}
	r.run("exec sleep 100")
	r.hold(task.MonitorMCP)
	if s := r.until("rest", isIdle); s.IdleCount != 1 {
		t.Errorf("beside a command and a monitor: %+v", s)
	}
	first, h1 := r.hold(task.LocalAgent)
	second, h2 := r.hold(task.LocalWorkflow)
	r.until("work", busy)
	close(h2.end)
	r.wait(string(second.ID))
	if s, err := r.State(r.ctx, control.StateRequest{}); err != nil || s.Idle {
		t.Errorf("one agent is left: %+v, %v", s, err)
	}

	// The agent rests, which the log tells first, and goes on.
	first.Idle = true
	if _, err := r.log.Append(r.ctx, lifecycle.Entry{Verb: task.Rest, At: time.Now(), Task: first}); err != nil {
		t.Fatal(err)
	}
	if s := r.until("rest of the agent", isIdle); s.IdleCount != 2 {
		t.Errorf("while the agent rests: %+v", s)
	}
	first.Idle = false
	if _, err := r.log.Append(r.ctx, lifecycle.Entry{Verb: task.Wake, At: time.Now(), Task: first}); err != nil {
		t.Fatal(err)
	}
	r.until("work again", busy)
	close(h1.end)
	s := r.until("last rest", isIdle)
	if s.IdleCount != 3 {
		t.Errorf("at last %+v", s)
	}
	for e, err := range r.log.Events(r.ctx, 0) { // the state has taken in the end that made it so
		if err != nil || e.Seq > s.Seq {
			t.Fatalf("the end of %s comes behind %d: %v", first.ID, s.Seq, err)
		}
		if e.Task.ID == first.ID && e.Verb == task.Complete {
			break
		}
	}
}

// The session becomes idle once: behind the turn that has told of the last agent,
// and not where the first turn ended, or the agent.
func TestIdleBehindMail(t *testing.T) {
	ask, see := make(chan struct{}), make(chan struct{})
	wait := func(ctx context.Context, ch chan struct{}) {
		select {
		case <-ch:
		case <-ctx.Done():
		}
	}
	r, _ := served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		p := params(t, q)
		switch {
		case q.Agent() == "explore":
			wait(ctx, ask)
			return blocks(agent.TextBlock("found it"))
		case len(p.Messages) == 5: // the notification is told
			wait(ctx, see)
			return blocks(agent.TextBlock("told"))
		case len(p.Messages) == 1:
			return blocks(modeltest.ToolUse("", "Agent", map[string]any{"description": "d", "prompt": "look", "subagent_type": "explore", "run_in_background": true}))
		}
		return blocks(agent.TextBlock("started"))
	})
	c := converse(r)
	before := r.until("rest", isIdle)
	c.say("go")
	c.next()
	if s, err := r.State(r.ctx, control.StateRequest{}); err != nil || s.Idle {
		t.Errorf("the agent is at work: %+v, %v", s, err)
	}
	close(ask)
	r.wait(string(r.only("explore").ID))
	if s, err := r.State(r.ctx, control.StateRequest{}); err != nil || s.Idle {
		t.Errorf("its notification is owed, or being answered: %+v, %v", s, err)
	}
	close(see)
	c.next()
	if s := r.until("rest", isIdle); s.IdleCount != before.IdleCount+1 {
		t.Errorf("before %+v, now %+v", before, s)
	}
	// A turn that nobody saw begin is a rest of its own.
	c.say("again")
	c.next()
	if s := r.until("next rest", isIdle); s.IdleCount != before.IdleCount+2 || s.Completed != nil {
		t.Errorf("now %+v", s)
	}
}

// A wait for another state ends with the time that it was given, and with its
// context.
func TestStateWait(t *testing.T) {
	r := open(t, "")
	now, err := r.State(r.ctx, control.StateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := r.State(r.ctx, control.StateRequest{After: now.Version, Wait: time.Millisecond}); err != nil || same.Version != now.Version {
		t.Errorf("%+v, %v", same, err)
	}
	gone, cancel := context.WithCancelCause(r.ctx)
	cancel(context.Canceled)
	if _, err := r.State(gone, control.StateRequest{After: now.Version, Wait: time.Minute}); err == nil {
		t.Error("it waits although nobody does any more")
	}
}

// Prompts that wait, in whatever number, are work.
func TestIdleQueue(t *testing.T) {
	c := converse(open(t, `
  main:
    - {text: yes, repeat: -1, delay: 5ms}
`))
	c.until("rest", isIdle)
	for range 3 {
		c.say("go")
	}
	if s, err := c.State(c.ctx, control.StateRequest{}); err != nil || s.Idle && len(c.turns) < 3 {
		t.Errorf("%+v, %v", s, err)
	}
	var texts []string
	for range 3 {
		texts = append(texts, c.next().Result.Text)
	}
	if c.until("rest", isIdle); !slices.Equal(texts, []string{"yes", "yes", "yes"}) {
		t.Errorf("%q", texts)
	}
}
