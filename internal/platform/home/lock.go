package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// ErrLocked is returned when another process holds a lock.
var ErrLocked = errors.New("in use by another process")

// The pause between two attempts at a lock: it doubles, so a short wait ends at once
// and a long one costs little.
const (
	shortestPause = 200 * time.Microsecond
	longestPause  = 4 * time.Millisecond
)

// Flock locks an open file or folder, or returns [ErrLocked]. [Unlock] ends the lock, and
// so does the end of the process.
func Flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		}
		return err
	}
}

// Unlock ends the lock of a file and closes it. Closing alone is not enough: a child between
// fork and exec still has the descriptor, and the lock with it.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

// LockBelow opens and locks a file or folder that may be removed or replaced meanwhile, which is an error that wraps
// [fs.ErrNotExist]. It returns [ErrLocked] if another process has it. Closing the file ends the lock.
func LockBelow(below saferoot.Dir, path string, flags int, perm fs.FileMode) (*os.File, error) {
	f, err := below.Open(path, flags, perm)
	if err != nil {
		return nil, err
	}
	if err = Flock(f); err == nil {
		var held, now fs.FileInfo
		if held, err = f.Stat(); err == nil {
			now, err = os.Lstat(path)
		}
		if err == nil && !os.SameFile(held, now) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// LockFile locks a file below d, which it makes if it is missing, or returns [ErrLocked].
func LockFile(d saferoot.Dir, path string) (unlock func(), err error) {
	f, err := d.Open(path, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := Flock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { Unlock(f) }, nil
}

// Await calls try until it returns another error than [ErrLocked], or until ctx ends, and
// then returns the cause of ctx. It polls, because a context cannot end a wait in the kernel.
func Await[T any](ctx context.Context, try func() (T, error)) (T, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		got, err := try()
		if !errors.Is(err, ErrLocked) {
			return got, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
	}
}
