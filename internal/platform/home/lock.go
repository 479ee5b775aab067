package home

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// ErrLocked is returned when another process holds a lock.
var ErrLocked = errors.New("in use by another process")

// Flock locks an open file or folder, or returns [ErrLocked]. The lock ends when the
// file is closed, and with the process.
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

// lockTick is how often a lock is tried for.
const lockTick = 5 * time.Millisecond

// Await tries for a lock until the answer is another than [ErrLocked], or until ctx
// ends, with its cause. A wait in the kernel could not be ended by ctx, and the kernel
// tells nobody that a lock is free.
func Await[T any](ctx context.Context, try func() (T, error)) (T, error) {
	tick := time.NewTicker(lockTick)
	defer tick.Stop()
	for {
		got, err := try()
		if !errors.Is(err, ErrLocked) {
			return got, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
	}
}
