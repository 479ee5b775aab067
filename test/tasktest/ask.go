package tasktest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// asked is one question that the driver waits with.
type asked struct {
	task.Question
	reply chan task.Reply // capacity 1
}

// Ask opens the question until the test answers it, its time is up, or ctx ends.
func (h *Host) Ask(ctx context.Context, q task.Question) (task.Reply, error) {
	q = lifecycle.Shown(q)
	q.ID, q.Task, q.At = lifecycle.NewQuestionID(), h.Record().ID, time.Now().UTC()
	a := asked{q, make(chan task.Reply, 1)}
	if q.Wait > 0 {
		q.Until = q.At.Add(q.Wait)
	}
	var late <-chan time.Time
	if !q.Until.IsZero() {
		timer := time.NewTimer(time.Until(q.Until))
		defer timer.Stop()
		late = timer.C
	}
	h.lives()
	select {
	case h.asked <- a:
	case <-ctx.Done():
		return task.Reply{}, context.Cause(ctx)
	}
	select {
	case r := <-a.reply:
		return r, nil
	case <-late:
		return task.Reply{Reason: "nobody answered"}, nil
	case <-ctx.Done():
		return task.Reply{}, context.Cause(ctx)
	}
}

// question waits for the next question of the driver.
func (w *work) question(t *testing.T) asked {
	t.Helper()
	select {
	case a := <-w.h.asked:
		return a
	case o := <-w.done:
		t.Fatalf("Run returned before it asked: %+v, %v", o.res, o.err)
	case <-time.After(30 * time.Second):
		t.Fatal("the driver does not ask")
	}
	panic("unreachable")
}

// asks runs what holds for drivers that ask.
func asks(t *testing.T, c Config) {
	if c.Asks == nil {
		t.Skip("the driver asks nothing")
	}
	for name, test := range map[string]func(*testing.T, Config){"answer": answered, "stop": stopAsking,
		"timeout": nobody, "two": twice} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// answered checks that what was allowed is done, and what was denied is not.
func answered(t *testing.T, c Config) {
	for _, allow := range []bool{true, false} {
		d, input := c.Asks(t, 1)
		w := begin(t, d, input)
		w.question(t).reply <- task.Reply{Allow: allow, Reason: "not today"}
		if o := w.wait(t, 30*time.Second); o.err != nil {
			t.Errorf("allowed %v: Run returned %v", allow, o.err)
		}
		if did := strings.Contains(w.h.Printed(), c.Prints); did != allow {
			t.Errorf("allowed %v, done %v: %q", allow, did, w.h.Printed())
		}
	}
}

// stopAsking stops a task that waits for an answer.
func stopAsking(t *testing.T, c Config) {
	d, input := c.Asks(t, 1)
	w := begin(t, d, input)
	w.question(t)
	cause := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	w.end(cause)
	o := w.wait(t, c.Grace)
	if change, _ := lifecycle.Ending(cause, o.res, o.err); change.Verb != task.Stop {
		t.Errorf("a stop at a question is recorded as %+v: Run returned %v", change, o.err)
	}
	if strings.Contains(w.h.Printed(), c.Prints) {
		t.Error("what nobody allowed was done")
	}
}

// nobody lets the time of a question pass, which denies it.
func nobody(t *testing.T, c Config) {
	d, input := c.Asks(t, 1)
	w := begin(t, d, input)
	w.question(t).reply <- task.Reply{Reason: "nobody answered within 10m0s"} // as the runtime does
	if o := w.wait(t, 30*time.Second); o.err != nil {
		t.Errorf("Run returned %v", o.err)
	}
	if strings.Contains(w.h.Printed(), c.Prints) {
		t.Error("what nobody allowed was done")
	}
}

// twice has two questions open at once, and answers the second first.
func twice(t *testing.T, c Config) {
	d, input := c.Asks(t, 2)
	w := begin(t, d, input)
	one, two := w.question(t), w.question(t)
	if one.ID == two.ID {
		t.Fatal("one question was asked twice")
	}
	two.reply <- task.Reply{Allow: true}
	one.reply <- task.Reply{Reason: "not this one"}
	if o := w.wait(t, 30*time.Second); o.err != nil {
		t.Errorf("Run returned %v", o.err)
	}
	if n := strings.Count(w.h.Printed(), c.Prints); n != 1 {
		t.Errorf("one of two was allowed, and %d were done: %q", n, w.h.Printed())
	}
}
