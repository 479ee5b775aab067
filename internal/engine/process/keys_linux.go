package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// AwaitsKeys reports whether a process at the terminal of the leader's session is blocked until
// something is typed. It returns false if the processes may not be inspected.
func AwaitsKeys(t *Table, leader Identity) bool {
	calls := waits()
	first, err := readProc(leader.PID)
	if err != nil || first.Start != leader.Start || first.terminal == 0 || len(calls) == 0 {
		return false
	}
	for _, p := range t.Read() {
		if p.terminal == first.terminal && p.State == 'S' && reads(p.PID, first.terminal, calls) {
			return true
		}
	}
	return false
}

func reads(pid int, terminal uint64, calls map[int]call) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return false
	}
	for _, thread := range threads {
		line, err := os.ReadFile(dir + "/task/" + thread.Name() + "/syscall")
		if err != nil {
			return false
		}
		w, ok := parseSyscall(string(line), calls)
		if !ok {
			continue
		}
		fds := w.looksAt(dir)
		all := len(fds) > 0
		for _, fd := range fds {
			all = all && isTerminal(dir, fd, terminal)
		}
		if all {
			return true
		}
	}
	return false
}

// looksAt returns what the thread waits for.
func (w waiting) looksAt(dir string) []int {
	switch w.kind {
	case readCall:
		return []int{w.fd}
	case epollCall:
		info, err := os.ReadFile(dir + "/fdinfo/" + strconv.Itoa(w.fd))
		if err != nil {
			return nil
		}
		return watched(string(info))
	}
	mem, err := os.Open(dir + "/mem")
	if err != nil {
		return nil
	}
	defer mem.Close()
	memory := make([]byte, w.size())
	if _, err := mem.ReadAt(memory, int64(w.at)); err != nil {
		return nil
	}
	return w.descriptors(memory)
}

// isTerminal reports whether a descriptor is the terminal, under any name.
func isTerminal(dir string, fd int, terminal uint64) bool {
	var st unix.Stat_t
	if unix.Stat(dir+"/fd/"+strconv.Itoa(fd), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	dev := uint64(st.Rdev) //nolint:unconvert // not on every machine
	return dev == terminal || dev == unix.Mkdev(5, 0)
}

// device returns the device number of a terminal in the form of the process table.
func device(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	return unix.Mkdev(uint32(n>>8)&0xfff, uint32(n&0xff)|uint32(n>>12)&0xfff00)
}
