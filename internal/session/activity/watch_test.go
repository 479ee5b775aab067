package activity

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/task"
)

// A run that was told of is not told of again when it goes on after a pause, nor by
// the next host; a run that was not is watched.
func TestStallOnce(t *testing.T) {
	r := task.Record{Kind: task.LocalBash, Status: task.Running, Backgrounded: true}
	with := func(do func(*task.Record)) task.Record { c := r; do(&c); return c }
	w, look := follow(nil, r)
	if w == nil || !look || w.Reported() {
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
		if again, look := follow(still, r); again != w || !look || !again.Reported() {
			t.Errorf("after %s it is told of again", name)
		}
	}
	if w, look := follow(nil, with(func(r *task.Record) { r.Progress = &task.Progress{Summary: "It seems to wait for an answer: x?"} })); !look || !w.Reported() {
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

// An output that has grown since the last look is not read, whatever it ends with;
// one that has not is, and what it asks is told once.
func TestStallLook(t *testing.T) {
	w, tasks := watch(t, options.Options{Tasks: options.Tasks{StallAfter: time.Nanosecond}}) // any two looks are so far apart
	rec := task.Record{ID: "b00000000", Kind: task.LocalBash, Status: task.Running, Backgrounded: true, Owner: "s00000000",
		Description: "asks", OutputFile: w.place.Output("b00000000")}
	f, err := os.OpenFile(rec.OutputFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	output, rules, table := &stall.Watch{}, stall.New, &process.Table{}
	look := func(what, grows string, told int) {
		t.Helper()
		if _, err := f.WriteString(grows); err != nil {
			t.Fatal(err)
		}
		w.lookAtOutput(rec, output, rules, table)
		if got := tasks.posted; len(got) != told {
			t.Fatalf("%s: told %d times, want %d: %+v", what, len(got), told, got)
		}
	}
	look("first seen", "Continue? [y/N] ", 0)
	look("grown", "no\nContinue? [y/N] ", 0)
	look("grown again", "no\nworks on it", 0)
	look("quiet, and no question", "", 0)
	look("a question", "\nContinue? [y/N] ", 0)
	look("quiet", "", 1)
	look("quiet still", "", 1)
	look("another", "no\nReally? [y/N] ", 1)
	look("quiet after another", "", 1)
	if text := tasks.posted[0].Text; !strings.Contains(text, "seems to wait for an answer") || !strings.Contains(text, "Continue? [y/N]") {
		t.Errorf("told %q", text)
	}
}

// With the usual 45 s the looks are 5 s apart.
func TestLooks(t *testing.T) {
	if every := 45 * time.Second / looks; every != 5*time.Second || stall.TailBytes != 1024 {
		t.Errorf("every %s, the last %d bytes", every, stall.TailBytes)
	}
}
