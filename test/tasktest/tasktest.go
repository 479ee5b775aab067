// Package tasktest is what every [task.Driver] must pass: the parts of its
// contract that can be seen from outside, run against a [Host] that records
// the reports of a driver.
//
// It promises that a driver which passes can be stopped, closed and shared. It
// does not check what the work itself does.
package tasktest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Config says which driver is tested, and by what work. Long, Short and Prints
// must be set.
type Config struct {
	// Long makes a driver and work that shows a sign of life (a process, output
	// or progress) and then goes on until it is ended.
	Long func(t *testing.T) (task.Driver, json.RawMessage)
	// Short makes a driver and work that prints Prints and ends well by itself.
	Short  func(t *testing.T) (task.Driver, json.RawMessage)
	Prints string
	// Grace bounds how long a stop may take; 0: 5 s.
	Grace time.Duration
	// Asks makes a driver and work that puts n questions at once by [task.Host.Ask],
	// prints Prints for each that is allowed, and ends well; nil: it never asks.
	Asks func(t *testing.T, n int) (task.Driver, json.RawMessage)
	// Checkpoint makes a driver that reads checkpoints; nil: it has none.
	Checkpoint func(t *testing.T) (task.Driver, json.RawMessage)
	// Outlives says that the work is done elsewhere and goes on without this host,
	// whether or not somebody asked to keep it.
	Outlives bool
}

// Run runs the whole suite as subtests.
func Run(t *testing.T, c Config) {
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	for name, test := range map[string]func(*testing.T, Config){
		"check": checks, "output": output, "stop": stop, "closing": closing, "ended": ended, "shared": shared,
		"checkpoint": checkpoint, "asks": asks,
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			test(t, c)
			goleak.VerifyNone(t, before)
		})
	}
}

// work is a run under test.
type work struct {
	h    *Host
	end  context.CancelCauseFunc
	done chan outcome
}

type outcome struct {
	res task.Result
	err error
}

func begin(t *testing.T, d task.Driver, input json.RawMessage) *work {
	t.Helper()
	if err := d.Check(input); err != nil {
		t.Fatalf("the driver refuses its input: %v", err)
	}
	ctx, end := context.WithCancelCause(context.Background())
	w := &work{h: NewHost(t, d.Kind(), input), end: end, done: make(chan outcome, 1)}
	go func() { // every test waits for it, or fails
		res, err := d.Run(ctx, w.h)
		w.h.End()
		w.done <- outcome{res, err}
	}()
	t.Cleanup(func() { end(task.ErrClosing) })
	return w
}

// alive waits for a sign of life.
func (w *work) alive(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-w.h.alive:
	case o := <-w.done:
		t.Fatalf("Run returned before it was to: %+v, %v", o.res, o.err)
	case <-time.After(within):
		t.Fatal("no sign of life")
	}
}

func (w *work) wait(t *testing.T, within time.Duration) outcome {
	t.Helper()
	select {
	case o := <-w.done:
		return o
	case <-time.After(within):
		t.Fatalf("Run did not return within %s", within)
		return outcome{}
	}
}

func checks(t *testing.T, c Config) {
	d, _ := c.Long(t)
	for _, bad := range []string{"", "[]", "{", `"x"`, "{}"} {
		if d.Check(json.RawMessage(bad)) == nil {
			t.Errorf("Check accepts %q", bad)
		}
	}
}

func output(t *testing.T, c Config) {
	d, input := c.Short(t)
	w := begin(t, d, input)
	o := w.wait(t, 30*time.Second)
	if o.err != nil {
		t.Errorf("Run returned %v", o.err)
	}
	if got := w.h.Printed(); !strings.Contains(got, c.Prints) {
		t.Errorf("Run has returned and %q is not in the output: %q", c.Prints, got)
	}
	if o.res.Settle != nil {
		o.res.Settle()
	}
}

func stop(t *testing.T, c Config) {
	d, input := c.Long(t)
	w := begin(t, d, input)
	w.alive(t, 30*time.Second)
	grace := c.Grace / 2
	cause := &task.StopError{
		Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped, Detail: "enough"},
		Grace: &grace,
	}
	w.end(cause)
	o := w.wait(t, c.Grace)
	change, ends := lifecycle.Ending(cause, o.res, o.err)
	if !ends || change.Verb != task.Stop || change.Cause.Actor != task.ByUser || change.Cause.Detail != "enough" {
		t.Errorf("a stop is recorded as %+v (ends: %v): Run returned %v", change, ends, o.err)
	}
	if len(o.res.Left) > 0 {
		t.Errorf("left: %+v", o.res.Left)
	}
}

func closing(t *testing.T, c Config) {
	d, input := c.Long(t)
	w := begin(t, d, input)
	w.alive(t, 30*time.Second)
	w.end(task.ErrClosing)
	o := w.wait(t, c.Grace)
	change, ends := lifecycle.Ending(task.ErrClosing, o.res, o.err)
	if ends && (change.Verb != task.Stop || change.Cause.Reason != task.ReasonClosing) {
		t.Errorf("closing is recorded as %+v: Run returned %v", change, o.err)
	}
	if !ends && !w.h.Record().Keep && !c.Outlives {
		t.Errorf("work that nobody asked to keep goes on: Run returned %v", o.err)
	}
}

// ended runs work whose context has ended already: it must not be begun.
func ended(t *testing.T, c Config) {
	d, input := c.Long(t)
	ctx, end := context.WithCancelCause(context.Background())
	cause := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	end(cause)
	done := make(chan outcome, 1)
	h := NewHost(t, d.Kind(), input)
	go func() { // waited for below
		res, err := d.Run(ctx, h)
		h.End()
		done <- outcome{res, err}
	}()
	o := (&work{done: done}).wait(t, c.Grace)
	if change, _ := lifecycle.Ending(cause, o.res, o.err); change.Verb != task.Stop {
		t.Errorf("recorded as %+v: Run returned %v", change, o.err)
	}
	if p := h.Record().Process; p != nil {
		t.Errorf("process %d was started", p.PID)
	}
}

// shared runs two tasks by one driver: the end of one is not that of the other.
func shared(t *testing.T, c Config) {
	d, input := c.Long(t)
	one, two := begin(t, d, input), begin(t, d, input)
	one.alive(t, 30*time.Second)
	two.alive(t, 30*time.Second)
	one.end(task.ErrStopRequested)
	if o := one.wait(t, c.Grace); o.err == nil {
		t.Error("a stopped run returned no error")
	}
	select {
	case o := <-two.done:
		t.Errorf("the other ended too: %v", o.err)
	default:
	}
	two.end(task.ErrStopRequested)
	two.wait(t, c.Grace)
}

func checkpoint(t *testing.T, c Config) {
	if c.Checkpoint == nil {
		t.Skip("the driver has no checkpoints")
	}
	d, input := c.Checkpoint(t)
	h := NewHost(t, d.Kind(), input)
	h.rec.Checkpoint = []byte(`{"v":999999}`)
	if _, err := d.Run(t.Context(), h); !errors.Is(err, task.ErrLost) {
		t.Errorf("a checkpoint of a later version: %v, want ErrLost", err)
	}
}
