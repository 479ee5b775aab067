package shell

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// capsEvery is how often the sizes of all running outputs are looked at: a child
// that owns its descriptor cannot be held back, only ended.
const capsEvery = time.Second

// A command whose output grows by quickGrowth from look to look is looked at
// more closely; a command that then reads it at loopLooks looks in a row feeds
// on itself.
const (
	quickGrowth = 64 << 10
	loopLooks   = 3
)

// caps ends commands whose output has reached its limit, those that grow when
// all outputs together are too much, those that read what they write, and those that
// have too many processes. One timer serves all, and none runs while nothing is
// watched.
type caps struct {
	written   func(bytes int64) error // see [Config.Written]
	table     *process.Table
	processes processLimit // used by look only

	mu      sync.Mutex
	memory  memory               // its counts are guarded by mu
	all     map[*capped]struct{} // guarded by mu
	timer   *time.Timer          // runs, or look does, while all is not empty; guarded by mu
	looking bool                 // guarded by mu
}

type capped struct {
	out    task.Output      // nil: its output is not watched
	leader process.Identity // of its group
	mark   string           // of those that left it
	cancel context.CancelCauseFunc
	size   int64           // at the last look; used by look only, as loops is
	loops  int             // looks in a row at which it grew quickly and was read by its own command
	kills  []process.Kills // at the start and at each look, the last few; guarded by the mutex of caps
}

// watch ends the context when a limit is reached; of nil only the processes are
// looked at. The caller calls drop.
func (c *caps) watch(out task.Output, g *process.Group, id task.ID, cancel context.CancelCauseFunc) *capped {
	x := &capped{leader: g.Identity(), mark: string(id), cancel: cancel}
	if out != nil && out.Limit() > 0 {
		x.out, x.size = out, out.Size()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*capped]struct{}{}
	}
	x.kills = []process.Kills{c.memory.recent()}
	c.all[x] = struct{}{}
	if len(c.all) == 1 && !c.looking {
		c.timer = time.AfterFunc(capsEvery, c.look)
	}
	return x
}

func (c *caps) drop(x *capped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, x)
	if len(c.all) == 0 {
		c.timer.Stop()
	}
}

// look reads the table of processes, if it must, while others may come and go: that
// takes long on a machine that has very many.
func (c *caps) look() {
	watched, growing, over := c.measure()
	if len(watched) == 0 {
		return
	}
	table := sync.OnceValue(c.table.Read) // at most one for all
	for _, x := range watched {
		if fail := c.judge(x, growing[x], over, table); fail != nil {
			x.cancel(fail)
		}
	}
	c.limitProcesses(watched, table)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking = false
	if len(c.all) > 0 {
		c.timer.Reset(capsEvery)
	}
}

// measure returns the watched commands, the growth of the growing ones, and the reason why none may grow.
func (c *caps) measure() (watched []*capped, growing map[*capped]int64, over error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil, nil, nil
	}
	c.looking = true
	growing = map[*capped]int64{}
	var sum int64
	kills := c.memory.next()
	for x := range c.all {
		watched = append(watched, x)
		x.kills = append(x.kills, kills)
		x.kills = x.kills[max(0, len(x.kills)-keptCounts):]
		if x.out == nil {
			continue
		}
		size := x.out.Size()
		if more := size - x.size; more > 0 {
			growing[x], sum = more, sum+more
		}
		x.size = size
	}
	if c.written != nil {
		over = c.written(sum)
	}
	return watched, growing, over
}

// judge says why a command must end, which has printed so much since the last
// look; over is why nothing may grow, and table reads the table of processes.
func (c *caps) judge(x *capped, more int64, over error, table func() []process.Proc) error {
	if x.out == nil {
		return nil
	}
	if limit := x.out.Limit(); x.size >= limit {
		return &task.FailError{
			Reason: task.ReasonOutputLimit,
			Err:    fmt.Errorf("the output reached its limit of %d bytes", limit),
		}
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
	return &task.FailError{
		Reason: task.ReasonOutputLoop,
		Err: fmt.Errorf(
			"process %d of the command reads the output that the command writes, which would grow without end (write to another file, or read one)",
			reader.PID,
		),
	}
}

// reader is a process of the command that has its output open for reading. Who
// reads the output of another task does no harm.
func (c *caps) reader(x *capped, table func() []process.Proc) process.Proc {
	own, err := os.Stat(x.out.Path())
	if err != nil {
		return process.Proc{}
	}
	for _, p := range table() {
		if (p.Group == x.leader.PID || p.Carries(process.MarkTask, x.mark)) && process.Reads(p.PID, own) {
			return p
		}
	}
	return process.Proc{}
}
