package supervise

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// However a task ends, what it has started is ended with it.
func TestOrphansOfEveryEnd(t *testing.T) {
	for name, end := range map[string]struct {
		leave func(ctx context.Context) error
		spec  task.Spec
		want  task.Reason
	}{
		"well":    {func(context.Context) error { return nil }, task.Spec{}, task.ReasonDone},
		"error":   {func(context.Context) error { return errors.New("bad") }, task.Spec{}, task.ReasonError},
		"panic":   {func(context.Context) error { panic("boom") }, task.Spec{}, task.ReasonPanic},
		"goexit":  {func(context.Context) error { runtime.Goexit(); return nil }, task.Spec{}, task.ReasonPanic},
		"timeout": {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, task.Spec{Timeout: time.Minute}, task.ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Log: &memLog{}})
				defer s.Close()
				var child task.Record
				rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
					var err error
					if child, err = h.Spawn(ctx, work(until), task.Spec{}); err != nil {
						t.Error(err)
					}
					return task.Result{}, end.leave(ctx)
				}), end.spec)
				recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, true)
				if err != nil || recs[0].Cause.Reason != end.want {
					t.Fatalf("%+v, %v", recs, err)
				}
				if got, _ := s.Get(child.ID); got.Status != task.Killed || got.Cause.Reason != task.ReasonParentEnded {
					t.Errorf("what it had started is %s: %+v", got.Status, got.Cause)
				}
			})
		})
	}
}
