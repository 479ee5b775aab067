package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// launch starts the goroutine of a run, which is counted in runs. adopted is set for work of an
// earlier host, which has already begun.
func (s *Supervisor) launch(e *entry, start Prepared, adopted bool) {
	ctx, cancel := context.WithCancelCause(s.life)
	e.mu.Lock()
	e.cancel, e.driver = cancel, start.Driver
	frozen := e.frozen
	e.mu.Unlock()
	if frozen != nil { // a stop was requested since the start was recorded
		cancel(frozen)
	}
	// The position in the queue is taken here and not on the goroutine, so that tasks run in
	// the order of their starts.
	q := &queued{pool: s.pools[e.spec.Pool]}
	if q.pool != nil {
		q.turn, q.place = q.pool.enter()
	}
	if q.turn != nil {
		e.mu.Lock()
		e.waits = &task.Progress{Message: fmt.Sprintf("queued, place %d", q.place)}
		e.mu.Unlock()
	}
	go func() { // joined by Close
		defer s.runs.Done()
		defer cancel(nil)
		s.run(ctx, e, start, q, adopted)
	}()
}

// queued joins the queue of a pool, if the task has one.
type queued struct {
	pool  *pool
	turn  *turn
	place int
}

// run is one run, from pending to its durable end.
func (s *Supervisor) run(ctx context.Context, e *entry, start Prepared, q *queued, adopted bool) {
	d := start.Driver
	h := &host{s: s, e: e}
	if e.rec.Load().Status == task.Pending { // its process under an earlier host is paused or not, as recorded
		s.inherit(ctx, e)
	}
	if q.pool != nil {
		if err := s.queue(ctx, e, q); err != nil {
			s.conclude(ctx, e, h, task.Result{}, err)
			return
		}
		h.pool, h.held = q.pool, true
	}
	if s.cfg.Output != nil {
		e.mu.Lock()
		again := e.again
		e.mu.Unlock()
		s.opening.Lock()
		out, err := s.cfg.Output(*e.rec.Load(), again)
		s.opening.Unlock()
		if err != nil {
			s.conclude(
				ctx,
				e,
				h,
				task.Result{},
				&task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("open output: %w", err)},
			)
			return
		}
		h.out = out
		_ = failpoint.Hit("task/spooled")
	}
	if start.Ready != nil {
		start.Ready(ctx)
	}
	// The output exists before the task is seen to run: readers rely on this order.
	if _, launches := d.(task.Launcher); !adopted && !launches {
		if _, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Begin}, nil, ""); err != nil {
			s.conclude(ctx, e, h, task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("begin: %w", err)})
			return
		}
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer e.wind(e.spec.Timeout, func() { stop(task.ErrTimeout) })()
	h.life, h.over = run, ctx
	var res task.Result
	var err error = &task.PanicError{Value: "the driver has ended its goroutine"}
	defer func() { s.conclude(run, e, h, res, err) }() // reached alone only through runtime.Goexit
	res, err = guard(run, d, h)
}

// guard converts a panic of the driver into an error, so that the host survives.
func guard(ctx context.Context, d task.Driver, h *host) (res task.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &task.PanicError{Value: v, Stack: stack}
			if h.out != nil {
				_, _ = fmt.Fprintf(h.out, "panic: %v\n\n%s", v, stack)
			}
		}
	}()
	return d.Run(ctx, h)
}

// queued is the progress of a task that waits for a slot; nil: it has not waited.
func (e *entry) queued() *task.Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waits
}

// queue waits for a slot and publishes its position.
func (s *Supervisor) queue(ctx context.Context, e *entry, q *queued) error {
	if q.turn != nil {
		_, _ = s.apply(ctx, e, lifecycle.Change{Verb: task.Report, Progress: e.queued()}, nil, "")
	}
	return q.pool.wait(ctx, q.turn)
}

// conclude brings a run to its durable end: first the children, then the event, then the
// release of everything that waits for it.
func (s *Supervisor) conclude(ctx context.Context, e *entry, h *host, res task.Result, err error) {
	cause := context.Cause(ctx)
	change, ends := lifecycle.Ending(cause, res, err)
	if !ends {
		h.close()
		s.finish(e, res)
		return
	}
	left := s.handOver(e, res, change)
	s.stopChildren(e, change)
	change.LeftTasks = append(left, s.unseen(e)...)
	change.Worktree = leave(ctx, res)
	if h.out != nil { // its last output is written before the end is visible
		_ = h.out.Close() // Write has already passed every byte to the kernel
		change.OutputBytes = h.out.Size()
		if text := h.out.Lost(); text != "" {
			change.Notes = append(change.Notes, text)
		}
	}
	_ = failpoint.Hit("end/before")
	rec, notification, ok := s.record(e, change, res.Text)
	_ = failpoint.Hit("end/durable")
	h.close()
	if ok && res.Settle != nil {
		res.Settle()
	}
	_ = failpoint.Hit("end/settled")
	s.finish(e, res)
	if ok && s.cfg.Ended != nil {
		s.cfg.Ended(rec, notification)
	}
}

