package ended

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// processGrace is how long a process that escaped its group may take to exit.
const processGrace = time.Second

// EndProcesses ends every process that carries the mark of the session, except
// those of the tasks in kept.
func EndProcesses(session task.ID, kept map[task.ID]bool) {
	endProcesses(func(p process.Proc) bool { return p.Carries(process.MarkSession, string(session)) }, kept)
}

// EndOrphans is [EndProcesses] for processes whose host has died.
func EndOrphans(session task.ID, kept map[task.ID]bool) {
	endProcesses(func(p process.Proc) bool {
		return p.Carries(process.MarkSession, string(session)) && orphaned(p)
	}, kept)
}

// orphaned reports whether the host that started a process, or whose task did, has died.
func orphaned(p process.Proc) bool {
	host, err := process.ParseMark(p.Mark(process.MarkHost))
	return err == nil && !process.Alive(host)
}

func endProcesses(root func(process.Proc) bool, kept map[task.ID]bool) {
	choice := process.Choice{Root: root}
	if len(kept) > 0 {
		choice.Spare = func(p process.Proc) bool {
			for id := range kept {
				if p.Carries(process.MarkTask, string(id)) {
					return true
				}
			}
			return false
		}
	}
	process.EndAll(context.Background(), choice, process.Ending{Grace: processGrace})
}
