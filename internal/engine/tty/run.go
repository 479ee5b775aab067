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

// drainWait bounds the time to write the last output of a command.
const drainWait = 2 * time.Second

// Descriptors of the process of [Run]; stdout is the output file. Their meaning never
// changes: builds of different ages may start each other's process.
const (
	masterFD = 3 + iota
	slaveFD
	pipeFD
)

// Args returns the arguments of the process of [Run].
func Args(leader process.Identity) []string { return []string{leader.Mark()} }

// Files returns its descriptors from 3 on.
func Files(master, slave, pipe *os.File) []*os.File { return []*os.File{master, slave, pipe} }

// Run is the main function of the process that holds a terminal: it copies the output
// of the command to stdout, and types the text from the pipe. It returns when
// the leader, named by [Args], has ended and its last output is written. HUP, INT
// and TERM are ignored: a command may still print after such a signal.
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

// copier copies between a terminal, an output file and the pipe.
type copier struct {
	master, slave, pipe *os.File
	out                 io.Writer
}

// run copies until ended returns and the output up to then is written. The pipe stays
// open: its end tells others that this process has ended.
func (c *copier) run(ended func()) error {
	var both sync.WaitGroup // joined below
	both.Go(func() { _, _ = io.CopyBuffer(plainWriter{c.master}, plainReader{c.pipe}, make([]byte, MaxTyped)) })
	both.Go(func() {
		ended()
		// While the slave is open, a command that has closed its terminal may open it
		// again; that ends here.
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

// sink writes a file whose disk may be full at times, without ending the command. It
// counts the lost bytes and reports them as soon as it can write again.
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
