package supervise

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/task"
)

// An agent that starts another for each of its children that ends must not do so
// while a stop works its way up to it: the tree is frozen before anything in it
// ends.
func TestStopRegrowing(t *testing.T) {
	for name, below := range map[string]bool{"root": false, "below": true} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Log: &memLog{}})
			defer s.Close()
			begun := make(chan struct{})
			var again atomic.Int32
			regrows := work(func(ctx context.Context, h task.Host) (task.Result, error) {
				var last chan struct{} // lets the latest child end
				for n := range 20 {    // without a freeze there is no end to it
					asked, tried := make(chan struct{}), make(chan struct{})
					_, err := h.Spawn(context.WithoutCancel(ctx), work(func(ctx context.Context, _ task.Host) (task.Result, error) {
						<-ctx.Done()
						close(asked)
						<-tried // its parent is asked when it has ended
						return task.Result{}, context.Cause(ctx)
					}), task.Spec{})
					if last != nil {
						close(last)
					}
					switch {
					case err != nil:
						return until(ctx, h)
					case n > 0:
						again.Add(1)
					default:
						close(begun)
					}
					<-asked
					last = tried
				}
				close(last)
				return until(ctx, h)
			})
			d := regrows
			if below {
				d = func(ctx context.Context, h task.Host) (task.Result, error) {
					if _, err := h.Spawn(ctx, regrows, task.Spec{}); err != nil {
						return task.Result{}, err
					}
					return until(ctx, h)
				}
			}
			root := start(t, s, d, task.Spec{})
			<-begun
			receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
			if err != nil || len(receipt.Survivors) != 0 {
				t.Errorf("receipt %+v, %v", receipt, err)
			}
			if n := again.Load(); n != 0 {
				t.Errorf("%d children began while their tree was stopped", n)
			}
		})
	}
}
