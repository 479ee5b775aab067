package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

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
