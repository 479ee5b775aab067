// Package socket is how a session is reached by other processes: the socket that it listens on ([Listen]), the requests
// that it answers there ([Serve]), and whether a process answers on one ([Peer]).
//
// Only the process that created a socket removes it. Processes of other users, and commands in the sandbox of a
// session, are hung up on. The package finds no sessions; package host does.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// Listener is the socket of a session.
type Listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

// Listen opens the socket. Whatever exists at the path was left by a dead host: the caller
// holds the lock of the session, and the path is named after it.
func Listen(path string) (*Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	made, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	_ = failpoint.Hit("host/listens")
	return &Listener{UnixListener: l, path: path, made: made}, nil
}

// Accept returns the next client that may use the socket. Others are hung up on.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if allowed(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

// Close stops listening and removes the socket, unless a successor has put its
// own there.
func (l *Listener) Close() error {
	err := l.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if now, stat := os.Lstat(l.path); stat == nil && os.SameFile(now, l.made) {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}

// Session is what Serve needs of a session.
type Session interface {
	control.API
	// Retire refuses every further start, if no task is alive; it reports whether it does.
	Retire() bool
	// Changed returns a channel that is closed when the next task ends.
	Changed() <-chan struct{}
}

// Serve serves the listener until ctx ends, or with idle above 0 until the session has had no
// live task for that long.
func Serve(ctx context.Context, s Session, l net.Listener, idle time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 1)
	go func() { served <- control.NewServer(s).Serve(ctx, l) }() // joined below
	if idle > 0 {
		rest(ctx, s, idle, served)
		cancel(errors.New("nothing is left to do"))
	}
	return <-served
}

// rest returns when the session has had no task for that long, or when ctx or the server has
// ended.
func rest(ctx context.Context, s Session, idle time.Duration, served chan error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		changed := s.Changed()
		select {
		case <-changed:
			timer.Reset(idle)
		case <-timer.C:
			if s.Retire() {
				return
			}
			// The next end of a task starts the timer again.
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case err := <-served:
				served <- err
				return
			}
			timer.Reset(idle)
		case <-ctx.Done():
			return
		case err := <-served:
			served <- err
			return
		}
	}
}

// Answers reports whether a process listens on a socket. A child that a host was starting when
// it was killed holds the host's socket until its exec: such a process does not count.
func Answers(path string) bool {
	_, live := Peer(path)
	return live
}

// Peer returns the process that listens on a socket, and whether there is one. The process
// cannot always be determined.
func Peer(path string) (id process.Identity, live bool) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return id, errors.Is(err, syscall.EAGAIN) // its queue is full: it lives
	}
	defer c.Close() // opened only for this check
	pid := listener(c)
	if pid <= 0 {
		return id, true
	}
	id, err = process.Identify(pid)
	if err != nil {
		return process.Identity{}, !errors.Is(err, process.ErrGone)
	}
	return id, process.Alive(id)
}
