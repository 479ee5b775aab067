package drover

import (
	"context"
	"errors"
	"iter"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Get returns the current record of a task; ref is an ID, the beginning of one, or a name.
func (rt *Runtime) Get(ctx context.Context, ref string) (task.Record, error) {
	return rt.s.Get(ctx, ref)
}

// List returns all tasks of the session, newest first.
func (rt *Runtime) List(ctx context.Context) ([]task.Record, error) {
	page, err := rt.s.List(ctx, control.ListRequest{All: true})
	return page.Tasks, err
}

// Result is the answer of an agent, or the end of a command's output, once the
// task has ended.
func (rt *Runtime) Result(ctx context.Context, id task.ID) (string, error) {
	a, err := control.WholeResult(ctx, rt.s, string(id))
	return a.Text, err
}

// Events yields every change of every task after a number, then waits for more
// until ctx ends or the runtime is closed. A reader that is slow, or comes back
// later with the last number it saw, misses nothing.
func (rt *Runtime) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for e, err := range rt.s.Events(ctx, after) {
			if err != nil && errors.Is(err, context.Cause(ctx)) {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Stats counts the work of a runtime so far.
type Stats struct {
	Live   int   // tasks that have not ended
	Total  int   // tasks
	Tokens int64 // of models
	Output int64 // bytes of output files
}

// Stats counts the tasks of the runtime and sums their use.
func (rt *Runtime) Stats(ctx context.Context) (Stats, error) {
	all, err := rt.List(ctx)
	if err != nil {
		return Stats{}, err
	}
	out := Stats{Total: len(all)}
	for _, r := range all {
		if !r.Status.Terminal() {
			out.Live++
		}
		used := r.Spent()
		out.Tokens += used.Tokens
		out.Output += used.OutputBytes
	}
	return out, nil
}