// leaveTime limits [task.Result.Leave].
const leaveTime = 2 * time.Minute

// leave calls [task.Result.Leave], whatever has ended the run. A panic there must not prevent
// the record of the end.
func leave(ctx context.Context, res task.Result) (w *task.Worktree) {
	if res.Leave == nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer done()
	defer func() {
		if v := recover(); v != nil {
			w = &task.Worktree{Text: fmt.Sprintf("What became of the worktree is not known: panic: %v", v)}
		}
	}()
	return res.Leave(ctx)
}

// firstWait is the first pause between attempts to record an end; lastWait is the longest one
// while the supervisor closes.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 400 * time.Millisecond
)

// record makes the end durable. It retries until the end is written, for example when a full
// disk has space again, or until the supervisor has closed.
func (s *Supervisor) record(e *entry, change lifecycle.Change, answer string) (
	task.Record, lifecycle.Notification, bool,
) {
	wait, closing, tried := firstWait, s.life.Done(), false
	if s.life.Err() != nil {
		closing = nil
	}
	for {
		var notification lifecycle.Notification
		rec, err := s.apply(context.WithoutCancel(s.life), e, change, &notification, answer)
		var move *task.MoveError
		if err == nil || errors.As(err, &move) {
			if tried {
				s.unsaved(rec.Run, nil)
			}
			return rec, notification, err == nil
		}
		tried = true
		s.unsaved(rec.Run, err)
		if s.life.Err() != nil && wait > lastWait {
			return rec, notification, false
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, 5*time.Second)
		case <-closing: // a long pause must not delay the close
			timer.Stop()
			wait, closing = firstWait, nil
		}
	}
}

func (s *Supervisor) unsaved(run task.RunID, err error) {
	if s.cfg.Unsaved != nil {
		s.cfg.Unsaved(run, err)
	}
}

// finish releases every waiter for the end of the run.
func (s *Supervisor) finish(e *entry, res task.Result) {
	e.mu.Lock()
	e.result = task.Result{Signals: res.Signals, Left: res.Left} // without its text and its functions
	if _, launches := e.driver.(task.Launcher); launches {       // a process has no further run
		e.spec.Input = nil
	}
	e.cancel, e.driver, e.waits = nil, nil, nil
	e.frozen = nil // an ended task gets no children; a further run may
	e.release()
	e.mu.Unlock()
	s.freeWaiting(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queueEnded(e)
	s.evict(time.Now())
}

// freeWaiting releases the waiters for the end of e, and those for any end.
func (s *Supervisor) freeWaiting(e *entry) {
	e.mu.Lock()
	close(e.live)
	e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ended)
	s.ended = make(chan struct{})
}

// host is the [task.Host] of one run.
type host struct {
	s    *Supervisor
	e    *entry
	out  OutputFile
	pool *pool           // nil: no slot needed
	life context.Context // of the run
	over context.Context // of the run without its deadline

	mu   sync.Mutex
	held bool // it has its slot; guarded by mu, like away
	away int  // calls of Await and Ask in progress
}

func (h *host) close() {
	if h.out != nil {
		_ = h.out.Close() // Write has already passed every byte to the kernel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.held = false
		h.pool.leave()
	}
}

func (h *host) Record() task.Record { return *h.e.rec.Load() }

func (h *host) Input() json.RawMessage { return h.e.spec.Input }

func (h *host) Output() task.Output {
	if h.out == nil {
		return noOutput{}
	}
	return h.out
}

func (h *host) Begun(p task.Process) error {
	_, err := h.s.apply(context.WithoutCancel(h.s.life), h.e, lifecycle.Change{Verb: task.Begin, Process: &p}, nil, "")
	if err != nil {
		return fmt.Errorf("record process of %s: %w", h.e.id, err)
	}
	_ = failpoint.Hit("task/begun")
	h.s.catchUp(h.e)
	return nil
}

// Placed implements [task.Placer].
func (h *host) Placed(ctx context.Context, worker string, state []byte) error {
	if len(state) > task.MaxCheckpoint {
		return fmt.Errorf("place %s: its state has %d bytes, more than the limit of %d",
			h.e.id, len(state), task.MaxCheckpoint)
	}
	c := lifecycle.Change{Verb: task.Begin, Worker: worker, Checkpoint: state}
	if _, err := h.s.apply(ctx, h.e, c, nil, ""); err != nil {
		return fmt.Errorf("place %s: %w", h.e.id, err)
	}
	h.s.catchUp(h.e)
	return nil
}

func (h *host) Progress(p task.Progress) { h.s.reporter.put(h.e, p) }

