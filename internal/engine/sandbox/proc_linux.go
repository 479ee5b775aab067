package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// zombie finds the child of this process that could not execute its program.
func zombie(name string) (pid int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		list, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, number := range strings.Fields(string(list)) {
			stat, err := os.ReadFile("/proc/" + number + "/stat")
			if err != nil || !strings.Contains(string(stat), "("+name+") Z ") {
				continue
			}
			if _, err := fmt.Sscan(number, &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

// keepFiles keeps the files of this process from those that it starts, from a number on: its host
// may have been started with files that lead to the hidden files of a room.
func keepFiles(from int) error {
	err := unix.CloseRange(uint(from), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) { // Linux 5.11
		return err
	}
	files, err := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd >= from {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// same maps every user or group of this process to itself.
func same(file string) (out []syscall.SysProcIDMap) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err == nil {
			out = append(out, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
		}
	}
	return out
}
