package process

import (
	"bytes"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Reads reports whether a process has a file open for reading. It returns false for a process
// that cannot be inspected.
func Reads(pid int, file fs.FileInfo) bool {
	at := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(at + "/fd")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		open, err := os.Stat(at + "/fd/" + fd.Name()) // of the open file, whatever its name is now
		if err == nil && os.SameFile(open, file) && opensForReading(at+"/fdinfo/"+fd.Name()) {
			return true
		}
	}
	return false
}

// opensForReading checks the flags with which a descriptor was opened.
func opensForReading(fdinfo string) bool {
	data, err := os.ReadFile(fdinfo)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		word, ok := bytes.CutPrefix(line, []byte("flags:"))
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(string(bytes.TrimSpace(word)), 8, 32)
		return err == nil && flags&unix.O_ACCMODE != unix.O_WRONLY && flags&unix.O_PATH == 0
	}
	return false
}
