package main

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/tty"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// openTerminal gives a command the whole terminal, until its Close.
func openTerminal() (*console.Terminal, error) {
	if !isTerminal(os.Stdin) || !isTerminal(os.Stdout) {
		return nil, errors.New("stdin and stdout are not both a terminal")
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	back, err := tty.Raw(os.Stdin)
	if err != nil {
		return nil, errors.Join(err, wake.Close(), end.Close())
	}
	changed := make(chan os.Signal, 1) // one is enough: it means that the size is another
	signal.Notify(changed, syscall.SIGWINCH)
	keys := make(chan byte, 64)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(keys)
		readKeys(wake, keys)
	})
	return &console.Terminal{
		Keys: keys, Resized: changed,
		Size: func() (columns, rows int) {
			size := tty.SizeOf(os.Stdout)
			return int(size.Cols), int(size.Rows)
		},
		Close: func() {
			signal.Stop(changed)
			_ = end.Close()
			reader.Wait()
			_ = wake.Close()
			back()
		},
	}, nil
}

// readKeys reads the terminal until it is gone, or the other end of wake is closed. A key
// for which there is no room is dropped.
func readKeys(wake *os.File, keys chan<- byte) {
	fds := []unix.PollFd{
		{Fd: int32(os.Stdin.Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN},
	}
	buf := make([]byte, 64)
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || fds[1].Revents != 0:
			return
		}
		n, err := os.Stdin.Read(buf)
		for _, key := range buf[:n] {
			select {
			case keys <- key:
			default:
			}
		}
		if err != nil || n == 0 {
			return
		}
	}
}
