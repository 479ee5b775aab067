package shell

import (
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// crowdLooks is after how many looks the processes of commands are counted at the
// latest, once the machine has more than one command may have.
const crowdLooks = 10

// crowd knows when it is worth to count the processes of each command.
type crowd struct {
	most  int // of one command; 0: any
	all   int // of the machine, the fewest since the last count
	room  int // what the largest command could still have at the last count
	looks int // since then
}

// due reports whether a command may have passed the limit since the last count, on
// a machine that has so many processes now; 0: fewer than the limit.
func (c *crowd) due(all int) bool {
	c.looks++
	c.all = min(c.all, all)
	return all > 0 && (all-c.all >= c.room || c.looks >= crowdLooks)
}

// counted remembers what was found.
func (c *crowd) counted(all, largest int) {
	c.all, c.room, c.looks = all, max(1, c.most-largest), 0
}

// crowded ends commands that have too many processes. It is called by look only.
func (c *caps) crowded(watched []*capped, table func() []process.Proc) {
	if c.crowd.most <= 0 {
		return
	}
	all := process.Crowd(c.crowd.most)
	if !c.crowd.due(all) {
		return
	}
	families, largest := process.NewFamilies(table()), 0
	for _, x := range watched {
		n := families.Size(x.leader, x.mark)
		if largest = max(largest, n); n <= c.crowd.most {
			continue
		}
		why := fmt.Sprintf("it had %d processes, more than tasks.maxProcesses, %d", n, c.crowd.most)
		x.cancel(&task.FailError{Reason: task.ReasonProcessLimit, Err: errors.New(why), Detail: why})
	}
	c.crowd.counted(all, largest)
}
