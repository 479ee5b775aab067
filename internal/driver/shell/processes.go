package shell

import (
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// countLooks is after how many looks the processes of commands are counted at the
// latest, once the machine has more than one command may have.
const countLooks = 10

// processLimit decides when the processes of each command are counted.
type processLimit struct {
	most  int // of one command; 0: any
	all   int // of the machine, the fewest since the last count
	room  int // what the largest command could still have at the last count
	looks int // since then
}

// due reports whether a command may have passed the limit since the last count, on
// a machine that has so many processes now; 0: fewer than the limit.
func (c *processLimit) due(all int) bool {
	c.looks++
	c.all = min(c.all, all)
	return all > 0 && (all-c.all >= c.room || c.looks >= countLooks)
}

// counted keeps the result of a count.
func (c *processLimit) counted(all, largest int) {
	c.all, c.room, c.looks = all, max(1, c.most-largest), 0
}

// limitProcesses ends commands that have too many processes. Only look calls it.
func (c *caps) limitProcesses(watched []*capped, table func() []process.Proc) {
	if c.processes.most <= 0 {
		return
	}
	all := process.CountAbove(c.processes.most)
	if !c.processes.due(all) {
		return
	}
	families, largest := process.NewFamilies(table()), 0
	for _, x := range watched {
		n := families.Size(x.leader, x.mark)
		if largest = max(largest, n); n <= c.processes.most {
			continue
		}
		why := fmt.Sprintf("it had %d processes, more than tasks.maxProcesses, %d", n, c.processes.most)
		x.cancel(&task.FailError{Reason: task.ReasonProcessLimit, Err: errors.New(why), Detail: why})
	}
	c.processes.counted(all, largest)
}
