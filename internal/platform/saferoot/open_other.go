//go:build unix && !linux

package saferoot

import "golang.org/x/sys/unix"

// descend opens a relative path below an open folder.
func descend(at int, rel string, flags int, perm uint32) (int, error) {
	return walk(at, rel, flags, perm)
}

// mkfifo uses the whole path: not every system has a call that begins at a folder.
// So a link on the way can lead the new pipe elsewhere, but it is not opened there.
func mkfifo(_ int, path string, perm uint32) error { return unix.Mkfifo(path, perm) }
