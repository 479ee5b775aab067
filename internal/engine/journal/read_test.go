package journal

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Tasks come in the order of their first events, whatever their names and however
// they ended.
func TestOrder(t *testing.T) {
	const tasks = 2*walkPiece + 1
	j := open(t, filepath.Join(t.TempDir(), "s.db"), Options{})
	var made []task.ID
	all := make([]lifecycle.Entry, 0, 2*tasks)
	for n := range tasks {
		r := record((n*7919 + 5) % tasks) // 7919 is a prime: each comes once
		made = append(made, r.ID)
		all = append(all, lifecycle.Entry{Verb: task.Create, Task: r})
	}
	for n := range tasks {
		r := record(n)
		r.Status = task.Running
		all = append(all, lifecycle.Entry{Verb: task.Begin, Task: r})
	}
	if _, errs := j.AppendAll(t.Context(), all); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs)
	}
	ids := func(states []State) (ids []task.ID) {
		for _, s := range states {
			ids = append(ids, s.Task.ID)
		}
		return ids
	}
	states, err := j.Tasks(t.Context())
	if err != nil || !slices.Equal(ids(states), made) {
		t.Errorf("all tasks: %v, %d of them, in another order than %v", err, len(states), made[:3])
	}
	var walked []task.ID
	err = j.Walk(t.Context(), func(states []State) error {
		walked = append(walked, ids(states)...)
		return nil
	})
	if err != nil || !slices.Equal(walked, made) {
		t.Errorf("a walk: %v, %d of them, in another order", err, len(walked))
	}
}
