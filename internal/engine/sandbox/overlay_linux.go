package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// overlay mounts a folder over itself so that what programs write goes aside (Linux 5.11 in a user namespace).
func overlay(o Overlay) error {
	var fds [3]int
	for i, path := range []string{o.Path, o.Upper, o.Work} {
		fd, err := openPath(path, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return fmt.Errorf("write %s aside: %w", o.Path, err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	options := fmt.Sprintf("lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d,userxattr", fds[0], fds[1], fds[2])
	at := fmt.Sprintf("/proc/self/fd/%d", fds[0])
	if err := unix.Mount("cache", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("write %s aside: %w", o.Path, err)
	}
	return nil
}
