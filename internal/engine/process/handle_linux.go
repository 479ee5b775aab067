package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// toGroup makes pidfd_send_signal signal the group that the process leads. The kernel finds the
// group by the open process and not by its number.
const toGroup = 1 << 2

// handle holds one process by a pidfd, which becomes readable when the process has ended. It is
// non-blocking, so the runtime's poller watches it.
type handle struct {
	f    *os.File
	conn syscall.RawConn
}

func newHandle(fd int) (*handle, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // it has no other flags
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch process: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("watch process: %w", err)
	}
	return &handle{f: f, conn: conn}, nil
}

func openHandle(pid int) (*handle, error) {
	if pid <= 0 {
		return nil, ErrGone
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return newHandle(fd)
}

func (c Command) fork(path string, files []uintptr) (int, *handle, error) {
	attr := c.attributes(files)
	forks := c.Fork
	if forks == nil {
		forks = plainFork
	}
	pid, fd, err := forks(path, c.Args, attr)
	if err != nil {
		return 0, nil, err
	}
	var h *handle
	if fd < 0 {
		err = errors.New("the kernel has no process descriptors (Linux 5.4 or newer is needed)")
	} else {
		h, err = newHandle(fd)
	}
	if err != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		for {
			if _, werr := syscall.Wait4(pid, nil, 0, nil); werr != syscall.EINTR {
				break
			}
		}
		return 0, nil, err
	}
	return pid, h, nil
}

func plainFork(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error) {
	pidfd = -1
	attr.Sys.PidFD = &pidfd
	pid, err = syscall.ForkExec(path, args, attr)
	return pid, pidfd, err
}

// wait returns nil when the process has ended, else the cause of ctx.
func (h *handle) wait(ctx context.Context) error {
	if err := h.f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for process: %w", err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = h.f.SetReadDeadline(time.Unix(1, 0))
	})
	err := h.conn.Read(readable)
	if !stop() {
		<-woken // resets the deadline for a later wait
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		if h.ended() {
			return nil
		}
		return context.Cause(ctx)
	}
	return fmt.Errorf("wait for process: %w", err)
}

func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func (h *handle) ended() bool {
	done := false
	if err := h.conn.Control(func(fd uintptr) { done = readable(fd) }); err != nil {
		return true
	}
	return done
}

var errNotEnded = errors.New("read exit of process: it has not ended")

// tracedWait limits how long exit polls for an end that a tracer sees first.
const tracedWait = 8 * time.Second

// exit reads how a child has ended and leaves it unreaped. If the child is traced, as by
// strace, the kernel reports the end to the tracer before it reports it to the parent, without
// an event.
func (h *handle) exit() (e Exit, err error) {
	for pause := time.Millisecond; ; pause *= 2 {
		if e, err = h.waitid(unix.WEXITED | unix.WNOHANG | unix.WNOWAIT); !errors.Is(err, errNotEnded) || pause > tracedWait {
			return e, err
		}
		time.Sleep(pause)
	}
}

func (h *handle) reap()     { _, _ = h.waitid(unix.WEXITED | unix.WNOHANG) }
func (h *handle) waitReap() { _ = h.wait(context.Background()); h.reap() }

func (h *handle) waitid(options int) (Exit, error) {
	var call struct { // one heap allocation
		info unix.Siginfo
		err  error
	}
	cerr := h.conn.Control(func(fd uintptr) {
		for {
			call.err = unix.Waitid(unix.P_PIDFD, int(fd), &call.info, options, nil)
			if !errors.Is(call.err, unix.EINTR) {
				return
			}
		}
	})
	if err := errors.Join(cerr, call.err); err != nil {
		return Exit{}, fmt.Errorf("read exit of process: %w", err)
	}
	info := &call.info
	// The fields of a child follow the three common ones at the next pointer alignment: pid,
	// uid, status.
	const child = (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	pid := *(*int32)(unsafe.Add(unsafe.Pointer(info), child))
	status := *(*int32)(unsafe.Add(unsafe.Pointer(info), child+8))
	const exited, dumped = 1, 3
	switch {
	case pid == 0:
		return Exit{}, errNotEnded
	case info.Code == exited:
		return Exit{Code: int(status)}, nil
	}
	return Exit{Code: -1, Signal: syscall.Signal(status), Core: info.Code == dumped}, nil
}

func (h *handle) signal(sig syscall.Signal) error { return h.send(sig, 0) }

func (h *handle) signalGroup(sig syscall.Signal) error {
	err := h.send(sig, toGroup)
	if errors.Is(err, unix.EINVAL) {
		return errors.ErrUnsupported
	}
	return err
}

func (h *handle) send(sig syscall.Signal, flags int) error {
	var err error
	cerr := h.conn.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), sig, nil, flags) })
	if cerr != nil {
		return cerr
	}
	return err
}

func (h *handle) close() { _ = h.f.Close() }
