package archive

import (
	"context"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

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
