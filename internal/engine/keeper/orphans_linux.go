package keeper

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose own
// parent dies.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// anyEnded waits for a child that has ended, and leaves it unreaped.
func anyEnded() (pid int, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// The fields of a child follow the three common ones at the next pointer alignment; the
	// first is its PID.
	const child = (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), child))), err
}
