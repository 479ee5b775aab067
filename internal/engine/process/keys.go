package process

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// call is a type of system call that waits for input.
type call int

const (
	otherCall  call = iota
	readCall        // descriptor, …
	pollCall        // entries, their number, milliseconds
	ppollCall       // entries, their number, time
	selectCall      // bits, set of descriptors, two more sets, time
	epollCall       // descriptor, events, their number, milliseconds
)

// waiting is the sort of wait of a thread, according to its system call.
type waiting struct {
	kind   call
	fd     int    // of readCall and epollCall
	at     uint64 // address of the descriptors in its memory
	number int    // entries of a poll, or bits of a select
}

// most limits the descriptors of a program that waits only for its terminal.
const mostPolled = 8

// parseSyscall parses the line of /proc/PID/syscall: the number of the call in which the thread
// is blocked and its six arguments. Only a wait without a timeout counts, since a program that
// polls its input does other work as well.
func parseSyscall(line string, calls map[int]call) (w waiting, ok bool) {
	f := strings.Fields(line)
	if len(f) < 7 { // it runs, or is blocked without a system call
		return w, false
	}
	number, err := strconv.Atoi(f[0])
	if err != nil {
		return w, false
	}
	var arg [6]uint64
	for i := range arg {
		if arg[i], err = strconv.ParseUint(strings.TrimPrefix(f[i+1], "0x"), 16, 64); err != nil {
			return w, false
		}
	}
	w.kind = calls[number]
	switch w.kind {
	case readCall:
		w.fd, ok = int(arg[0]), arg[0] < 1<<20
	case epollCall:
		w.fd, ok = int(arg[0]), arg[0] < 1<<20 && int32(arg[3]) < 0
	case pollCall:
		w.at, w.number, ok = arg[0], int(arg[1]), arg[1]-1 < mostPolled && int32(arg[2]) < 0
	case ppollCall:
		w.at, w.number, ok = arg[0], int(arg[1]), arg[1]-1 < mostPolled && arg[2] == 0
	case selectCall:
		w.at, w.number, ok = arg[1], int(arg[0]), arg[0]-1 < 1024 && arg[1] != 0 && arg[4] == 0
	}
	return w, ok
}

// size returns the number of bytes of its memory that have the descriptors.
func (w waiting) size() int {
	switch w.kind {
	case pollCall, ppollCall:
		return 8 * w.number
	case selectCall:
		return (w.number + 63) / 64 * 8
	}
	return 0
}

// descriptors returns the descriptors on which a poll or a select waits for input; none if it
// waits for anything else too.
func (w waiting) descriptors(memory []byte) (fds []int) {
	const pollIn = 1
	if len(memory) < w.size() {
		return nil
	}
	if w.kind == selectCall {
		for fd := range w.number {
			if memory[fd/8]&(1<<(fd%8)) != 0 {
				fds = append(fds, fd)
			}
		}
		return fds
	}
	for i := range w.number {
		entry := memory[8*i:]
		fd := int(int32(binary.NativeEndian.Uint32(entry)))
		switch {
		case fd < 0: // the kernel ignores it as well
		case binary.NativeEndian.Uint16(entry[4:])&pollIn == 0:
			return nil
		default:
			fds = append(fds, fd)
		}
	}
	return fds
}

// watched reads the descriptors of an epoll from /proc/PID/fdinfo/FD.
func watched(info string) (fds []int) {
	for line := range strings.Lines(info) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "tfd:" {
			continue
		}
		fd, err := strconv.Atoi(f[1])
		if err != nil {
			return nil
		}
		fds = append(fds, fd)
	}
	return fds
}
