// Package upkeep does what an open session needs beside its conversation: it stops tasks when
// the session loses its keeper or its folder, removes old sessions, cleans up after dead hosts
// of other sessions, and starts dreams in idle time.
//
// Nothing of an [Upkeep] runs after Close.
//
// The package does not know agents. It decides which tasks are stopped; the supervisor stops
// them.
package upkeep

import (
	"context"
	"sync"

	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Tasks is what upkeep needs of the supervisor.
type Tasks interface {
	List(before task.Seq) func(yield func(task.Seq, task.Record) bool)
	Stop(ctx context.Context, ids []task.ID, r supervise.StopRequest) (task.Receipt, error)
}

// Config configures upkeep.
type Config struct {
	Place  home.Session
	Tasks  Tasks
	Report func(text string) // messages for the user

	KeeperLost <-chan struct{}   // closed when the keeper has died; nil: there is none
	Brief      bool              // the session is one command, whose start must be fast: only its keeper is watched
	Retention  options.Retention // of ended sessions; not applied if brief
	Dreams     *Dreams           // nil: no automatic dreams
}

// Upkeep maintains one open session.
type Upkeep struct {
	cfg  Config
	stop context.CancelFunc
	jobs sync.WaitGroup // joined by Close

	lost context.Context // ends with a cause; see Lost
	lose context.CancelCauseFunc
}

// New returns the upkeep of a session.
func New(cfg Config) *Upkeep {
	u := &Upkeep{cfg: cfg, stop: func() {}}
	u.lost, u.lose = context.WithCancelCause(context.Background())
	return u
}

// Start starts all of it, until ctx ends or Close.
func (u *Upkeep) Start(ctx context.Context) {
	ctx, u.stop = context.WithCancel(ctx)
	if u.cfg.KeeperLost != nil {
		u.jobs.Go(func() { u.watchKeeper(ctx) })
	}
	if d := u.cfg.Dreams; d != nil {
		u.jobs.Go(func() { d.run(ctx, u.cfg.Report) })
	}
	if u.cfg.Brief {
		return
	}
	root := u.cfg.Place.Project().Root()
	u.jobs.Go(func() { u.watchFolder(ctx) })
	u.jobs.Go(func() {
		if err := ended.EndLost(ctx, root); err != nil && ctx.Err() == nil {
			u.cfg.Report(err.Error())
		}
	})
	if keep := u.cfg.Retention; !keep.KeepsAll() {
		u.jobs.Go(func() { ended.Retain(ctx, root, keep, u.cfg.Report) })
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
