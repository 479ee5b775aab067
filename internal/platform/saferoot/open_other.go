//go:build unix && !linux

package saferoot

import "golang.org/x/sys/unix"

// descend opens what is at a relative path below an open folder.
func descend(at int, rel string, flags int, perm uint32) (int, error) {
	return walk(at, rel, flags, perm)
}

// mkfifo goes by the path: the call that begins at a folder is not known everywhere.
// A pipe can so be made behind a link, and is not opened there.
func mkfifo(_ int, path string, perm uint32) error { return unix.Mkfifo(path, perm) }
