package home

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is the free space of a file system for this user.
type Space struct {
	Bytes int64
	Files int64 // -1: it does not count them
}

// fewFiles is how many files a file system must have left for something to
// start: a command needs its output, and the log its own.
const fewFiles = 16

// NoFiles reports that the file system can hold too few more files for a task.
func (r Space) NoFiles() bool { return r.Files >= 0 && r.Files < fewFiles }

// Space returns the free space of the file system of the state directory. The directory
// must exist.
func (r Root) Space() (Space, error) {
	var st unix.Statfs_t
	err := unix.Statfs(r.dir, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statfs(r.dir, &st)
	}
	if err != nil {
		return Space{}, fmt.Errorf("look for free space at %s: %w", r.dir, err)
	}
	room := Space{Bytes: saturated(st.Bavail, uint64(st.Bsize)), Files: -1}
	if st.Files > 0 {
		room.Files = saturated(st.Ffree, 1)
	}
	return room, nil
}

// saturated is a product that stays an int64.
func saturated(n, size uint64) int64 {
	const most = 1<<63 - 1
	if size != 0 && n > most/size {
		return most
	}
	return int64(n * size)
}
