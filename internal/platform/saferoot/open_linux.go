package saferoot

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// descend opens a relative path below an open folder.
func descend(at int, rel string, flags int, perm uint32) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_LARGEFILE),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(perm) // openat2 refuses a mode otherwise
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(at, rel, &how) })
	for _, refused := range []error{unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.E2BIG, unix.EAGAIN} {
		if errors.Is(err, refused) { // an old system, or a sandbox that does not know the call
			return walk(at, rel, flags, perm)
		}
	}
	return fd, err
}

func mkfifo(at int, path string, perm uint32) error {
	return unix.Mkfifoat(at, filepath.Base(path), perm)
}
