package tty

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pump types what comes from a file, which may be a person's terminal, until it
// ends, ctx ends, or nothing can be typed. The end of a file is typed as ^D, as a
// person would.
func Pump(ctx context.Context, from *os.File, write func([]byte) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	defer r.Close()
	defer w.Close()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = w.Write([]byte{0})
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	buf, open := make([]byte, MaxTyped), false // the line that was typed last is open
	for {
		n, err := readOrWake(from, r, buf)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("read the keys: %w", err)
		case n == 0 && open:
			return write([]byte{4, 4}) // the first one only hands over the open line
		case n == 0:
			return write([]byte{4})
		}
		if err := write(buf[:n]); err != nil {
			return err
		}
		open = buf[n-1] != '\n' && buf[n-1] != '\r'
	}
}

// readOrWake reads from a file, of whatever kind, unless wake becomes readable.
func readOrWake(from, wake *os.File, buf []byte) (n int, err error) {
	fds := []unix.PollFd{{Fd: int32(from.Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		if fds[1].Revents != 0 {
			return 0, nil
		}
		if fds[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(int(fds[0].Fd), buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.EIO): // of a terminal that has gone
			return 0, nil
		}
		return max(n, 0), err
	}
}
