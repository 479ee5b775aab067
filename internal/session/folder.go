package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// ErrFolderGone is why a session that has lost its folder ends.
var ErrFolderGone = errors.New("the folder of the session is gone")

// watchFolder stops everything when somebody removes the folder of the session: nobody
// could find its tasks any more. Its lock file stands for it, which nothing writes to.
// Where the system has no watch left, nobody hears of it.
func (s *Session) watchFolder() {
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
		case _, open := <-w.Errors: // something may have been missed
			if !open {
				return
			}
		case <-s.closes:
			return
		}
	}
	var ids []task.ID
	for _, r := range s.sup.List(0) {
		if !r.Status.Terminal() {
			ids = append(ids, r.ID)
		}
	}
	cause := task.Cause{Actor: task.ByRuntime, Reason: task.ReasonStateLost, Detail: ErrFolderGone.Error()}
	receipt, _ := s.sup.Stop(context.Background(), ids, supervise.StopRequest{Cause: cause}) // it names every task, and they are there
	text := fmt.Sprintf("%s is gone, and %d tasks were stopped for that", s.cfg.Place.Dir(), len(receipt.Stopped))
	for _, left := range receipt.Survivors {
		text += fmt.Sprintf("; process %d of %s survived: %s", left.PID, left.Task, left.Why)
	}
	s.say(s.cfg.Info.Session, text)
	s.leave(ErrFolderGone)
}
