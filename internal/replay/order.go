package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// order replays inputs in their recorded order: an agent gets an input from outside when its turn
// has come, and what the log gets by itself (steps) is waited for in between. A step or an input that does not
// come is passed over after some time, together with all else of its task; an answer of a model, a message or
// an end that does not come is a [Divergence].
type order struct {
	speed    float64 // 1: as recorded; 0: as fast as it goes
	patience time.Duration
	begin    time.Time
	turns    []*turn
	diverged func(error)

	mu     sync.Mutex
	next   int              // of turns
	moved  chan struct{}    // closed and replaced when next has changed or the log has grown
	came   map[string]int   // steps that have come before their turn
	astray map[task.ID]bool // tasks and agents of which something did not come
	err    error            // where the replay has left the recording
}

// turn is an input or a step, at its place.
type turn struct {
	n    int
	ms   int64
	what string  // for people; empty: it only keeps the order
	of   task.ID // its task or agent, with which it may be passed over; empty: it must come
	step string  // what comes by itself; empty: an input
	gone bool    // an input that has come; guarded by the order's mu
}

// placed is a turn that comes after an event of the log.
type placed struct {
	*turn
	after   task.Seq
	input   bool          // it comes after what has the number itself
	by      task.ID       // the agent of an input
	event   *task.Event   // of a step; nil: none
	message *task.Message // of a step; nil: none
}

func arranged(all []placed) {
	slices.SortStableFunc(all, func(a, b placed) int {
		if c := cmp.Compare(a.after, b.after); c != 0 || a.input == b.input {
			return c
		}
		if a.input {
			return 1
		}
		return -1
	})
}

// late moves the last input of each agent to the end that it causes: an agent that has nothing more to do
// ends, and passes on or stops its tasks, when all has come that came before this.
func late(all []placed) {
	last := map[task.ID]int{}        // inputs that have caused nothing yet
	parents := map[task.ID]task.ID{} // of tasks
	named := map[string]task.ID{}    // agents by ID and by name
	ends := func(id task.ID, at task.Seq) {
		if i, ok := last[id]; ok {
			all[i].after = at - 1
			delete(last, id)
		}
	}
	for i, one := range all {
		switch e := one.event; {
		case one.input:
			last[one.by] = i
		case one.message != nil:
			delete(last, named[one.message.From])
		case e == nil:
		case e.Verb == task.Create:
			r := e.Task
			parents[r.ID], named[r.Name], named[string(r.ID)] = r.Parent, r.ID, r.ID
			delete(last, r.Parent)
		case e.Verb == task.Reparent, e.Verb == task.RequestStop && withParent(e.Task.Cause):
			ends(parents[e.Task.ID], e.Seq)
			parents[e.Task.ID] = e.Task.Parent
		case e.Task.Status.Terminal():
			ends(e.Task.ID, e.Seq)
		default:
			delete(last, e.Task.ID)
		}
	}
	arranged(all)
}

// withParent reports whether a task is stopped because its parent has ended.
func withParent(c *task.Cause) bool { return c != nil && c.Reason == task.ReasonParentEnded }

// diverge ends the replay.
func (o *order) diverge(format string, v ...any) error {
	err := &Divergence{Text: fmt.Sprintf(format, v...)}
	o.mu.Lock()
	first := o.err == nil
	if first {
		o.err = err
	}
	o.mu.Unlock()
	if first && o.diverged != nil {
		o.diverged(err)
	}
	return err
}

// missing names the first turn that must come and has not; empty: none.
func (o *order) missing() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.turns[o.next:] {
		if t.of == "" {
			return t.what
		}
	}
	return ""
}

// await waits until it is the turn of t, and for its time.
func (o *order) await(ctx context.Context, t *turn) error {
	for last, since := -1, time.Now(); ; {
		o.mu.Lock()
		next, moved, err := o.next, o.moved, o.err
		o.mu.Unlock()
		switch {
		case err != nil:
			return err
		case next > t.n && t.of != "":
			return nil // it was passed over
		case next > t.n:
			return o.diverge("%s came twice", t.what)
		case next != last:
			last, since = next, time.Now()
		}
		if next == t.n {
			break
		}
		if err := o.pause(ctx, moved, since, next, t.what); err != nil {
			return err
		}
	}
	if o.speed <= 0 {
		return nil
	}
	return sleep(ctx, o.due(t))
}

// sleep waits until a time.
func sleep(ctx context.Context, until time.Time) error {
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// let waits for the turn of an input, then lets the next input have its turn. It returns at once for a nil turn.
func (o *order) let(ctx context.Context, t *turn) error {
	if t == nil {
		return nil
	}
	err := o.await(ctx, t)
	o.pass(t)
	return err
}

// pass lets the input after this one have its turn.
func (o *order) pass(t *turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.gone = true
	o.goOn()
}

// step takes in what has come into the log.
func (o *order) step(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.came[what]++
	o.goOn()
}

// goOn passes what has come and what is astray, and wakes all who wait. The caller holds mu.
func (o *order) goOn() {
	for ; o.next < len(o.turns); o.next++ {
		t := o.turns[o.next]
		if t.step != "" && o.came[t.step] > 0 {
			o.came[t.step]--
		} else if !t.gone && !o.astray[t.of] {
			break
		}
	}
	close(o.moved)
	o.moved = make(chan struct{})
}

// changed returns a channel that is closed when something more has come.
func (o *order) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.moved
}

// pause waits until something more has come. If nothing has since long, the next turn is missing.
func (o *order) pause(ctx context.Context, moved <-chan struct{}, since time.Time, next int, what string) error {
	t := o.turns[next]
	wait := o.waits()
	if t.of != "" {
		wait -= o.patience * 7 / 8 // agents that wait for mail give up after half of it
	}
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(since.Add(wait))):
	}
	if t.of == "" {
		return o.diverge("%s was recorded next, and has not come; %s waits", t.what, what)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.astray[t.of] = true
	o.goOn()
	return nil
}

// waits is how long something is waited for: until the next turn is due, and then some time.
func (o *order) waits() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.speed <= 0 || o.next >= len(o.turns) {
		return o.patience
	}
	return o.patience + max(0, time.Until(o.due(o.turns[o.next])))
}

// due is when a turn comes at the speed of the replay.
func (o *order) due(t *turn) time.Time {
	return o.begin.Add(time.Duration(float64(t.ms) / o.speed * float64(time.Millisecond)))
}
