package session

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

// A run that was told of is not told of again when it goes on after a pause, nor by
// the next host; a run that was not is watched.
func TestStallOnce(t *testing.T) {
	r := task.Record{Kind: task.LocalBash, Status: task.Running, Backgrounded: true}
	with := func(do func(*task.Record)) task.Record { c := r; do(&c); return c }
	w, look := follow(nil, r)
	if w == nil || !look || w.Told() {
		t.Fatalf("a new run: %+v, %v", w, look)
	}
	w.Over()
	for name, c := range map[string]task.Record{
		"paused": with(func(r *task.Record) { r.Paused = true }), "stopping": with(func(r *task.Record) { r.Stopping = true }),
	} {
		still, look := follow(w, c)
		if still != w || look {
			t.Errorf("%s: %+v, %v", name, still, look)
		}
		if again, look := follow(still, r); again != w || !look || !again.Told() {
			t.Errorf("after %s it is told of again", name)
		}
	}
	if w, look := follow(nil, with(func(r *task.Record) { r.Progress = &task.Progress{Summary: "It seems to wait for an answer: x?"} })); !look || !w.Told() {
		t.Error("told of by an earlier host, and again")
	}
	for name, c := range map[string]task.Record{
		"ended": with(func(r *task.Record) { r.Status = task.Completed }), "an agent": with(func(r *task.Record) { r.Kind = task.LocalAgent }),
		"in the foreground": with(func(r *task.Record) { r.Backgrounded = false }),
	} {
		if w, look := follow(nil, c); w != nil || look {
			t.Errorf("%s is watched", name)
		}
	}
}
