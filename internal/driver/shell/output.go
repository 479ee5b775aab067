package shell

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// drainWait is how long the ends of pipes are waited for when the group is gone:
// somebody who left it may hold one. After that he is looked for and ended.
const drainWait = time.Second

// abandonWait is how long a copy may take to see that its pipe was closed.
const abandonWait = 100 * time.Millisecond

// output is where a command prints.
type output struct {
	stdin          *os.File  // nil: the null device
	stdout, stderr *os.File  // the child's ends; ours until started
	term           *terminal // nil: it has none
	tee            *Tee      // nil: it is not shown
	pipes          []*os.File
	copies         sync.WaitGroup // one per pipe; drain and abandon wait for them
	done           chan struct{}  // closed when all pipes have ended; nil before the start
}

func (d *Driver) open(h task.Host, rec task.Record, c Command) (*output, error) {
	if c.TTY {
		return d.openTerminal(h, rec)
	}
	if d.client.Tee == nil {
		f, err := h.Output().File()
		if err != nil {
			return nil, fmt.Errorf("open output: %w", err)
		}
		return &output{stdin: d.client.Stdin, stdout: f, stderr: f}, nil
	}
	o := &output{stdin: d.client.Stdin, tee: d.client.Tee}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = outR.Close()
		_ = outW.Close()
		return nil, fmt.Errorf("open output: %w", err)
	}
	o.stdout, o.stderr, o.pipes = outW, errW, []*os.File{outR, errR}
	file := &oneWriter{w: h.Output()}
	o.copies.Go(func() { copyAll(outR, file, o.tee.Stdout) })
	o.copies.Go(func() { copyAll(errR, file, o.tee.Stderr) })
	return o, nil
}

// oneWriter lets two streams share the output file.
type oneWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneWriter) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

// copyAll reads to the end whatever becomes of the writers: a reader that goes
// away must neither block the command nor cost the file its rest.
func copyAll(r io.Reader, to ...io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		for i, w := range to {
			if w == nil || n == 0 {
				continue
			}
			if _, werr := w.Write(buf[:n]); werr != nil && i > 0 {
				to[i] = nil
			}
		}
		if err != nil {
			return
		}
	}
}

// started gives the child's ends away.
func (o *output) started() {
	if o.term == nil {
		_ = o.stdout.Close()
		if o.stderr != o.stdout {
			_ = o.stderr.Close()
		}
	}
	if len(o.pipes) > 0 {
		o.done = make(chan struct{})
		go func() { // ends with the copies
			o.copies.Wait()
			close(o.done)
		}()
	}
}

// drain waits until everything printed is in the file. Whoever still holds a
// pipe then is ended, and if he cannot be, he is not waited for.
func (o *output) drain(r *run) {
	if len(o.pipes) == 0 {
		return
	}
	if o.wait(drainWait) {
		return
	}
	r.end(patience(grace), grace)
	o.wait(drainWait)
	o.abandon()
}

func (o *output) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-o.done:
		return true
	case <-t.C:
		return false
	}
}

// abandon closes what is left. It may be called again. A copy that is stuck in
// a write to somebody who does not read cannot be freed: it is left behind, or
// the host could never end.
func (o *output) abandon() {
	o.term.close()
	_ = o.stdout.Close()
	_ = o.stderr.Close()
	for _, p := range o.pipes {
		_ = p.SetReadDeadline(time.Unix(1, 0))
	}
	if o.done == nil { // nothing was started, so nothing was copied
		o.copies.Wait()
	} else {
		o.wait(abandonWait)
	}
	for _, p := range o.pipes {
		_ = p.Close()
	}
}
