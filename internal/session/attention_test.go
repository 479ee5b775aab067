package session

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// attends waits until the list has items of these kinds, in this order.
func (r *testSession) attends(kinds ...attention.Kind) control.Attention {
	r.t.Helper()
	var list control.Attention
	for {
		var err error
		if list, err = r.Attention(r.ctx, control.AttentionRequest{After: list.Version, Wait: time.Minute}); err != nil {
			r.t.Fatal(err)
		}
		var got []attention.Kind
		for _, i := range list.Items {
			got = append(got, i.Kind)
		}
		if slices.Equal(got, kinds) {
			return list
		}
	}
}

// Who waits for the list is woken when something comes or goes: a question until it is
// answered, a command that waits until it is stopped, a failure until the user has seen it.
func TestAttention(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Tasks.StallAfter = 100 * time.Millisecond })
	r.attends()
	got := make(asker, 1)
	if _, err := r.sup.Start(r.ctx, got, task.Spec{Backgrounded: true}); err != nil {
		t.Fatal(err)
	}
	q := r.attends(attention.Question).Items[0]
	started, err := r.Start(r.ctx, []control.StartRequest{
		{Cwd: r.folder, Shell: &control.ShellRequest{Line: "exit 3"}},
		{Cwd: r.folder, Shell: &control.ShellRequest{Line: "printf 'Continue? [y/N] '; exec sleep 643"}},
	})
	if err != nil || started[0].Error != nil || started[1].Error != nil {
		t.Fatal(err, started)
	}
	list := r.attends(attention.Question, attention.Stalled, attention.Failure)
	if stalled := list.Items[1]; !strings.Contains(stalled.Why, "Continue? [y/N]") || stalled.Task != started[1].Task.ID {
		t.Errorf("it waits: %+v", stalled)
	}
	failed := string(started[0].Task.ID)
	var refused *control.Error
	if _, err := r.MarkSeen(r.ctx, []string{failed, string(started[1].Task.ID)}); !errors.As(err, &refused) ||
		refused.Code != control.Conflict {
		t.Errorf("what lives is marked: %v", err)
	}
	r.attends(attention.Question, attention.Stalled, attention.Failure)
	for range 2 { // by two clients
		if marked, err := r.MarkSeen(r.ctx, []string{failed}); err != nil || !marked[0].Seen {
			t.Fatal(err, marked)
		}
	}
	r.attends(attention.Question, attention.Stalled)
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(started[1].Task.ID)}}); err != nil {
		t.Fatal(err)
	}
	r.attends(attention.Question) // what the user has stopped is no failure
	answer := control.DecideRequest{ID: q.ID, Digest: q.Request.Digest, Reply: task.Reply{Allow: true}}
	if err := r.Decide(r.ctx, answer); err != nil {
		t.Fatal(err)
	}
	r.attends()
	if err := r.Decide(r.ctx, answer); !errors.As(err, &refused) || refused.Code != control.Conflict {
		t.Errorf("a second answer: %v", err)
	}
}

// A monitor watches when its start returns.
func TestMonitorStands(t *testing.T) {
	r := open(t, "")
	started, err := r.Start(r.ctx, []control.StartRequest{{Cwd: r.folder, Monitor: &control.MonitorRequest{File: r.folder + "/log"}}})
	if err != nil || started[0].Error != nil {
		t.Fatal(err, started)
	}
	if now, _ := r.sup.Get(started[0].Task.ID); now.Progress == nil || now.Progress.Monitor == nil {
		t.Errorf("it does not watch yet: %+v", now)
	}
}
