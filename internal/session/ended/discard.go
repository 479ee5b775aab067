package ended

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// keeping says why a session must stay, and how many notifications it owes.
type keeping func(context.Context, home.Session, control.Info) (why string, owed int, err error)

// Discard is [Session.Remove] of a session that may owe notifications, and whose log may be
// damaged. Then what the log would tell is not known, and is named; the processes of
// the machine are asked instead whether something of the session is at work.
func (p Session) Discard(ctx context.Context) (Removed, error) {
	unseen := ""
	r, err := p.remove(ctx, true, func(ctx context.Context, place home.Session, info control.Info) (string, int, error) {
		why, owed, err := holds(ctx, place, info)
		if !journal.Damaged(err) {
			return why, owed, err
		}
		unseen = "its log is damaged: which notifications it owed, and which work elsewhere goes on, was not looked at"
		return marked(place.ID()), 0, nil
	})
	r.Unseen = unseen
	return r, err
}

// marked names the processes that carry the mark of a session.
func marked(session task.ID) string {
	var table process.Table
	procs := table.Marked(process.MarkSession, string(session))
	switch len(procs) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("process %d of it is still at work", procs[0].PID)
	}
	return fmt.Sprintf("%d processes of it are still at work, the first is %d", len(procs), procs[0].PID)
}
