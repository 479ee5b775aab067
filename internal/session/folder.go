package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/task"
)

// ErrFolderGone is the cause with which a session that has lost its folder ends.
var ErrFolderGone = errors.New("the folder of the session is gone")

// settled is the age from which a session watches its folder. The kernel takes about 10 ms to end a
// watch, which a session of one short turn would wait for.
const settled = time.Second

// watchFolder stops everything when the folder of the session is removed, since its tasks could
// no longer be found. It watches the lock file, to which nothing writes. If the system has no
// free inotify watch, the removal is not detected.
func (s *Session) watchFolder(ctx context.Context) {
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return
	}
	path := s.cfg.Place.LockFile()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer func() { _ = w.Close() }() // nothing was written
	if err := w.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	for {
		if _, err := s.cfg.Place.Below().Lstat(path); errors.Is(err, fs.ErrNotExist) {
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
	why := task.Cause{Reason: task.ReasonStateLost, Detail: ErrFolderGone.Error()}
	receipt := s.StopLost(why, func(task.Record) bool { return true })
	text := fmt.Sprintf("%s is gone, and %d tasks were stopped for that", s.cfg.Place.Dir(), len(receipt.Stopped))
	for _, left := range receipt.Survivors {
		text += fmt.Sprintf("; process %d of %s survived: %s", left.PID, left.Task, left.Why)
	}
	s.tree.Say(text)
	s.Lose(ErrFolderGone)
}
