package session

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// An agent whose provider names a reset in hours is parked: its record says until when and why, it
// is among what needs the user, a message can be left for it, and a stop ends it.
func TestParked(t *testing.T) {
	r, server := served(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.RateLimit("7200") })
	rec, err := start(r, "general-purpose")
	if err != nil {
		t.Fatal(err)
	}
	parked := func(id task.ID) task.Record {
		t.Helper()
		for {
			committed := r.NextCommit()
			if now, _ := r.sup.Get(id); now.Parked != nil || now.Status.Terminal() {
				return now
			}
			select {
			case <-committed:
			case <-r.ctx.Done():
				t.Fatal(context.Cause(r.ctx))
			}
		}
	}
	now := parked(rec.ID)
	if p := now.Parked; p == nil || p.Provider != "anthropic" || time.Until(p.Until) < 119*time.Minute ||
		!strings.Contains(p.Why, "429") {
		t.Fatalf("record %+v", now)
	}
	other, err := start(r, "explore")
	if err != nil {
		t.Fatal(err)
	}
	if p := parked(other.ID).Parked; p == nil || !p.Until.Equal(now.Parked.Until) {
		t.Errorf("another agent of the provider: %+v", p)
	}
	if n := server.Count(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	list, err := r.Attention(r.ctx, control.AttentionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(list.Items, func(i control.AttentionItem) bool { return i.Kind != attention.Parked })); n != 2 {
		t.Errorf("%d parked agents need the user, want 2", n)
	}
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: string(rec.ID), Text: "and then the tests"}); err != nil {
		t.Errorf("send to a parked agent: %v", err)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(rec.ID), string(other.ID)}}); err != nil {
		t.Fatal(err)
	}
	if now, _ := r.sup.Get(rec.ID); now.Status != task.Killed || now.Parked != nil {
		t.Errorf("after a stop: %+v", now)
	}
}

// The user wakes a parked agent before its time, and it goes on where it was.
func TestParkedWakes(t *testing.T) {
	var calls atomic.Int64
	r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		if calls.Add(1) == 1 {
			return modeltest.RateLimit("61")
		}
		return modeltest.Text("done in the night")
	})
	rec, err := start(r, "explore")
	if err != nil {
		t.Fatal(err)
	}
	for {
		committed := r.NextCommit()
		if now, _ := r.sup.Get(rec.ID); now.Parked != nil {
			break
		}
		<-committed
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(rec.ID)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.sup.Wait(r.ctx, []task.ID{rec.ID}, false); err != nil {
		t.Fatal(err)
	}
	if now, _ := r.sup.Get(rec.ID); now.Status != task.Completed || calls.Load() != 2 {
		t.Errorf("after %d calls: %+v", calls.Load(), now)
	}
}

// start starts an agent of a client.
func start(r *testSession, kind string) (task.Record, error) {
	got, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: kind, Prompt: "work"},
		Env: r.cfg.Agents.Env, Cwd: r.folder}})
	if err != nil {
		return task.Record{}, err
	}
	return *got[0].Task, nil
}

// The host of a background session is closed and opened again: the parked agent is parked until
// the same time, calls nobody before, and goes on with what it did when it is woken.
func TestParkedRestart(t *testing.T) {
	var calls atomic.Int64
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch calls.Add(1) {
		case 1:
			return modeltest.Call("Bash", map[string]any{"command": "echo before the night"})
		case 2:
			return modeltest.RateLimit("7200")
		}
		return modeltest.Text("done after it")
	}, func(c *Config) { c.Info.Role = RoleBackground })
	rec, err := start(r, "general-purpose")
	if err != nil {
		t.Fatal(err)
	}
	parked := func() task.Record {
		t.Helper()
		for {
			committed := r.NextCommit()
			if now, _ := r.sup.Get(rec.ID); now.Parked != nil && r.agents.Parking.Holds() || now.Status.Terminal() {
				return now
			}
			select {
			case <-committed:
			case <-r.ctx.Done():
				t.Fatal(context.Cause(r.ctx))
			case <-time.After(10 * time.Millisecond): // that the lot holds it is no event
			}
		}
	}
	before := parked()
	for range 2 {
		r.reopen()
		if now := parked(); now.Parked == nil || !now.Parked.Until.Equal(before.Parked.Until) || now.Run != before.Run {
			t.Fatalf("under the next host: %+v, cause %+v", now, now.Cause)
		}
		if n := calls.Load(); n != 2 {
			t.Fatalf("%d calls, want 2", n)
		}
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(rec.ID)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.sup.Wait(r.ctx, []task.ID{rec.ID}, false); err != nil {
		t.Fatal(err)
	}
	if now, _ := r.sup.Get(rec.ID); now.Status != task.Completed || now.Run != before.Run {
		t.Errorf("at the end: %+v", now)
	}
	last := server.Requests()[len(server.Requests())-1]
	if !strings.Contains(string(last.Body), "before the night") || !strings.Contains(string(last.Body), "Go on where you were") {
		t.Errorf("the last call does not go on: %s", last.Body)
	}
}
