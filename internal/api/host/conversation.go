package host

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/socket"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Lives reports whether a host of the session answers.
func Lives(place home.Session) bool {
	_, live := look(place)
	return live
}

// look reads the description of a session, and whether its host answers.
func look(place home.Session) (info control.Info, live bool) {
	info, err := readInfo(place)
	if err != nil {
		return info, false
	}
	info = alive(info)
	return info, info.Live
}

// alive adds to the description of a session whether its host lives, and whether it is
// suspended.
func alive(info control.Info) control.Info {
	info.Live, info.Stopped = false, false
	if info.EndTime == nil && info.Socket != "" {
		var id process.Identity
		id, info.Live = socket.Peer(info.Socket)
		info.Stopped = info.Live && process.Stopped(id)
	}
	return info
}

// Wake continues a suspended host. done, with again, suspends it again.
func (e Entry) Wake() (done func(again bool), err error) {
	id, _ := socket.Peer(e.Info.Socket)
	g, err := process.Adopt(id)
	if err != nil {
		return nil, fmt.Errorf("continue the host of session %s: %w", e.Info.Session, err)
	}
	if err := g.Signal(syscall.SIGCONT); err != nil {
		g.Close()
		return nil, fmt.Errorf("continue the host of session %s: %w", e.Info.Session, err)
	}
	return func(again bool) {
		if again {
			_ = g.Signal(syscall.SIGTSTP) // it may have ended
		}
		g.Close()
	}, nil
}

// goneWait is how long a host that is ending may continue to listen.
const goneWait = 10 * time.Second

// Gone waits until the host of a session no longer listens; false: it still does after a while.
func (e Entry) Gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, live := look(e.Place); !live || now.PID != e.Info.PID {
			return true
		}
		select { // the end of a socket causes no event
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// Conversation finds the live host of a session of the project, or starts a detached one with
// the additional environment that prepare returns; started reports which. Two concurrent
// callers get the same host, and only one has started it. undo reverts prepare; false: the host
// already has it.
func (d *Directory) Conversation(
	ctx context.Context, id task.ID, prepare func() (env []string, undo func() bool, err error),
) (e Entry, started bool, err error) {
	if err := d.Project().Ensure(); err != nil {
		return Entry{}, false, err
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return Entry{}, false, err
	}
	defer unlock()
	place := d.Project().Session(id)
	if info, live := look(place); live {
		return Entry{Place: place, Info: info}, false, nil
	}
	env, undo, err := prepare()
	if err != nil {
		return Entry{}, false, err
	}
	failed := d.Start(ctx, env...)
	started = failed == nil || !undo()
	info, live := look(place)
	if !live && failed == nil {
		failed = control.Refuse(control.Unavailable, "the detached host started and went away again", "see "+d.logFile())
	}
	if !live {
		return Entry{}, false, failed
	}
	// A host that lives although the start failed belongs to another process that was faster,
	// or is ours and could not report in time.
	return Entry{Place: place, Info: info}, started, nil
}
