package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// How a command is ended: its stdin is closed, then it is sent TERM, then KILL.
const (
	leaveWait = 500 * time.Millisecond // after its stdin has ended
	termWait  = 500 * time.Millisecond // after TERM
	drainWait = 200 * time.Millisecond // to read its last output
)

// stdio is a server that is a command.
type stdio struct {
	c      *Conn
	g      *process.Group
	mark   string
	table  *process.Table
	meter  meter
	pipes  process.Streams
	spoken ring

	writing sync.Mutex // held while a frame is written
}

// startStdio starts a command. The mark must be in its environment.
func startStdio(c *Conn, cmd process.Command, mark string, table *process.Table) (*stdio, error) {
	w := &stdio{c: c, mark: mark, table: table, meter: meter{most: int64(c.cfg.budget)}}
	var err error
	w.g, w.pipes, err = process.StartPiped(cmd)
	return w, err
}

func (w *stdio) agreed(string) <-chan struct{} { return nil }

func (w *stdio) said() string { return w.spoken.String() }

func (w *stdio) request(r request) (func(), error) {
	return func() {}, w.write(r.frame)
}

func (w *stdio) send(_ context.Context, frame []byte) error { return w.write(frame) }

// write puts one frame into stdin. A command that does not read in time is given up: it
// has a part of the frame, so that no other can follow.
func (w *stdio) write(frame []byte) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	_ = w.pipes.In.SetWriteDeadline(time.Now().Add(sendLimit)) // a pipe has deadlines
	if w.c.life.Err() != nil {                                 // checked after the deadline is set: close's deadline wins
		return w.c.goneError()
	}
	_, err := w.pipes.In.Write(append(frame, '\n'))
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.c.end(fmt.Errorf("it has not read its stdin for %v", sendLimit))
	}
	// A server that closes stdin is mostly about to end, and its exit says more.
	select {
	case <-w.c.life.Done():
	case <-time.After(leaveWait):
		w.c.end(errors.New("it has closed its stdin"))
	}
	return w.c.goneError()
}

// run implements [wire].
func (w *stdio) run(ctx context.Context) error {
	var flows sync.WaitGroup
	silent, hush := context.WithCancelCause(ctx)
	defer hush(nil)
	flows.Go(func() { hush(w.read()) })
	heard := make(chan struct{})
	flows.Go(func() {
		defer close(heard)
		_, _ = io.Copy(&w.spoken, w.pipes.Err) // to its end, or the deadline
	})
	exit, err := w.g.Wait(silent)
	if err != nil && ctx.Err() == nil { // its stdout has ended first
		moment, done := context.WithTimeout(ctx, drainWait)
		exit, err = w.g.Wait(moment)
		done()
	}
	if ctx.Err() == nil { // answers before its end count, and its last output may say why it ended
		w.pipes.Expire(drainWait)
		<-silent.Done()
		<-heard
	}
	why := context.Cause(ctx)
	if why == nil {
		why = w.ended(exit, err, context.Cause(silent))
	}
	w.c.end(why)
	w.close()
	w.pipes.Expire(drainWait)
	flows.Wait()
	w.pipes.Close()
	w.g.Reap()
	w.g.Close()
	return why
}

// close ends the command and all that it has started.
func (w *stdio) close() {
	_ = w.pipes.In.SetWriteDeadline(time.Unix(1, 0)) // frees a blocked writer
	w.writing.Lock()
	_ = w.pipes.In.Close()
	w.writing.Unlock()
	moment, done := context.WithTimeout(context.Background(), leaveWait)
	_, _ = w.g.Wait(moment) // the chance to end by itself
	done()
	w.g.End(context.Background(), process.Ending{Grace: termWait, Mark: w.mark, Table: w.table})
}

// ended returns how the command has ended, with its last output.
func (w *stdio) ended(exit process.Exit, err, read error) error {
	what := fmt.Sprintf("it ended with exit code %d", exit.Code)
	switch {
	case read != nil && !errors.Is(read, io.EOF) && !errors.Is(read, os.ErrDeadlineExceeded):
		return read
	case err != nil:
		what = "it has closed its stdout"
	case exit.Signal != 0:
		what = fmt.Sprintf("it was ended by signal %d", exit.Signal)
	}
	lines := strings.Split(strings.TrimSpace(w.said()), "\n")
	if text := strings.TrimSpace(lines[len(lines)-1]); text != "" {
		what += ": " + text
	}
	return errors.New(what)
}

// read takes frames until the stdout ends.
func (w *stdio) read() error {
	l := newLines(w.pipes.Out, w.c.cfg.frame, &w.meter)
	for {
		one, err := l.next()
		switch {
		case errors.Is(err, errMeter):
			return fmt.Errorf("it printed a line of more than %d bytes", w.meter.most)
		case err != nil:
			return err
		case one.long:
			w.c.tooLong(one.data, one.tail)
		case w.c.receive(one.data) != nil:
			_, _ = w.spoken.Write(append(bytes.Clone(one.data[:min(len(one.data), junkKept)]), '\n'))
		}
	}
}
