package tty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
)

// drainWait is how long the last words of a command may take to be written.
const drainWait = 2 * time.Second

// Descriptors of the process that [Run] is the life of, beside stdout, which is
// the output file. An older build may be started with a newer one's, and the other
// way round: they keep their meaning.
const (
	masterFD = 3 + iota
	slaveFD
	pipeFD
)

// Args are what follows the name of a program whose life is [Run].
func Args(leader process.Identity) []string { return []string{leader.Mark()} }

// Files are its descriptors from 3 on.
func Files(master, slave, pipe *os.File) []*os.File { return []*os.File{master, slave, pipe} }

// Run is the life of the process at the end of a terminal: it writes what the
// command prints to stdout, and types what comes through the pipe. It ends when
// the leader, named by [Args], has ended and its last words are written. HUP, INT
// and TERM are ignored: a command that is told to go may still print.
func Run(leader string) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	id, err := process.ParseMark(leader)
	if err != nil {
		return fmt.Errorf("take a terminal: %w", err)
	}
	var c copier
	for _, f := range []struct {
		fd int
		to **os.File
	}{{masterFD, &c.master}, {pipeFD, &c.pipe}} {
		unix.CloseOnExec(f.fd)
		if err := unix.SetNonblock(f.fd, true); err != nil {
			return fmt.Errorf("take a terminal: %w", err)
		}
		*f.to = os.NewFile(uintptr(f.fd), "terminal")
	}
	c.slave, c.out = os.NewFile(slaveFD, "terminal"), &sink{to: os.Stdout}
	return c.run(func() { await(id) })
}

// await returns when the process has ended.
func await(id process.Identity) {
	g, err := process.Adopt(id)
	if err != nil {
		return
	}
	defer g.Close()
	_, _ = g.Wait(context.Background())
}

// copier stands between a terminal, a file and whoever types.
type copier struct {
	master, slave, pipe *os.File
	out                 io.Writer
}

// run copies until ended returns, and what was printed up to then. The pipe is
// left open: by its end others see that of the process.
func (c *copier) run(ended func()) error {
	var both sync.WaitGroup // joined below
	both.Go(func() { _, _ = io.CopyBuffer(plainWriter{c.master}, plainReader{c.pipe}, make([]byte, MaxTyped)) })
	both.Go(func() {
		ended()
		// As long as it is held, a command that has closed its terminal may open it
		// again; from now on nobody can.
		_ = c.slave.Close()
		_ = c.master.SetDeadline(time.Now().Add(drainWait))
		_ = c.pipe.SetReadDeadline(time.Unix(1, 0))
	})
	_, err := io.CopyBuffer(plainWriter{c.out}, plainReader{c.master}, make([]byte, 32<<10))
	_ = c.master.Close() // a command that lives on must not wait for a reader
	both.Wait()
	if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("copy what is printed: %w", err)
	}
	return nil
}

// plainReader and plainWriter keep io.Copy from its short cuts.
type plainReader struct{ io.Reader }
type plainWriter struct{ io.Writer }

// sink writes a file that may have no room at times: a command does not end by
// that. What is lost is counted, and said as soon as something can be written.
type sink struct {
	to   io.Writer
	lost int
	why  error
}

func (s *sink) Write(b []byte) (int, error) {
	if s.lost > 0 {
		if _, err := fmt.Fprintf(s.to, "\n[%d bytes of output are missing here: %v]\n", s.lost, s.why); err != nil {
			s.lost += len(b)
			return len(b), nil
		}
		s.lost = 0
	}
	if n, err := s.to.Write(b); err != nil {
		s.lost, s.why = len(b)-n, err
	}
	return len(b), nil
}
