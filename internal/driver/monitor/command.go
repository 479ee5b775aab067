package monitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// drainWait is how long the ends of pipes are waited for when the group is gone: a process
// that left it may hold one.
const drainWait = time.Second

// running is one command at work.
type running struct {
	d       *Driver
	g       *process.Group
	id      task.ID
	pipes   process.Streams
	readers sync.WaitGroup // one for each pipe
	done    chan struct{}  // closed when both have ended
	alone   bool           // it has ended by itself
	result  task.Result
}

// command starts a command and takes in its output.
func (d *Driver) command(ctx context.Context, h task.Host, w Watch, r *report) (task.Result, error) {
	c, err := d.begin(ctx, h, w)
	if err != nil {
		return task.Result{}, err
	}
	cut := &lines{each: r.line}
	c.read(func(b []byte) {
		_, _ = h.Output().Write(b) // a full disk must not stop the watch
		cut.feed(b)
	}, func(b []byte) { _, _ = h.Output().Write(b) })
	err = c.wait(ctx)
	cut.flush()
	return c.result, err
}

// wait waits for the end, natural or not, and for all that was printed.
func (c *running) wait(ctx context.Context) error {
	defer c.release()
	defer c.drain()
	exit, err := c.g.Wait(ctx)
	if err != nil {
		cause := context.Cause(ctx)
		if cause == nil { // it could not be waited for
			cause = err
		}
		c.end(context.WithoutCancel(ctx), child.GraceOf(cause))
		if exit, err := c.g.Wait(child.Patience(0)); err == nil {
			child.Exited(&c.result, exit)
		}
		return cause
	}
	c.alone = true
	child.Exited(&c.result, exit)
	if c.g.Reap() {
		c.end(ctx, child.Grace)
	}
	return child.Verdict(exit.Code, c.result.Signal)
}

// begin starts the command. After an error nothing is left of it.
func (d *Driver) begin(ctx context.Context, h task.Host, w Watch) (*running, error) {
	select {
	case d.starts <- struct{}{}:
		defer func() { <-d.starts }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	rec := h.Record()
	self, err := d.self.Identity()
	if err == nil && d.keeper != nil {
		err = d.keeper.Ready()
	}
	c := &running{d: d, id: rec.ID, done: make(chan struct{})}
	if err == nil {
		c.g, c.pipes, err = process.StartPiped(process.Command{Args: w.argv(), Dir: w.Cwd, Fork: d.client.Fork,
			Env: append(child.Marks(rec, self), d.client.Env...)})
	}
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	_ = c.pipes.In.Close() // nothing is typed into it
	id := c.g.Identity()
	if err := h.Begun(child.Record(id)); err != nil {
		c.undo(ctx)
		return nil, fmt.Errorf("record start of %s: %w", rec.ID, err)
	}
	if d.keeper != nil {
		if err := d.keeper.Watch(id, string(rec.ID), false, ""); err != nil {
			c.undo(ctx)
			return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
		}
	}
	return c, nil
}

func (c *running) undo(ctx context.Context) {
	c.end(context.WithoutCancel(ctx), child.Grace)
	c.release()
}

// end ends the group and what escaped from it, and adds to the result.
func (c *running) end(ctx context.Context, grace time.Duration) {
	ending := process.Ending{Grace: grace, Mark: string(c.id), Table: &c.d.table, ByItself: c.alone}
	child.Note(&c.result, c.id, c.g.End(ctx, ending))
}

// release lets go of the leader and of its number.
func (c *running) release() {
	if c.d.client.Made != nil {
		c.result.Made = c.d.client.Made()
	}
	if c.d.keeper != nil {
		_ = c.d.keeper.Forget(c.g.Identity()) // a keeper that is gone has forgotten it already
	}
	c.g.Reap()
	c.g.Close()
	c.pipes.Close()
}

// read takes in what the command prints. stderr is not watched: it goes to the output only.
func (c *running) read(stdout, stderr func([]byte)) {
	c.readers.Go(func() { copyTo(c.pipes.Out, stdout) })
	c.readers.Go(func() { copyTo(c.pipes.Err, stderr) })
	go func() { // ends with the readers
		c.readers.Wait()
		close(c.done)
	}()
}

func copyTo(from io.Reader, to func([]byte)) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			to(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// drain waits until all output is taken in. A process that still holds a pipe then is ended, and
// if it cannot be, its output is given up.
func (c *running) drain() {
	if !c.drained() {
		c.end(child.Patience(child.Grace), child.Grace)
		c.drained()
	}
	c.pipes.Expire(0)
	<-c.done // only its pipe can block a reader
}

func (c *running) drained() bool {
	select {
	case <-c.done:
		return true
	case <-time.After(drainWait):
		return false
	}
}

var (
	_ task.Freezer = (*Driver)(nil)
	_ task.Adopter = (*Driver)(nil)
)

// Adopts takes up monitors with a process, to end it: it was not to outlive its host.
func (d *Driver) Adopts(r task.Record) bool { return r.Process != nil }

func (d *Driver) clear(ctx context.Context, rec task.Record) (task.Result, error) {
	var res task.Result
	if rec.Process.Boot == process.Boot() {
		child.Note(&res, rec.ID, child.Clear(ctx, rec, &d.table))
	}
	return res, errors.Join(task.ErrLost, &task.StopError{Cause: *task.Lost(rec, process.Boot())})
}

// lineBytes is how much of one line is looked at.
const lineBytes = 64 << 10

// lines cuts the input into lines. Of a line that is too long it keeps the beginning.
type lines struct {
	each func(line []byte) // without its end; good during the call only

	held []byte // the beginning of a line that has not ended
	over bool   // held is all that counts of its line
}

func (l *lines) feed(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.hold(p)
			return
		}
		switch line := p[:i]; {
		case len(l.held) > 0 || l.over:
			l.hold(line)
			l.flush()
		default:
			l.each(line[:min(len(line), lineBytes)])
		}
		p = p[i+1:]
	}
}

func (l *lines) hold(p []byte) {
	room := lineBytes - len(l.held)
	l.over = l.over || len(p) > room
	l.held = append(l.held, p[:min(len(p), room)]...)
}

// flush takes the held bytes for a whole line.
func (l *lines) flush() {
	if len(l.held) > 0 {
		l.each(l.held)
	}
	l.held, l.over = l.held[:0], false
}
