package archive

import (
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A task of a server elsewhere goes on without a host, if it was to be kept and its
// server has made it.
func TestTruthOfMCPTasks(t *testing.T) {
	l := leave(t)
	point := []byte(`{"v":1}`)
	question := &task.Question{ID: "q1", Kind: task.Form}
	l.task(task.Record{ID: "c0kept000", Kind: task.MCPTask, Keep: true}, "", lifecycle.Change{Verb: task.Begin}, lifecycle.Change{Verb: task.Save, Checkpoint: point},
		lifecycle.Change{Verb: task.Ask, Question: question})
	l.task(task.Record{ID: "c0local00", Kind: task.MCPTask}, "", lifecycle.Change{Verb: task.Begin}, lifecycle.Change{Verb: task.Save, Checkpoint: point})
	l.task(task.Record{ID: "c0unmade0", Kind: task.MCPTask, Keep: true}, "", lifecycle.Change{Verb: task.Begin})
	a := l.open()
	for id, want := range map[string]task.Status{"c0kept000": task.Running, "c0local00": task.Killed, "c0unmade0": task.Killed} {
		r, err := a.Get(t.Context(), id)
		if err != nil || r.Status != want || r.AwaitingApproval || len(r.Questions) > 0 {
			t.Errorf("%s: %s %v %v, want %s", id, r.Status, r.Questions, err, want)
		}
	}
	if !a.Kept() {
		t.Error("nobody would take it up")
	}
}
