package archive

import (
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// beganWait is how long is waited for the note of a kept command that had begun
// and ended before its process could be recorded.
const beganWait = 50 * time.Millisecond

// Begun finds kept commands that are pending in the log and had begun all the same:
// their host died behind the start, before it had recorded the process. They are
// known by the mark that they carry, or by the note of their end.
//
// What is not in the answer has not begun. Nobody was told that it would, and
// nobody begins it now.
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
		time.Sleep(noteTick) // who writes the note can wake nobody
	}
	return found
}
