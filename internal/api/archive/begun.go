package archive

import (
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// beganWait is how long to wait for the exit file of a kept command that began and ended before
// its process was recorded.
const beganWait = 50 * time.Millisecond

// Begun finds kept commands that are pending in the log although they have begun: their host
// died after the start, before it recorded the process. They are found by their mark, or by
// their exit file.
//
// A task that is not in the result has not begun, and will not.
func Begun(states []journal.State, exitFile func(task.ID) string) map[task.ID]task.Process {
	var sought []task.ID
	for _, s := range states {
		if r := s.Task; r.Traits().Work == task.ByCommand && r.Keep && r.Status == task.Pending && r.Process == nil {
			sought = append(sought, r.ID)
		}
	}
	found := map[task.ID]task.Process{}
	var table process.Table
	for until := time.Now().Add(beganWait); len(found) < len(sought); {
		procs := table.Read()
		for _, id := range sought {
			if _, done := found[id]; done {
				continue
			}
			if p, ok := process.Leader(procs, process.MarkTask, string(id)); ok {
				found[id] = task.Process{PID: p.PID, Start: p.Start, Boot: process.Boot()}
			} else if d, err := process.ReadDeparture(exitFile(id), process.Identity{}); err == nil {
				found[id] = task.Process{PID: d.PID, Start: d.Start, Boot: process.Boot()}
			}
		}
		if !time.Now().Before(until) {
			break
		}
		time.Sleep(noteTick) // the writer cannot wake this process
	}
	return found
}
