package child

import (
	"context"
	"slices"
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
		return p.Carries(process.MarkSession, string(session)) && Orphaned(p)
	}, kept)
}

// Orphaned reports whether the host that started a process, or whose task did, has died.
func Orphaned(p process.Proc) bool {
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

// EndSurvivors tries again to end the processes that survived an earlier stop of a task. It
// adds the signals that it sent to the line of the task in the receipt, and the remaining
// processes to the receipt. It skips processes that have ended, or whose PID was reused. They
// were sent KILL before, so a nil grace means none.
func EndSurvivors(ctx context.Context, r task.Record, grace *time.Duration, receipt *task.Receipt) {
	line := slices.IndexFunc(receipt.Stopped, func(s task.Stopped) bool { return s.ID == r.ID })
	if len(r.Survivors) == 0 || line < 0 {
		return
	}
	var ending process.Ending
	if grace != nil {
		ending.Grace = *grace
	}
	report := process.EndAll(ctx, process.Choice{Root: func(p process.Proc) bool {
		return slices.ContainsFunc(r.Survivors, func(s task.Survivor) bool {
			return s.Start != 0 && p.PID == s.PID && p.Start == s.Start && s.Boot == process.Boot()
		})
	}}, ending)
	for _, s := range report.Sent {
		receipt.Stopped[line].Signals = append(receipt.Stopped[line].Signals,
			task.SignalSent{Signal: process.SignalName(s.Signal), AfterMS: s.After.Milliseconds()})
	}
	for _, l := range report.Left {
		receipt.Survivors = append(receipt.Survivors,
			task.Survivor{Task: r.ID, PID: l.PID, Start: l.Start, Boot: l.Boot, Command: l.Command, Why: l.Why})
	}
}
