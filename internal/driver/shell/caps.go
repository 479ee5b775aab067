package shell

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// capsEvery is how often the sizes of all running outputs are looked at: a child
// that owns its descriptor cannot be held back, only ended.
const capsEvery = time.Second

// caps ends commands whose output has reached its limit. One timer serves all,
// and none runs while nothing is watched. Its zero value works.
type caps struct {
	mu    sync.Mutex
	all   map[*capped]struct{} // guarded by mu
	timer *time.Timer          // runs while all is not empty; guarded by mu
}

type capped struct {
	out    task.Output
	cancel context.CancelCauseFunc
}

// watch ends the context when the limit is reached. The caller calls stop.
func (c *caps) watch(out task.Output, cancel context.CancelCauseFunc) (stop func()) {
	if out.Limit() <= 0 {
		return func() {}
	}
	x := &capped{out: out, cancel: cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*capped]struct{}{}
	}
	c.all[x] = struct{}{}
	if len(c.all) == 1 {
		c.timer = time.AfterFunc(capsEvery, c.look)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, x)
		if len(c.all) == 0 {
			c.timer.Stop()
		}
	}
}

func (c *caps) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return
	}
	for x := range c.all {
		if size, limit := x.out.Size(), x.out.Limit(); size >= limit {
			x.cancel(&task.FailError{
				Reason: task.ReasonOutputLimit,
				Err:    fmt.Errorf("the output reached its limit of %d bytes", limit),
			})
		}
	}
	c.timer.Reset(capsEvery)
}
