package shell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/task"
)

// drainWait is how long the ends of pipes are waited for when the group is gone:
// somebody who left it may hold one. After that he is looked for and ended.
const drainWait = time.Second

// lineWait is how long a command may go on to print at a terminal that cannot be shown
// any more: its last output comes in pieces.
const lineWait = time.Second

// abandonWait is how long a copy may take to see that its pipe was closed.
const abandonWait = 100 * time.Millisecond

// output is where a command prints.
type output struct {
	stdin          *os.File  // nil: the null device
	stdout, stderr *os.File  // the child's ends; ours until started
	term           *terminal // nil: it has none
	tee            *Tee      // nil: it is not shown
	pipes          []*os.File
	dropped        atomic.Int64   // bytes of the pipes that could not be written to the file
	file           *os.File       // receives the copies of the pipes; nil without pipes
	copies         sync.WaitGroup // one per pipe; drain and abandon wait for them
	done           chan struct{}  // closed when all pipes have ended; nil before the start
}

// Tee shows output while it is written to the output file. A command that is
// shown cannot be kept. Where nothing can be shown any more the command meets a
// closed pipe when it prints again, as if it wrote there itself; one with a terminal
// is hung up.
type Tee struct {
	Stdout, Stderr io.Writer

	mu   sync.Mutex
	lost error // the first thing that could not be shown; guarded by mu
}

// Lost returns the reason why some output could not be shown, or nil. EPIPE means that
// the reader went away.
func (t *Tee) Lost() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

func (t *Tee) lose(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = err
	}
}

func (t *Tee) stdout() io.Writer {
	if t == nil {
		return nil
	}
	return t.Stdout
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
	if err := o.pipe(h.Output()); err != nil {
		o.abandon()
		return nil, fmt.Errorf("open output: %w", err)
	}
	outR, errR := o.pipes[0], o.pipes[1]
	o.copies.Go(func() { o.copy(outR, o.tee.Stdout) })
	o.copies.Go(func() { o.copy(errR, o.tee.Stderr) })
	return o, nil
}

// pipe opens the pipe between a command and the readers of its output. The copies
// go through a descriptor as a command itself has it, and are bounded as it would be.
func (o *output) pipe(to task.Output) (err error) {
	if o.file, err = to.File(); err != nil {
		return err
	}
	for _, w := range []**os.File{&o.stdout, &o.stderr} {
		r, end, err := os.Pipe()
		if err != nil {
			return err
		}
		o.pipes, *w = append(o.pipes, r), end
	}
	return nil
}

// copy copies what comes until its end, or until it cannot be shown any more: then
// the command must not be left to print in vain, and a command that prints no more
// must not be harmed.
func (o *output) copy(from *os.File, show io.Writer) {
	defer from.Close()
	buf := make([]byte, 32<<10)
	var gone time.Time
	for {
		n, err := from.Read(buf)
		if n > 0 {
			wrote, _ := o.file.Write(buf[:n]) // a full disk does not keep it from being shown
			o.dropped.Add(int64(n - wrote))
		}
		switch {
		case n == 0 || show == nil:
		case !gone.IsZero(): // a terminal that is closed hangs up at once, so it is closed when more comes
			if time.Since(gone) > lineWait {
				return
			}
		default:
			if _, lost := show.Write(buf[:n]); lost != nil {
				o.tee.lose(lost)
				if gone = time.Now(); o.term == nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// explain adds to the verdict on a command that its output was not shown.
func (o *output) explain(err error) error {
	var fail *task.FailError
	lost := o.tee.Lost()
	if lost == nil || !errors.As(err, &fail) {
		return err
	}
	why := "what it printed could not be shown any more: " + lost.Error()
	if errors.Is(lost, syscall.EPIPE) {
		why = "nobody read any more what it printed"
	}
	return &task.FailError{Reason: fail.Reason, Detail: fail.Detail, Err: fmt.Errorf("%w: %s", fail.Err, why)}
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
	if !o.wait(drainWait) {
		r.end(child.Patience(child.Grace))
		o.wait(drainWait)
		o.abandon()
	}
	if n := o.dropped.Load(); n > 0 {
		r.result.Notes = append(r.result.Notes, fmt.Sprintf("%d bytes of its output were shown and not saved", n))
	}
}

func (o *output) wait(d time.Duration) bool {
	select {
	case <-o.done:
		return true
	case <-time.After(d):
		return false
	}
}

// abandon closes the remaining files. It may be called again. A copy that is stuck in
// a write to a reader that does not read cannot be freed: abandon leaves it, or the
// host could never end.
func (o *output) abandon() {
	o.term.close()
	_ = o.stdout.Close() // of nil too
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
	_ = o.file.Close()
}
