// Package upkeep keeps an open session in order besides its conversation and its tasks.
//
// [Upkeep] stops tasks when the session loses its keeper or its folder, and runs the chores of a host. Nothing of it
// runs after Close. It decides which tasks are stopped; the supervisor stops them. [Space] limits what the session uses
// of the disk.
package upkeep

import (
	"context"
	"sync"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Tasks is what upkeep needs of the supervisor.
type Tasks interface {
	List(before task.Seq) func(yield func(task.Seq, task.Record) bool)
	Stop(ctx context.Context, ids []task.ID, r supervise.StopRequest) (task.Receipt, error)
}

// Upkeep maintains one open session.
type Upkeep struct {
	place  home.Session
	tasks  Tasks
	keeper <-chan struct{}
	report func(text string)

	stop context.CancelFunc
	jobs sync.WaitGroup // joined by Close

	lost context.Context // ends with a cause; see Lost
	lose context.CancelCauseFunc
}

// New returns the upkeep of a session. keeper is closed when the keeper has died; nil: the session has
// none. report is called with messages for the user.
func New(place home.Session, tasks Tasks, keeper <-chan struct{}, report func(text string)) *Upkeep {
	u := &Upkeep{place: place, tasks: tasks, keeper: keeper, report: report, stop: func() {}}
	u.lost, u.lose = context.WithCancelCause(context.Background())
	return u
}

// Start starts all of it, until ctx ends or Close. brief says that the session is one command, whose start must be
// fast: only its keeper is watched. Otherwise chores run too, which end with their context.
func (u *Upkeep) Start(ctx context.Context, brief bool, chores ...func(context.Context)) {
	ctx, u.stop = context.WithCancel(ctx)
	if u.keeper != nil {
		u.jobs.Go(func() { u.watchKeeper(ctx) })
	}
	if brief {
		return
	}
	u.jobs.Go(func() { u.watchFolder(ctx) })
	for _, do := range chores {
		u.jobs.Go(func() { do(ctx) })
	}
}

// Lost returns a context that ends when the session has lost its keeper and its commands were
// stopped for that, or has lost its folder and everything was stopped. Its cause states which.
// No further command can be started then. It ends with Close, too.
func (u *Upkeep) Lost() context.Context { return u.lost }

// Close ends what Start began.
func (u *Upkeep) Close() {
	u.stop()
	u.jobs.Wait()
	u.lose(nil)
}
