package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pipeID identifies a pipe. Its zero value is none.
type pipeID struct {
	major, minor uint32 // of its device
	inode        uint64
}

// pipeAt returns the pipe of a descriptor of this process, or at a path. It asks no server of a
// file system, which may not answer.
func pipeAt(fd int, path string) (id pipeID) {
	var st unix.Statx_t
	flags := unix.AT_STATX_DONT_SYNC
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Statx(fd, path, flags, unix.STATX_TYPE|unix.STATX_INO, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return pipeID{}
	}
	return pipeID{st.Dev_major, st.Dev_minor, st.Ino}
}

// helps reports whether a process reads from a pipe to which it does not write. The pipe that is
// the stdin of its command does not count.
func helps(pid int, stdin pipeID) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	reads, writes := map[pipeID]bool{}, map[pipeID]bool{}
	for _, fd := range fds {
		pipe := pipeAt(unix.AT_FDCWD, dir+fd.Name())
		if pipe == (pipeID{}) || pipe == stdin {
			continue
		}
		var link unix.Stat_t // with the permissions of the descriptor
		if unix.Lstat(dir+fd.Name(), &link) != nil {
			continue
		}
		if link.Mode&unix.S_IRUSR != 0 {
			reads[pipe] = true
		}
		if link.Mode&unix.S_IWUSR != 0 {
			writes[pipe] = true
		}
	}
	for pipe := range reads {
		if !writes[pipe] {
			return true
		}
	}
	return false
}
