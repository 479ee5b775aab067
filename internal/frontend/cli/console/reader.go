package console

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// WhileRead returns a context that ends with the reader of a pipe; its cause is then [syscall.EPIPE].
// Without it a command that follows something would notice only at its next write, as in
// `drover logs -f server | grep -m 1 ready`. Only pipes are watched. The caller calls stop, which waits.
func WhileRead(ctx context.Context, w io.Writer) (_ context.Context, stop func()) {
	f, ok := w.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ctx, func() {}
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return ctx, func() {} // the next write notices it
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case err == nil && fds[1].Revents == 0:
				cancel(syscall.EPIPE)
			}
			return
		}
	})
	return ctx, func() {
		_ = end.Close()
		watch.Wait()
		_ = wake.Close()
		cancel(nil)
	}
}
