package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Pause holds a task and everything under it, the task first, and returns them
// as they are then. What ends meanwhile, or has ended, is left out. An error
// names what could not be held; the rest of the tree is held all the same.
func (s *Supervisor) Pause(ctx context.Context, id task.ID) ([]task.Record, error) {
	return s.chill(ctx, id, task.Pause)
}

// Thaw lets a task and everything under it go on.
func (s *Supervisor) Thaw(ctx context.Context, id task.ID) ([]task.Record, error) {
	return s.chill(ctx, id, task.Thaw)
}

func (s *Supervisor) chill(ctx context.Context, id task.ID, verb task.Verb) ([]task.Record, error) {
	root := s.entry(id)
	if root == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	s.cold.Lock()
	defer s.cold.Unlock()
	var recs []task.Record
	var errs []error
	line := []*entry{root}
	for i := 0; i < len(line); i++ { // the children are those after the parent's own change
		e := line[i]
		rec, err := s.set(ctx, e, verb)
		var ended *task.MoveError
		switch {
		case err == nil:
			recs = append(recs, rec)
		case errors.As(err, &ended), errors.Is(err, ErrUnknown): // not recorded yet: it looks at its parent when it begins
		default:
			errs = append(errs, err)
		}
		e.mu.Lock()
		line = append(line, e.children...)
		e.mu.Unlock()
	}
	return recs, errors.Join(errs...)
}

// Suspend pauses all that lives and is not to outlive this host, since the host is about
// to stand still. goOn lets just those go on.
func (s *Supervisor) Suspend(ctx context.Context) (goOn func(context.Context) error, err error) {
	s.cold.Lock()
	defer s.cold.Unlock()
	s.mu.RLock()
	all := s.order[:len(s.order):len(s.order)]
	s.mu.RUnlock()
	var held []*entry
	var errs []error
	for _, e := range all { // who has started something comes before it
		if r := e.rec.Load(); r.Status.Terminal() || r.Paused || r.Keep {
			continue
		}
		_, err := s.set(ctx, e, task.Pause)
		var ended *task.MoveError
		switch {
		case err == nil:
			held = append(held, e)
		case !errors.As(err, &ended):
			errs = append(errs, err)
		}
	}
	return func(ctx context.Context) error {
		s.cold.Lock()
		defer s.cold.Unlock()
		var errs []error
		for _, e := range held {
			var ended *task.MoveError
			if _, err := s.set(ctx, e, task.Thaw); err != nil && !errors.As(err, &ended) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// set changes one task. The caller holds cold.
func (s *Supervisor) set(ctx context.Context, e *entry, verb task.Verb) (task.Record, error) {
	rec, err := s.apply(ctx, e, lifecycle.Change{Verb: verb}, nil, "")
	if err != nil {
		return rec, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if verb == task.Thaw {
		e.release()
	} else if e.thawed == nil {
		e.thawed = make(chan struct{})
		e.clock.stop()
	}
	return rec, e.stand(rec)
}

// release lets the task go on. The caller holds mu.
func (e *entry) release() {
	if e.thawed != nil {
		close(e.thawed)
		e.thawed = nil
		e.clock.start()
	}
}

// clock is the time limit of a run, which does not pass while the task is paused
// or waits for a place.
// It is guarded by the mu of its task. A nil one does nothing.
type clock struct {
	timer *time.Timer
	limit time.Duration
	left  time.Duration
	since time.Time // that it goes; zero: it stands
	held  int       // reasons for which it stands
}

// used is how much of the limit has passed.
func (c *clock) used() time.Duration {
	left := c.left
	if !c.since.IsZero() {
		left -= time.Since(c.since)
	}
	return c.limit - max(0, left)
}

func (c *clock) start() {
	if c == nil {
		return
	}
	if c.held--; c.held == 0 && c.since.IsZero() {
		c.since = time.Now()
		c.timer.Reset(c.left)
	}
}

func (c *clock) stop() {
	if c == nil {
		return
	}
	if c.held++; c.held == 1 && !c.since.IsZero() && c.timer.Stop() { // else its time is up
		c.left -= time.Since(c.since)
		c.since = time.Time{}
	}
}

// wind starts the clock of a run and returns what takes it away again.
func (e *entry) wind(limit time.Duration, late func()) (done func()) {
	if limit <= 0 {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &clock{timer: time.AfterFunc(limit, late), limit: limit, left: limit, since: time.Now()}
	if e.clock = c; e.thawed != nil {
		c.stop()
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.stop(); e.clock == c { // a further run may have come up
			e.clock = nil
		}
	}
}

// Clock is how long a run has worked, and how long it may; 0 where it has not
// begun or has no time limit.
func (s *Supervisor) Clock(id task.ID) (used, limit time.Duration) {
	e := s.entry(id)
	if e == nil {
		return 0, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock == nil {
		return 0, 0
	}
	return e.clock.used(), e.clock.limit
}

// stand makes the process of a task stand still or go on, as its record says. The
// caller holds mu.
func (e *entry) stand(rec task.Record) error {
	f, ok := e.driver.(task.Freezer)
	if !ok || rec.Process == nil || rec.Status.Terminal() {
		return nil
	}
	do := f.Thaw
	if rec.Paused {
		do = f.Freeze
	}
	if err := do(*rec.Process); err != nil {
		return fmt.Errorf("task %s: %w", rec.ID, err)
	}
	return nil
}

// thawing is nil for a task that is not paused.
func (e *entry) thawing() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.thawed
}

// inherit pauses a task that was started by one that is paused.
func (s *Supervisor) inherit(ctx context.Context, e *entry) {
	p := e.parent()
	if p == nil || p.thawing() == nil {
		return
	}
	s.cold.Lock()
	defer s.cold.Unlock()
	if p.thawing() != nil {
		_, _ = s.set(ctx, e, task.Pause) // what cannot be recorded is not paused, and is seen to run
	}
}

// catchUp stops a process that was started after its task was paused.
func (s *Supervisor) catchUp(e *entry) {
	if e.thawing() == nil {
		return
	}
	s.cold.Lock()
	defer s.cold.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.stand(*e.rec.Load()) // a process that cannot be stopped goes on, as it would have a moment earlier
}

// WaitWhilePaused is [task.Host.WaitWhilePaused] for an agent whose run nobody holds a host of, such as
// the main agent. One that is no task is never paused.
func (s *Supervisor) WaitWhilePaused(ctx context.Context, id task.ID) error {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	for thawed := e.thawing(); thawed != nil; thawed = e.thawing() {
		select {
		case <-thawed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
