package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handle identifies one process. macOS has no process descriptors: the PID of a child cannot be
// reused until it is reaped, and any other process is compared by its start time before each
// signal.
type handle struct {
	pid   int
	start uint64
}

func openHandle(pid int) (*handle, error) {
	p, err := readProc(pid)
	if err != nil {
		return nil, err
	}
	return &handle{pid: pid, start: p.Start}, nil
}

func (c Command) fork(path string, files []uintptr) (int, *handle, error) {
	if c.Fork != nil {
		return 0, nil, errors.New("macOS has no bounds for programs that Drover can use")
	}
	pid, err := syscall.ForkExec(path, c.Args, c.attributes(files))
	if err != nil {
		return 0, nil, err
	}
	h, err := openHandle(pid)
	if err != nil {
		h = &handle{pid: pid}
	}
	return pid, h, nil
}

// wait polls, since a kqueue would cost a thread for each process just the same.
func (h *handle) wait(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !h.ended() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if h.ended() {
				return nil
			}
			return context.Cause(ctx)
		}
	}
	return nil
}

func (h *handle) ended() bool {
	p, err := readProc(h.pid)
	return errors.Is(err, ErrGone) || (err == nil && (p.Start != h.start || p.ended()))
}

// Options of waitid, which package unix does not define here.
const (
	idPID    = 1
	wNoHang  = 0x01
	wExited  = 0x04
	wNoWait  = 0x20
	cExited  = 1
	cDumped  = 3
	sysWait  = 173
	sizeInfo = 104
)

func (h *handle) exit() (Exit, error) { return h.waitid(wExited | wNoHang | wNoWait) }
func (h *handle) reap()               { _, _ = h.waitid(wExited | wNoHang) }
func (h *handle) waitReap()           { _, _ = h.waitid(wExited) }

func (h *handle) waitid(options int) (Exit, error) {
	// The first fields of siginfo: signo, errno, code, pid, uid, status.
	var info [sizeInfo / 4]int32
	for {
		_, _, errno := syscall.Syscall6(
			sysWait,
			idPID,
			uintptr(h.pid),
			uintptr(unsafe.Pointer(&info)),
			uintptr(options),
			0,
			0,
		)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return Exit{}, fmt.Errorf("read exit of process %d: %w", h.pid, errno)
		}
		break
	}
	switch {
	case info[3] == 0:
		return Exit{}, fmt.Errorf("read exit of process %d: it has not ended", h.pid)
	case info[2] == cExited:
		return Exit{Code: int(info[5]) & 0xff}, nil
	}
	return Exit{Code: -1, Signal: syscall.Signal(info[5]), Core: info[2] == cDumped}, nil
}

func (h *handle) signal(sig syscall.Signal) error {
	if h.ended() {
		return unix.ESRCH
	}
	return unix.Kill(h.pid, sig)
}

func (h *handle) signalGroup(syscall.Signal) error { return errors.ErrUnsupported }

func (h *handle) close() {}
