package session

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/process"
)

// sweepGrace is how long a process that escaped its group may take to go.
const sweepGrace = time.Second

// sweep ends every process that carries the mark of the session, except what
// belongs to a kept task.
func sweep(session string, kept map[string]bool) {
	choice := process.Choice{Root: func(p process.Proc) bool { return p.Carries(process.MarkSession, session) }}
	if len(kept) > 0 {
		choice.Spare = func(p process.Proc) bool {
			for id := range kept {
				if p.Carries(process.MarkTask, id) {
					return true
				}
			}
			return false
		}
	}
	process.EndAll(context.Background(), choice, process.Ending{Grace: sweepGrace})
}
