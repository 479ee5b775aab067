package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Adopt adds the tasks that earlier hosts of the session have left, in the order of their first
// events. Ended tasks are remembered. A running task whose driver can adopt it (see
// [task.Adopter]) continues under that driver, and is stopped if a stop was requested. Any
// other live task died with its host, and its end is recorded here. driver may return nil for
// kinds without a driver.
func (s *Supervisor) Adopt(ctx context.Context, tasks []Old, driver func(task.Kind) task.Driver) error {
	for _, old := range tasks {
		s.remember(old)
	}
	for _, old := range tasks {
		rec := old.Task
		if rec.Status.Terminal() {
			continue
		}
		_ = failpoint.Hit("adopt/task")
		e := s.entry(rec.ID)
		if old.Begun != nil {
			var err error
			if rec, err = s.apply(ctx, e, lifecycle.Change{Verb: task.Begin, Process: old.Begun}, nil, ""); err != nil {
				return fmt.Errorf("adopt task %s: %w", old.Task.ID, err)
			}
		}
		if d := driver(rec.Kind); adopts(driver, rec) {
			if err := s.unask(ctx, e); err != nil {
				return fmt.Errorf("adopt task %s: %w", rec.ID, err)
			}
			if rec.Stopping { // a stop requested from the earlier host is executed by this one
				e.freeze(&task.StopError{Cause: lifecycle.Unfinished()})
			}
			s.runs.Add(1) // launch calls Done
			s.launch(e, Prepared{Driver: d}, true)
			continue
		}
		lost := lifecycle.Change{Verb: task.Stop, Cause: task.Lost(rec, ""), LeftTasks: s.unseen(e)}
		for _, c := range e.below() { // those that end with it
			if r := *c.rec.Load(); r.Owner == rec.ID && !r.Status.Terminal() && !adopts(driver, r) {
				lost.LeftTasks = append(lost.LeftTasks, r.Left(task.Killed))
			}
		}
		var notification lifecycle.Notification
		rec, err := s.apply(ctx, e, lost, &notification, "")
		if err != nil {
			return fmt.Errorf("adopt task %s: %w", rec.ID, err)
		}
		_ = failpoint.Hit("adopt/lost")
		s.finish(e, task.Result{})
		if s.cfg.Ended != nil {
			s.cfg.Ended(rec, notification)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(time.Now())
	return nil
}

// adopts reports whether the work of a task continues under its driver.
func adopts(driver func(task.Kind) task.Driver, r task.Record) bool {
	d, ok := driver(r.Kind).(task.Adopter)
	return ok && r.Status == task.Running && d.Adopts(r)
}

// Old is a task of an earlier host.
type Old struct {
	Born  task.Seq // of its first event
	Task  task.Record
	Begun *task.Process // of a pending task that had begun, which its host did not record

	recalled bool // it belongs to this host and had been evicted from memory
}

func (s *Supervisor) remember(old Old) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retain(old)
}

// retain is remember for callers that hold mu.
func (s *Supervisor) retain(old Old) {
	rec := lifecycle.Short(old.Task)
	e := &entry{
		id:       rec.ID,
		root:     rec.ID,
		born:     old.Born,
		again:    true,
		live:     make(chan struct{}),
		promoted: make(chan struct{}),
	}
	e.spec = task.Spec{
		Name:         rec.Name,
		Parent:       rec.Parent,
		Owner:        rec.Owner,
		Keep:         rec.Keep,
		Backgrounded: rec.Backgrounded,
		Key:          rec.Key,
	}
	if rec.Owner != "" {
		e.root = rec.Owner
	}
	if p := s.tasks[rec.Parent]; p != nil {
		e.up.Store(p)
		e.root = p.root
		p.mu.Lock()
		p.children = append(p.children, e)
		p.mu.Unlock()
	}
	if t := time.Duration(rec.TimeoutMS) * time.Millisecond; t > 0 && rec.StartTime != nil {
		e.spec.Timeout = t
		if !rec.Paused && rec.Parked == nil { // the waiting time is unknown and does not count
			e.spec.Timeout = max(time.Millisecond, t-time.Since(*rec.StartTime))
		}
	}
	e.rec.Store(&rec)
	if rec.Backgrounded {
		close(e.promoted)
	}
	switch {
	case rec.Status.Terminal():
		close(e.live)
	case rec.Paused:
		e.resume = make(chan struct{})
	}
	s.tasks[rec.ID] = e
	if p := s.pools[rec.Pool]; p != nil && !old.recalled {
		p.countAll(e.root, 1+rec.Resumes)
	}
	s.addName(e)
	if rec.Key != "" {
		s.keys[childKey{rec.Parent, rec.Key}] = e
	}
	s.insert(e)
	if old.recalled {
		e.recalled = time.Now()
	}
	s.queueEnded(e)
}

// Resume gives an ended task a new run under its old ID.
func (s *Supervisor) Resume(ctx context.Context, id task.ID, d task.Driver, spec task.Spec) (task.Record, error) {
	err := spec.Check()
	if err == nil {
		err = d.Check(spec.Input)
	}
	if err == nil {
		err = s.room()
	}
	if err != nil {
		return task.Record{}, err
	}
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	if e.parent().isFrozen() {
		return task.Record{}, ErrFrozen
	}
	if live, _ := e.channels(); e.rec.Load().Status.Terminal() { // its end is durable, but its run may not be finished yet
		select {
		case <-live:
		case <-ctx.Done():
			return task.Record{}, context.Cause(ctx)
		}
	}
	if err := s.readmit(e, spec.Pool); errors.Is(err, errEvicted) {
		return s.Resume(ctx, id, d, spec)
	} else if err != nil {
		return task.Record{}, err
	}
	defer s.unpin(e)
	rec, err := s.apply(ctx, e, lifecycle.Change{
		Verb:       task.Resume,
		Run:        task.NewRunID(),
		Background: spec.Backgrounded,
		ToolUseID:  spec.ToolUseID,
		Owner:      spec.Owner,
		Prompt:     spec.Prompt,
		Priority:   spec.Priority,
		Pool:       spec.Pool,
		Budget:     spec.Budget,
	}, nil, "")
	if err != nil {
		if p := s.pools[spec.Pool]; p != nil {
			p.uncount(e.root)
		}
		s.runs.Done()
		if errors.Is(err, errEnding) {
			return s.Resume(ctx, id, d, spec)
		}
		return rec, err
	}
	_ = failpoint.Hit("task/resumed")
	e.mu.Lock()
	spec.Parent = e.spec.Parent
	spec.Command, spec.Prompt = "", "" // the record has the visible part of the spec
	e.spec, e.again = spec, true
	if spec.Backgrounded {
		e.free()
	}
	e.mu.Unlock()
	s.launch(e, Prepared{Driver: d}, false)
	return s.placed(rec), nil
}

// readmit is admit for a further run, which counts against the limits like the first.
func (s *Supervisor) readmit(e *entry, pool string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosing
	}
	if s.tasks[e.id] != e {
		return errEvicted
	}
	if p, now := s.pools[pool], time.Now(); p != nil {
		if err := p.allows(e.root, e.rec.Load().Depth, now); err != nil {
			return err
		}
		p.count(e.root, now)
	}
	s.runs.Add(1) // launch calls Done
	e.pinned++
	return nil
}

// errEvicted is returned for a task that was evicted from memory since it was looked up.
var errEvicted = errors.New("the task has left the memory")

// errEnding is returned for a task whose end is durable but whose run is not finished.
var errEnding = errors.New("the task is just ending")

// renew prepares e for a further run before that run is recorded: from now on a stop waits for
// the new run instead of the previous one.
func (e *entry) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live, e.promoted = make(chan struct{}), make(chan struct{})
	e.result = task.Result{}
}

// over reports whether the last run is finished.
func (e *entry) over() bool {
	live, _ := e.channels()
	select {
	case <-live:
		return true
	default:
		return false
	}
}

func (s *Supervisor) unpin(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pinned--
}
