package shell

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/process"
	"github.com/drover-dev/drover/task"
)

// capsEvery is how often the sizes of all running outputs are looked at: a child
// that owns its descriptor cannot be held back, only ended.
const capsEvery = time.Second

// A command whose output grows by quickGrowth from look to look is looked at
// more closely; one that is then seen reading it loopLooks times in a row feeds
// on itself.
const (
	quickGrowth = 64 << 10
	loopLooks   = 3
)

// caps ends commands whose output has reached its limit, those that grow when
// all outputs together are too much, and those that read what they write. One
// timer serves all, and none runs while nothing is watched. Its zero value
// works.
type caps struct {
	grown func(bytes int64) error // see [Config.Grown]
	table *process.Table
	every time.Duration // 0: capsEvery

	mu    sync.Mutex
	all   map[*capped]struct{} // guarded by mu
	timer *time.Timer          // runs while all is not empty; guarded by mu
}

type capped struct {
	out    task.Output
	group  int    // of processes
	mark   string // of those that left it
	cancel context.CancelCauseFunc
	size   int64 // at the last look
	loops  int   // looks in a row at which it grew quickly and was read by its own command
}

// watch ends the context when the limit is reached. The caller calls stop.
func (c *caps) watch(out task.Output, g *process.Group, id task.ID, cancel context.CancelCauseFunc) (stop func()) {
	if out.Limit() <= 0 {
		return func() {}
	}
	x := &capped{out: out, group: g.Identity().PID, mark: string(id), cancel: cancel, size: out.Size()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*capped]struct{}{}
	}
	c.all[x] = struct{}{}
	if len(c.all) == 1 {
		c.timer = time.AfterFunc(c.pause(), c.look)
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

func (c *caps) pause() time.Duration {
	if c.every > 0 {
		return c.every
	}
	return capsEvery
}

func (c *caps) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return
	}
	growing := map[*capped]int64{}
	var sum int64
	for x := range c.all {
		size := x.out.Size()
		if more := size - x.size; more > 0 {
			growing[x], sum = more, sum+more
		}
		x.size = size
	}
	var over error
	if c.grown != nil {
		over = c.grown(sum)
	}
	table := sync.OnceValue(c.table.Read) // at most one for all that grow quickly
	for x := range c.all {
		if fail := c.judge(x, growing[x], over, table); fail != nil {
			x.cancel(fail)
		}
	}
	c.timer.Reset(c.pause())
}

// judge says why a command must end, which has printed so much since the last
// look; over is why nothing may grow, and table reads the table of processes.
func (c *caps) judge(x *capped, more int64, over error, table func() []process.Proc) error {
	if limit := x.out.Limit(); x.size >= limit {
		return &task.FailError{Reason: task.ReasonOutputLimit, Err: fmt.Errorf("the output reached its limit of %d bytes", limit)}
	}
	if more > 0 && over != nil {
		return &task.FailError{Reason: task.ReasonOutputQuota, Err: over}
	}
	reader := process.Proc{}
	if more >= quickGrowth {
		reader = c.reader(x, table)
	}
	if reader.PID == 0 {
		x.loops = 0
		return nil
	}
	if x.loops++; x.loops < loopLooks {
		return nil
	}
	return &task.FailError{Reason: task.ReasonOutputLoop,
		Err: fmt.Errorf("process %d of the command reads the output that the command writes, which would grow without end (write to another file, or read one)", reader.PID)}
}

// reader is a process of the command that has its output open for reading. Who
// reads the output of another task does no harm.
func (c *caps) reader(x *capped, table func() []process.Proc) process.Proc {
	own, err := os.Stat(x.out.Path())
	if err != nil || c.table == nil {
		return process.Proc{}
	}
	for _, p := range table() {
		if (p.Group == x.group || p.Carries(process.MarkTask, x.mark)) && process.Reads(p.PID, own) {
			return p
		}
	}
	return process.Proc{}
}
