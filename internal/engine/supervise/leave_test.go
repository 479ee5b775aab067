package supervise

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// A driver leaves the place of its task when nothing below it runs any more,
// whatever ended the run, and what it says of it is part of the end.
func TestLeave(t *testing.T) {
	broken := errors.New("broken")
	kept := &task.Worktree{Path: "/w", Branch: "b"}
	for name, c := range map[string]struct {
		err   error
		stop  bool
		leave func() *task.Worktree
		want  string
	}{
		"good":    {leave: func() *task.Worktree { return kept }, want: "/w"},
		"error":   {err: broken, leave: func() *task.Worktree { return kept }, want: "/w"},
		"stopped": {stop: true, leave: func() *task.Worktree { return kept }, want: "/w"},
		"panic":   {leave: func() *task.Worktree { panic("in the leave") }, want: "in the leave"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &memLog{}
			s := New(Config{Session: "s00000000", Log: log})
			defer s.Close()
			child, begun := make(chan task.ID, 1), make(chan struct{})
			calls := 0
			rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				below, err := h.Spawn(ctx, work(func(ctx context.Context, _ task.Host) (task.Result, error) {
					close(begun)
					<-ctx.Done()
					return task.Result{}, context.Cause(ctx)
				}), task.Spec{Name: "below"})
				if err != nil {
					return task.Result{}, err
				}
				child <- below.ID
				<-begun
				res := task.Result{Leave: func(ctx context.Context) *task.Worktree {
					calls++
					if r, _ := s.Get(below.ID); !r.Status.Terminal() {
						t.Errorf("the child is %s", r.Status)
					}
					if r := h.Record(); r.Status.Terminal() {
						t.Error("the end is recorded before")
					}
					if _, limited := ctx.Deadline(); !limited || ctx.Err() != nil {
						t.Errorf("its context is without end, or over: %v", ctx.Err())
					}
					return c.leave()
				}}
				if c.stop {
					<-ctx.Done()
					return res, context.Cause(ctx)
				}
				return res, c.err
			}), task.Spec{Name: "one", Backgrounded: true})
			<-child
			if c.stop {
				if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}); err != nil {
					t.Fatal(err)
				}
			}
			recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, false)
			if err != nil || calls != 1 || recs[0].Worktree == nil || !strings.Contains(recs[0].Worktree.Path+recs[0].Worktree.Text, c.want) {
				t.Errorf("%d calls, ended as %+v, %v", calls, recs, err)
			}
		})
	}
}
