package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

func manyTurns(limit time.Duration) func(*Config) {
	return func(c *Config) {
		c.Options.Agents.MultiTurn, c.Options.Agents.IdleTimeout, c.Options.Limits.Live = true, limit, 1
	}
}

// idle waits until an agent rests.
func (r *testSession) idle(id task.ID) task.Record {
	r.t.Helper()
	for {
		committed := r.NextCommit()
		rec := r.tree.Latest(id)
		if rec.Idle || rec.Status.Terminal() {
			return rec
		}
		select {
		case <-committed:
		case <-r.ctx.Done():
			r.t.Fatal(context.Cause(r.ctx))
		}
	}
}

// With many turns an agent rests after its answer, tells it to its owner, leaves
// its place to another, and answers a message in the same run.
func TestRest(t *testing.T) {
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		return modeltest.Text("answer to " + q.LastText())
	}, manyTurns(time.Hour))
	rt := r.asMain()
	out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "first", Type: "explore", Name: "ada", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	id := out.Task.ID
	if rec := r.idle(id); rec.Status != task.Running || !rec.Idle {
		t.Fatalf("after the answer %+v", rec)
	}
	box, err := r.log.Unread(r.ctx, r.cfg.Info.Session)
	if err != nil || len(box) != 1 || box[0].Kind != task.AgentIdle || box[0].From != "ada" || !strings.Contains(box[0].Text, "answer to first") {
		t.Errorf("the owner was told %+v, %v", box, err)
	}
	if rec, timedOut, err := rt.Wait(r.ctx, string(id), patience); err != nil || timedOut || !rec.Idle {
		t.Errorf("a wait for an idle agent: %+v, %v, %v", rec, timedOut, err)
	}
	other, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "other", Type: "plan"})
	if err != nil || other.Text != "answer to other" {
		t.Errorf("the place of the idle agent: %+v, %v", other, err)
	}
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: "ada", Text: "second"}); err != nil {
		t.Fatal(err)
	}
	got, err := rt.Responses(r.ctx, "ada", 0, patience)
	for err == nil && r.ctx.Err() == nil && len(got.List) == 0 && got.Task.Idle { // it has not woken yet
		got, err = rt.Responses(r.ctx, "ada", 0, patience)
	}
	if err != nil || len(got.List) != 1 || !strings.Contains(got.List[0].Text, "second") || got.List[0].Turn != 1 {
		t.Errorf("the second answer: %+v, %v", got, err)
	}
	if rec := r.idle(id); rec.Run != out.Task.Run {
		t.Errorf("another run %+v", rec)
	}
	if body := string(of(server, "explore")[1].Body); !strings.Contains(body, "answer to first") {
		t.Errorf("the second turn was sent %s", body)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"ada"}}); err != nil {
		t.Fatal(err)
	}
	if rec, _ := r.sup.Get(id); rec.Status != task.Killed || rec.Idle {
		t.Errorf("stopped as %+v", rec)
	}
}

// An idle agent to whom nobody writes has completed, as it has when its session
// closes; without the setting it never rests.
func TestRestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		close  bool
	}{
		"time":    {manyTurns(time.Millisecond), false},
		"closing": {manyTurns(time.Hour), true},
		"off":     {func(*Config) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("done") }, tt.change)
			out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "explore", Background: true})
			if err != nil {
				t.Fatal(err)
			}
			id := string(out.Task.ID)
			if tt.close {
				r.idle(out.Task.ID)
				r.reopen()
			} else {
				r.wait(id)
			}
			rec, err := r.Get(r.ctx, id)
			if err != nil || rec.Status != task.Completed {
				t.Errorf("ended as %+v, %v", rec, err)
			}
			if a, err := control.WholeResult(r.ctx, r, id); err != nil || a.Text != "done" {
				t.Errorf("answer %+v, %v", a, err)
			}
			rested := false
			events, err := r.Since(r.ctx, 0)
			for _, e := range events {
				rested = rested || e.Verb == task.Rest
			}
			if err != nil || rested == (name == "off") {
				t.Errorf("rested: %v, %v", rested, err)
			}
		})
	}
}

// An agent whose turn is broken off keeps its task, and goes on with a message;
// one to whom nobody writes then has failed.
func TestInterruptAgent(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	defer close(hold)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("turned left")
		if !strings.Contains(q.LastText(), "go left") {
			asked <- struct{}{}
			a.Wait = hold
		}
		return a
	}, func(c *Config) { c.Options.Agents.IdleTimeout = time.Hour })
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "first", Type: "explore", Name: "ada", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if rec, err := r.Interrupt(r.ctx, "ada"); err != nil || rec.ID != out.Task.ID {
		t.Fatalf("interrupted %+v, %v", rec, err)
	}
	if rec := r.idle(out.Task.ID); !rec.Idle || rec.Status != task.Running {
		t.Fatalf("after the interrupt %+v", rec)
	}
	if _, err := r.Interrupt(r.ctx, "ada"); code(err) != control.Conflict {
		t.Errorf("interrupted while idle: %v", err)
	}
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: "ada", Text: "go left"}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(string(out.Task.ID)); got[0].Status != task.Completed || got[0].Run != out.Task.Run {
		t.Errorf("ended as %+v", got[0])
	}
	if a, err := control.WholeResult(r.ctx, r, "ada"); err != nil || a.Text != "turned left" {
		t.Errorf("answer %+v, %v", a, err)
	}

	r.cfg.Options.Agents.IdleTimeout = time.Millisecond
	r.reopen()
	if out, err = r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "second", Type: "explore", Name: "bob", Background: true}); err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := r.Interrupt(r.ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(string(out.Task.ID)); got[0].Status != task.Failed || got[0].Cause.Reason != "interrupted" {
		t.Errorf("ended as %+v", got[0])
	}
}
