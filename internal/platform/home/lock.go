package home

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
