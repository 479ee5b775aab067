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

// keeping returns why a session must stay, and the number of its undelivered notifications.
type keeping func(context.Context, home.Session, control.Info) (why string, owed int, err error)

// Discard is [Session.Remove] for a session that may have undelivered notifications, and whose
// log may be damaged. The result names what a damaged log cannot show; the process table is
// checked instead for running tasks of the session.
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

// marked returns the processes that carry the mark of a session.
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
