package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// StopRequest is the cause of a stop and its time limits.
type StopRequest struct {
	Cause task.Cause
	Grace *time.Duration // nil: the driver's default
	// Limit bounds the wait for drivers that do not return. 0: 15 s plus the grace.
	Limit time.Duration
}

// Stop ends whole subtrees. It first forbids further children in them, then ends the tasks from
// the leaves to the roots, and repeats this until it finds no new task. The receipt names every
// task of the trees and every process that survived. Stopping an ended task changes nothing and
// is not an error.
func (s *Supervisor) Stop(ctx context.Context, ids []task.ID, req StopRequest) (task.Receipt, error) {
	var roots []*entry
	for _, id := range ids {
		e := s.entry(id)
		if e == nil {
			return task.Receipt{}, fmt.Errorf("%w: %s", ErrUnknown, id)
		}
		roots = append(roots, e)
	}
	st := newStopping(s, req)
	for _, e := range roots { // all stops are requested before any is awaited
		st.ask(e)
	}
	for _, e := range roots {
		if !st.seen[e] {
			st.seen[e] = true
			st.tree(ctx, e)
		}
	}
	return st.receipt, context.Cause(ctx)
}

// stopping is one stop and its receipt.
type stopping struct {
	s       *Supervisor
	req     StopRequest
	asked   time.Time
	seen    map[*entry]bool
	live    map[*entry]time.Time // when the stop of each live task was requested
	receipt task.Receipt
}

func newStopping(s *Supervisor, req StopRequest) *stopping {
	return &stopping{s: s, req: req, asked: time.Now(), seen: map[*entry]bool{}, live: map[*entry]time.Time{}}
}

func (st *stopping) why() *task.StopError {
	return &task.StopError{Cause: st.req.Cause, Grace: st.req.Grace}
}

// tree stops e and everything below it, deepest first. A frozen tree gets no further children,
// but a start admitted before the freeze may still appear, so the children are listed again
// after they have ended.
func (st *stopping) tree(ctx context.Context, e *entry) {
	e.freeze(st.why())
	for {
		fresh := st.fresh(e)
		if len(fresh) == 0 {
			break
		}
		for _, c := range fresh { // all stops are requested before any is awaited
			st.ask(c)
		}
		for _, c := range fresh {
			st.tree(ctx, c)
		}
	}
	st.one(ctx, e)
}

func (st *stopping) fresh(e *entry) (fresh []*entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.children {
		if !st.seen[c] {
			st.seen[c] = true
			fresh = append(fresh, c)
		}
	}
	return fresh
}

// ask requests the stop of a leaf at once. A task with children follows when they have ended.
func (st *stopping) ask(c *entry) {
	c.freeze(st.why())
	c.mu.Lock()
	leaf := len(c.children) == 0
	c.mu.Unlock()
	if leaf {
		st.cancel(c)
	}
}

// cancel requests the end of one task. It ignores an error of the log: a record that cannot
// show "stopping" must not keep a task running.
func (st *stopping) cancel(e *entry) {
	was := e.rec.Load()
	if was.Status.Terminal() {
		return
	}
	if st.live[e].IsZero() {
		st.live[e] = time.Now()
	}
	_, _ = st.s.apply(context.WithoutCancel(st.s.life), e, lifecycle.Change{Verb: task.RequestStop}, nil, "")
	e.mu.Lock()
	cancel := e.cancel
	e.mu.Unlock()
	if !was.Stopping { // the waiter requests the stop again
		_ = failpoint.Hit("stop/asked")
	}
	if cancel != nil {
		cancel(st.why())
	}
}

