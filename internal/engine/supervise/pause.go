package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Pause pauses a task and everything below it, the task first, and returns their records. Tasks
// that have ended or end meanwhile are left out. The error names the tasks that could not be
// paused; all others are paused.
func (s *Supervisor) Pause(ctx context.Context, id task.ID) ([]task.Record, error) {
	return s.chill(ctx, id, task.Pause)
}

// Thaw resumes a task and everything below it.
func (s *Supervisor) Thaw(ctx context.Context, id task.ID) ([]task.Record, error) {
	return s.chill(ctx, id, task.Thaw)
}

func (s *Supervisor) chill(ctx context.Context, id task.ID, verb task.Verb) ([]task.Record, error) {
	root := s.entry(id)
	if root == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	var recs []task.Record
	var errs []error
	line := []*entry{root}
	for i := 0; i < len(line); i++ { // the children present after the parent's own change
		e := line[i]
		rec, err := s.set(ctx, e, verb)
		var ended *task.MoveError
		switch {
		case err == nil:
			recs = append(recs, rec)
		case errors.As(err, &ended), errors.Is(err, ErrUnknown): // not recorded yet: it checks its parent when it begins
		default:
			errs = append(errs, err)
		}
		e.mu.Lock()
		line = append(line, e.children...)
		e.mu.Unlock()
	}
	return recs, errors.Join(errs...)
}

// Suspend pauses all live tasks that end with this host, because the host is about to be
// suspended. goOn resumes exactly those.
func (s *Supervisor) Suspend(ctx context.Context) (goOn func(context.Context) error, err error) {
	s.pausing.Lock()
	defer s.pausing.Unlock()
	s.mu.RLock()
	all := s.order[:len(s.order):len(s.order)]
	s.mu.RUnlock()
	var held []*entry
	var errs []error
	for _, e := range all { // a parent comes before its children
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
		s.pausing.Lock()
		defer s.pausing.Unlock()
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

// set changes one task. The caller holds pausing.
func (s *Supervisor) set(ctx context.Context, e *entry, verb task.Verb) (task.Record, error) {
	rec, err := s.apply(ctx, e, lifecycle.Change{Verb: verb}, nil, "")
	if err != nil {
		return rec, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if verb == task.Thaw {
		e.release()
	} else if e.resume == nil {
		e.resume = make(chan struct{})
		e.clock.stop()
	}
	return rec, e.applyPause(rec)
}

// release resumes the task. The caller holds mu.
func (e *entry) release() {
	if e.resume != nil {
		close(e.resume)
		e.resume = nil
		e.clock.start()
	}
}

// clock measures the time limit of a run. It does not advance while the task is paused or waits
// for a slot. Guarded by the mu of its task. A nil clock does nothing.
type clock struct {
	timer *time.Timer
	limit time.Duration
	left  time.Duration
	since time.Time // since when it runs; zero: it is stopped
	held  int       // number of reasons for which it is stopped
}

// used returns how much of the limit has passed.
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
	if c.held++; c.held == 1 && !c.since.IsZero() && c.timer.Stop() { // otherwise the limit has passed
		c.left -= time.Since(c.since)
		c.since = time.Time{}
	}
}

// wind starts the clock of a run and returns a function that removes it.
func (e *entry) wind(limit time.Duration, late func()) (done func()) {
	if limit <= 0 {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &clock{timer: time.AfterFunc(limit, late), limit: limit, left: limit, since: time.Now()}
	if e.clock = c; e.resume != nil {
		c.stop()
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.stop(); e.clock == c { // a further run may have started
			e.clock = nil
		}
	}
}

// Clock returns how long a run has worked and its time limit; 0 if it has not begun or has no
// limit.
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

// applyPause suspends or continues the process of a task, according to its record. The caller
// holds mu.
func (e *entry) applyPause(rec task.Record) error {
	if s, ok := e.driver.(task.Suspender); ok && rec.Worker != "" && !rec.Status.Terminal() {
		if err := s.Suspend(rec.ID, rec.Paused); err != nil {
			return fmt.Errorf("task %s: %w", rec.ID, err)
		}
		return nil
	}
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

// resumed returns a channel that is closed when the task is resumed, or nil if it is not
// paused.
func (e *entry) resumed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resume
}

// inherit pauses a new task whose parent is paused.
func (s *Supervisor) inherit(ctx context.Context, e *entry) {
	p := e.parent()
	if p == nil || p.resumed() == nil {
		return
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if p.resumed() != nil {
		_, _ = s.set(ctx, e, task.Pause) // if the pause cannot be recorded, the task visibly runs
	}
}

// catchUp suspends a process that was started after its task was paused.
func (s *Supervisor) catchUp(e *entry) {
	if e.resumed() == nil {
		return
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.applyPause(*e.rec.Load()) // a process that cannot be suspended continues to run
}

// WaitWhilePaused is [task.Host.WaitWhilePaused] for an agent that runs without a Host, such as
// the main agent. An agent that is not a task is never paused.
func (s *Supervisor) WaitWhilePaused(ctx context.Context, id task.ID) error {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	for resumed := e.resumed(); resumed != nil; resumed = e.resumed() {
		select {
		case <-resumed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Park is [task.Parker] for an agent that runs without a Host, such as the main agent. An agent
// that is not a task only waits.
func (s *Supervisor) Park(ctx context.Context, id task.ID, p task.Parked, wait func(context.Context) error) error {
	e := s.entry(id)
	if e == nil {
		return wait(ctx)
	}
	e.tick((*clock).stop)
	defer e.tick((*clock).start)
	_, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Park, Parked: &p}, nil, "")
	if err != nil && !errors.Is(err, lifecycle.ErrNoChange) {
		var move *task.MoveError
		if errors.As(err, &move) { // the main agent between two runs
			return wait(ctx)
		}
		return fmt.Errorf("park %s: %w", id, err)
	}
	err = wait(ctx)
	if s.life.Err() != nil { // the next host finds it parked
		return err
	}
	_, woken := s.apply(context.WithoutCancel(ctx), e, lifecycle.Change{Verb: task.Unpark}, nil, "")
	if err == nil && woken != nil {
		err = fmt.Errorf("wake %s: %w", id, woken)
	}
	return err
}