func (h *host) Checkpoint(ctx context.Context, state []byte) error {
	if len(state) > task.MaxCheckpoint {
		return fmt.Errorf(
			"checkpoint of %s: it has %d bytes, more than the limit of %d",
			h.e.id,
			len(state),
			task.MaxCheckpoint,
		)
	}
	if _, err := h.s.apply(ctx, h.e, lifecycle.Change{Verb: task.Save, Checkpoint: state}, nil, ""); err != nil {
		return fmt.Errorf("checkpoint of %s: %w", h.e.id, err)
	}
	_ = failpoint.Hit("task/saved")
	return nil
}

func (h *host) Spawn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	spec.Parent = h.e.id
	return h.s.Start(ctx, d, spec)
}

// Await frees the slot of the waiting task meanwhile. Otherwise a chain of agents longer than
// the pool would wait for itself.
func (h *host) Await(ctx context.Context, id task.ID) (task.Record, error) {
	h.leave()
	rec, err := h.s.Await(ctx, id)
	return rec, cmp.Or(err, h.back(ctx))
}

// Ask frees the slot, because an answer may take long.
func (h *host) Ask(ctx context.Context, q task.Question) (task.Reply, error) {
	h.leave()
	reply, err := h.s.ask(ctx, h.life, h.e, q)
	return reply, cmp.Or(err, h.back(ctx))
}

// Tell sends a message to the owner of the task.
func (h *host) Tell(ctx context.Context, kind task.MessageKind, text string, p task.Priority) error {
	r := h.Record()
	if r.Owner == "" {
		return nil
	}
	m := task.Message{To: r.Owner, From: string(r.ID), Kind: kind, Text: text, Priority: p}
	_, err := h.s.Post(ctx, m)
	return err
}

// leave frees the slot for a call that waits.
func (h *host) leave() {
	if h.pool == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away++
	if h.held {
		h.held = false
		h.pool.leave()
	}
}

// back takes a slot again when the last such call has returned.
func (h *host) back(ctx context.Context) error {
	if h.pool == nil {
		return nil
	}
	h.mu.Lock()
	h.away--
	back := h.away == 0 && !h.held
	h.mu.Unlock()
	if !back {
		return nil
	}
	// The context ends with the run, so a stopped run does not wait in the queue.
	h.e.tick((*clock).stop)
	err := h.pool.again(ctx)
	h.e.tick((*clock).start)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held || h.away > 0 { // another call took the slot, or waits already
		h.pool.leave()
	} else {
		h.held = true
	}
	return nil
}

// Rest frees the slot while the task waits for messages.
func (h *host) Rest(ctx context.Context, wait func(context.Context) error) error {
	rest := lifecycle.Change{Verb: task.Rest}
	if !h.Record().IsConversation() { // that one waits for its user
		rest.WaitsFor = waitsFor(h.s.Children(h.e.id))
	}
	if _, err := h.s.apply(ctx, h.e, rest, nil, ""); err != nil {
		return fmt.Errorf("rest of %s: %w", h.e.id, err)
	}
	h.leave()
	if err := wait(ctx); err != nil {
		return err
	}
	if h.e.isFrozen() { // the end of a stopped child has woken it, and its own stop follows
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if _, err := h.s.apply(ctx, h.e, lifecycle.Change{Verb: task.Wake}, nil, ""); err != nil {
		return fmt.Errorf("wake %s: %w", h.e.id, err)
	}
	return h.back(ctx)
}

// Park implements [task.Parker].
func (h *host) Park(ctx context.Context, p task.Parked, wait func(context.Context) error) error {
	h.leave()
	err := h.s.Park(ctx, h.e.id, p, wait)
	return cmp.Or(err, h.back(ctx))
}

// Retry implements [task.Retrier].
func (h *host) Retry(ctx context.Context, failed task.Attempt, wait func(context.Context) error) error {
	if _, err := h.s.apply(ctx, h.e, lifecycle.Change{Verb: task.Retry, Attempt: &failed}, nil, ""); err != nil {
		return fmt.Errorf("record attempt of %s: %w", h.e.id, err)
	}
	h.leave()
	err := wait(ctx)
	return cmp.Or(err, h.back(ctx))
}

// Overtime implements [task.Overtimer].
func (h *host) Overtime(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.over, limit)
}

// WaitWhilePaused frees the slot while the task is paused.
func (h *host) WaitWhilePaused(ctx context.Context) error {
	for {
		resumed := h.e.resumed()
		if resumed == nil {
			return nil
		}
		h.leave()
		var err error
		select {
		case <-resumed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err = cmp.Or(err, h.back(ctx)); err != nil {
			return err
		}
	}
}

// noOutput is the output of tasks that have none.
type noOutput struct{}

func (noOutput) Write(p []byte) (int, error) { return len(p), nil }
func (noOutput) File() (*os.File, error)     { return nil, errors.New("this task has no output file") }
func (noOutput) Path() string                { return "" }
func (noOutput) Size() int64                 { return 0 }
func (noOutput) Limit() int64                { return 0 }
