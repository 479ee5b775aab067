// Package upkeep keeps an open session in order besides its conversation and its tasks.
//
// [Upkeep] stops tasks when the session loses its keeper or its folder, and runs the chores of a host. Nothing of it
// runs after Close. It decides which tasks are stopped; the supervisor stops them. [Space] limits what the session uses
// of the disk.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/fsnotify/fsnotify"

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

// ErrFolderGone is the cause with which a session that has lost its folder ends.
var ErrFolderGone = errors.New("the folder of the session is gone")

// watchKeeper stops all commands when the keeper dies, since nothing would end them if this
// process died too.
func (u *Upkeep) watchKeeper(ctx context.Context) {
	select {
	case <-u.keeper:
	case <-ctx.Done():
		return
	}
	u.stopAll(task.ReasonKeeperLost, "the keeper has died", func(r task.Record) bool {
		return (r.Process != nil || r.Traits().Work == task.ByCommand) && !r.Keep
	})
	u.lose(errors.New("the keeper is gone"))
}

// stopAll stops the live tasks that are affected.
func (u *Upkeep) stopAll(reason task.Reason, detail string, affected func(task.Record) bool) task.Receipt {
	var ids []task.ID
	for _, r := range u.tasks.List(0) {
		if !r.Status.Terminal() && affected(r) {
			ids = append(ids, r.ID)
		}
	}
	cause := task.Cause{Actor: task.ByRuntime, Reason: reason, Detail: detail}
	receipt, _ := u.tasks.Stop(context.Background(), ids,
		supervise.StopRequest{Cause: cause}) // it names every task, and all of them exist
	return receipt
}

// watchFolder stops everything when the folder of the session is removed, since its tasks could
// no longer be found. It watches the lock file, to which nothing writes. If the system has no
// free inotify watch, the removal is not detected.
func (u *Upkeep) watchFolder(ctx context.Context) {
	path := u.place.LockFile()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer func() { _ = w.Close() }() // nothing was written
	if err := w.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	for {
		if _, err := u.place.Below().Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		select {
		case <-w.Events:
		case _, open := <-w.Errors: // events may have been missed
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
	}
	receipt := u.stopAll(task.ReasonStateLost, ErrFolderGone.Error(), func(task.Record) bool { return true })
	text := fmt.Sprintf("%s is gone, and %d tasks were stopped for that", u.place.Dir(), len(receipt.Stopped))
	for _, left := range receipt.Survivors {
		text += fmt.Sprintf("; process %d of %s survived: %s", left.PID, left.Task, left.Why)
	}
	u.report(text)
	u.lose(ErrFolderGone)
}
