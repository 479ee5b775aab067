package session

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// sweepGrace is how long a process that escaped its group may take to go.
const sweepGrace = time.Second

// sweep ends every process that carries the mark of the session, except what
// belongs to a kept task.
func sweep(session string, kept map[string]bool) {
	sweepOf(func(p process.Proc) bool { return p.Carries(process.MarkSession, session) }, kept)
}

// sweepLost ends what earlier hosts have started and did not live to record.
func (s *Session) sweepLost() {
	kept := map[string]bool{}
	for _, r := range s.sup.List(0) {
		if r.Keep && !r.Status.Terminal() {
			kept[string(r.ID)] = true
		}
	}
	session := string(s.cfg.Info.Session)
	sweepOf(func(p process.Proc) bool { return p.Carries(process.MarkSession, session) && hostless(p) }, kept)
}

func sweepOf(root func(process.Proc) bool, kept map[string]bool) {
	choice := process.Choice{Root: root}
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
