package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	d      *Driver
	g      *process.Group
	id     task.ID
	alone  bool // it has ended by itself
	result task.Result
}

// command starts a command and takes in its output.
func (d *Driver) command(ctx context.Context, h task.Host, w Watch, r *report) (task.Result, error) {
	p, err := openPipes()
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	defer p.close()
	c, err := d.begin(ctx, h, w, p)
	if err != nil {
		return task.Result{}, err
	}
	cut := &lines{each: r.line}
	p.read(func(b []byte) {
		_, _ = h.Output().Write(b) // a full disk must not stop the watch
		cut.feed(b)
	}, func(b []byte) { _, _ = h.Output().Write(b) })
	err = c.wait(ctx, p)
	cut.flush()
	return c.result, err
}

// wait waits for the end, natural or not, and for all that was printed.
func (c *running) wait(ctx context.Context, p *pipes) error {
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
		p.drain(c)
		c.release()
		return cause
	}
	c.alone = true
	child.Exited(&c.result, exit)
	if c.g.Reap() {
		c.end(ctx, child.Grace)
	}
	p.drain(c)
	c.release()
	return child.Verdict(exit.Code, c.result.Signal)
}

// begin starts the command. After an error nothing is left of it.
func (d *Driver) begin(ctx context.Context, h task.Host, w Watch, p *pipes) (*running, error) {
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
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	g, err := process.StartGroup(process.Command{Args: w.argv(), Dir: w.Cwd, Stdout: p.out.theirs, Stderr: p.err.theirs,
		Env: append(child.Marks(rec, self), d.client.Env...), Fork: d.client.Fork})
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	c := &running{d: d, g: g, id: rec.ID}
	id := g.Identity()
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
}

// pipes are the pipes for the output of a command.
type pipes struct {
	out, err pipe
	readers  sync.WaitGroup // one per pipe; drain waits
	done     chan struct{}  // closed when both have ended; nil before read
}

type pipe struct{ ours, theirs *os.File }

func openPipes() (*pipes, error) {
	p := &pipes{}
	for _, one := range []*pipe{&p.out, &p.err} {
		var err error
		if one.ours, one.theirs, err = os.Pipe(); err != nil {
			p.close()
			return nil, fmt.Errorf("open pipe: %w", err)
		}
	}
	return p, nil
}

// read gives the child's ends away and reads ours. stderr is not watched: it goes
// to the output only.
func (p *pipes) read(stdout, stderr func([]byte)) {
	_, _ = p.out.theirs.Close(), p.err.theirs.Close()
	p.readers.Go(func() { copyTo(p.out.ours, stdout) })
	p.readers.Go(func() { copyTo(p.err.ours, stderr) })
	p.done = make(chan struct{})
	go func() { // ends with the readers
		p.readers.Wait()
		close(p.done)
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

// drain waits until everything that was printed is taken in. Whoever still holds
// a pipe then is ended, and if he cannot be, he is not waited for.
func (p *pipes) drain(c *running) {
	if !p.wait() {
		c.end(child.Patience(child.Grace), child.Grace)
		p.wait()
	}
	for _, one := range []pipe{p.out, p.err} {
		_ = one.ours.SetReadDeadline(time.Unix(1, 0))
	}
	<-p.done // nothing blocks a reader but its pipe
}

func (p *pipes) wait() bool {
	t := time.NewTimer(drainWait)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// close closes the open ends. It may be called at any time.
func (p *pipes) close() {
	for _, f := range []*os.File{p.out.theirs, p.err.theirs, p.out.ours, p.err.ours} {
		if f != nil {
			_ = f.Close()
		}
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