// one waits for the end of a single task and writes its line of the receipt. A further run that
// is being recorded ends when it begins, since the task is frozen.
func (st *stopping) one(ctx context.Context, e *entry) {
	was := *e.rec.Load()
	if was.Status.Terminal() && st.live[e].IsZero() && e.over() {
		e.thaw()
		st.receipt.Stopped = append(
			st.receipt.Stopped,
			task.Stopped{ID: e.id, Status: was.Status, Cause: was.Cause, Signals: []task.SignalSent{}},
		)
		return
	}
	st.cancel(e)
	if why := st.wait(ctx, e); why != "" {
		st.survivor(e, why)
	} else {
		e.thaw() // it may have ended since it was frozen
	}
	rec := *e.rec.Load()
	took := time.Since(st.asked)
	if rec.EndTime != nil { // the time spent on other tasks does not count
		took = max(0, rec.EndTime.Sub(st.asked))
	}
	line := task.Stopped{
		ID:           e.id,
		Status:       rec.Status,
		Cause:        rec.Cause,
		Signals:      []task.SignalSent{},
		EndedAfterMS: took.Milliseconds(),
	}
	e.mu.Lock()
	if e.result.Signals != nil {
		line.Signals = e.result.Signals
	}
	for _, left := range e.result.Left {
		left.Task = e.id
		st.receipt.Survivors = append(st.receipt.Survivors, left)
	}
	e.mu.Unlock()
	st.receipt.Stopped = append(st.receipt.Stopped, line)
}

// wait returns when e has ended, or with the reason why it stops waiting. The limit counts from
// the request: stops that were requested together are awaited together.
func (st *stopping) wait(ctx context.Context, e *entry) (why string) {
	if e.over() {
		return ""
	}
	limit := st.req.Limit
	if limit == 0 {
		limit = 15 * time.Second
		if st.req.Grace != nil {
			limit += *st.req.Grace
		}
	}
	asked, ok := st.live[e]
	if !ok { // a further run of it is just beginning
		asked = time.Now()
	}
	live, _ := e.channels()
	late := time.NewTimer(time.Until(asked.Add(limit)))
	defer late.Stop()
	select {
	case <-live:
		return ""
	case <-late.C:
		return "its driver has not ended yet"
	case <-ctx.Done():
		return "nobody waited for its end"
	}
}

func (st *stopping) survivor(e *entry, why string) {
	rec := e.rec.Load()
	left := task.Survivor{Task: e.id, Command: rec.Command, Why: why}
	if rec.Process != nil {
		left.PID = rec.Process.PID
	}
	st.receipt.Survivors = append(st.receipt.Survivors, left)
}

// freeze forbids further children. The first cause counts, as in a context.
func (e *entry) freeze(why *task.StopError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.frozen == nil {
		e.frozen = why
	}
}

// thaw undoes freeze for an ended task, so that a further run can start children.
func (e *entry) thaw() {
	e.mu.Lock()
	e.frozen = nil
	e.mu.Unlock()
}

// stopChildren ends the children that a task leaves at its own end.
func (s *Supervisor) stopChildren(e *entry, end lifecycle.Change) {
	cause := task.Cause{
		Actor:  task.ByParent,
		Reason: task.ReasonParentEnded,
		Detail: "its parent " + string(e.id) + " has ended",
	}
	if end.Verb == task.Stop && end.Cause != nil && end.Cause.Reason == task.ReasonClosing {
		cause = *end.Cause
	}
	st := newStopping(s, StopRequest{Cause: cause})
	e.freeze(st.why())
	for {
		fresh := st.fresh(e)
		if len(fresh) == 0 {
			return
		}
		for _, c := range fresh {
			if s.stops(c) {
				st.ask(c)
			}
		}
		for _, c := range fresh {
			if s.stops(c) {
				st.tree(context.WithoutCancel(s.life), c)
			}
		}
	}
}

// stops reports whether a child ends with its parent. A kept child does not when the host
// closes; its driver decides what happens to it.
func (s *Supervisor) stops(c *entry) bool {
	r := c.rec.Load()
	return !r.Status.Terminal() && !(r.Keep && s.life.Err() != nil)
}

// Retire refuses all further starts if no task is alive, and reports whether it does. Both are
// one atomic step: the close that follows never ends an accepted start.
func (s *Supervisor) Retire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.tasks {
		if e.pinned > 0 || !e.rec.Load().Status.Terminal() {
			return s.closing
		}
	}
	s.closing = true
	return true
}

// Close ends everything in order and returns when no task has a goroutine left. Tasks whose
// work continues without this host stay running.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.end(task.ErrClosing)
	s.runs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.past.timer; t != nil {
		t.Stop()
	}
}

// Closing is closed when Close begins.
func (s *Supervisor) Closing() <-chan struct{} { return s.life.Done() }
