package placement

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Reasons of ends.
const (
	reasonWorkerLost task.Reason = "worker_lost" // its worker did not renew its lease
)

// Times of a session, in addition to the times of a worker.
const (
	offerTime = 20 * time.Second // for the first connection to the hub
	tellTime  = 3 * time.Second  // for an offer, until it is said that the hub does not take it
	maxUntold = 200              // columns of a worker's text about the hub
)

type asked struct {
	fleetwire.Claim
	msg *nats.Msg
}

type told struct {
	fleetwire.Event
	data   []byte
	worker string
	msg    jetstream.Msg
}

// work is one run of a task at workers. Only the goroutine of [Driver.Run] changes it.
type work struct {
	f    *Fleet
	h    task.Host
	id   task.ID
	rec  task.Record // when the run began
	want *Want       // nil: it is taken up

	inbox *inbox
	known chan candidates // capacity 1: the workers that may take the task, see [lookout]

	opened  chan fleetwire.Ready // capacity 1: where its workspace is; nil: it has none
	aborted chan struct{}        // closed when the worker is not waited for any more
	abort   func()               // closes it

	mu      sync.Mutex
	book    Book      // guarded by mu; changed by the one goroutine
	renewal time.Time // of the last answer that gave a lease; guarded by mu
	untold  string    // why the hub does not take what the worker tells; guarded by mu

	offer string   // that is open; empty: none
	repo  string   // of the checkout that travels; empty: none does
	plain bool     // a folder without git travels
	has   []string // commits of the checkout that the worker has
	base  int64    // of the output of the attempt
	told  string   // for people
}

func newWork(f *Fleet, h task.Host, rec task.Record, want *Want) *work {
	w := &work{f: f, h: h, id: rec.ID, rec: rec, want: want, inbox: newInbox(), known: make(chan candidates, 1),
		book: Book{V: bookVersion, Bytes: h.Output().Size()}, aborted: make(chan struct{})}
	w.abort = sync.OnceFunc(func() { close(w.aborted) })
	return w
}

func (w *work) close() {
	late := w.inbox.close()
	w.f.remove(w)
	for _, x := range late {
		switch x := x.(type) {
		case asked:
			answer(x.msg, fleetwire.Grant{Refused: errOver.Error()})
		case told: // it is evidence, and is acknowledged
			w.f.late(x.msg, w.evidence(x, errOver), x.Event)
		}
	}
}

func (w *work) evidence(t told, why error) Evidence {
	return Evidence{
		Task:   w.id,
		Worker: t.worker,
		Epoch:  t.Epoch,
		Kind:   t.Kind,
		Why:    why.Error(),
		Bytes:  len(t.data),
		End:    t.End,
	}
}

// renew is called by the connection.
func (w *work) renew(r fleetwire.Renewal, epoch uint64) fleetwire.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.book.Valid(r.Worker, r.Instance, epoch) != nil {
		return fleetwire.Lease{}
	}
	w.renewal, w.untold = time.Now(), r.Untold
	return fleetwire.Lease{Valid: true}
}

// command queues a command to the worker.
func (w *work) command(c fleetwire.Command) error {
	switch w.inbox.put(c) {
	case tooLate:
		return fmt.Errorf("task %s has ended", w.id)
	case full:
		return fmt.Errorf("worker of %s does not take what it is told: it is out of reach (try again)", w.id)
	}
	return nil
}

func (w *work) set(b Book) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book = b
}

func (w *work) say(text string) {
	if text != w.told {
		w.told = text
		w.h.Progress(task.Progress{Message: text})
	}
}

// connect opens the connection of the fleet, and makes the task known to it.
func (w *work) connect(ctx context.Context) (*link.Link, error) {
	first, cancel := context.WithTimeoutCause(ctx, offerTime, errors.New("the hub does not answer"))
	defer cancel()
	w.f.add(w) // before anybody can tell of it
	l, err := w.f.open(first)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, &task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("place task on %s: %w", w.rec.On, err)}
}

func (w *work) run(ctx context.Context) (task.Result, error) {
	taken := w.rec.Worker != ""
	if taken {
		b, err := readBook(w.rec.Checkpoint)
		if err != nil {
			return task.Result{}, errors.Join(task.ErrLost, err)
		}
		b.Bytes = w.h.Output().Size()
		w.set(b)
		w.renewal = time.Now()
	}
	l, err := w.connect(ctx)
	if err != nil {
		return task.Result{}, err
	}
	if taken && w.book.Sending {
		return w.abandon(ctx, l, errors.New("the host of the session died while it sent the folder"))
	}
	for {
		if !taken {
			place := w.place
			if w.want.In != nil {
				place = w.begin
			}
			if err := place(ctx, l); err != nil {
				return task.Result{}, err
			}
			if err := w.sendFolder(ctx, l); err != nil {
				return w.abandon(ctx, l, err)
			}
		}
		taken = false
		res, err := w.follow(ctx, l)
		again, ok := w.h.(task.Retrier)
		if r := w.h.Record(); !ok || w.want == nil || !repeats(err) || ctx.Err() != nil || len(r.Attempts) >= r.Retries {
			return res, err
		}
		if err := task.NextAttempt(ctx, again, res); err != nil {
			return task.Result{}, err
		}
		w.told = "" // as it left the progress
	}
}

// repeats reports whether a failed attempt may be tried again: it ended by itself, or its
// worker was lost, if the user has allowed retries.
func repeats(err error) bool {
	var fail *task.FailError
	return errors.As(err, &fail) &&
		slices.Contains([]task.Reason{task.ReasonExit, task.ReasonSignal, reasonWorkerLost}, fail.Reason)
}

// place offers the task and returns when a worker has it.
func (w *work) place(ctx context.Context, l *link.Link) error {
	if err := fleetwire.CheckName("worker", w.rec.On); err != nil {
		return &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if err := w.identify(ctx); err != nil {
		return &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	w.offer, w.base = rand.Text(), w.h.Output().Size()
	defer func() { w.offer = "" }()
	data, err := fleetwire.Encode(fleetwire.Offer{Oldest: fleetwire.Oldest, Newest: fleetwire.Version,
		Session: w.rec.Session, Task: w.id, Offer: w.offer, Repo: w.repo, Lease: w.f.cfg.Lease}, nil)
	if err != nil {
		return &task.FailError{Reason: task.ReasonStart, Err: fmt.Errorf("offer task: %w", err)}
	}
	to := fleetwire.OfferLabel(w.rec.On)
	if w.rec.On == Auto {
		to = fleetwire.OfferAny
	}
	w.f.lookout.add(w, l)
	defer w.f.lookout.remove(w)
	for !w.publish(ctx, l, to, w.offer, data) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	again, unclaimed := 0, time.Now() // since when a worker has had a place and has not claimed the offer
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx) // a claim that arrives now is refused
		case <-w.inbox.wake:
			switch x := w.inbox.next().(type) { // a command is dropped: it has no worker
			case asked:
				ok, err := w.grant(ctx, x)
				if err != nil || ok {
					return err
				}
			case told: // of an earlier attempt
				w.f.refuse(x.msg, w.evidence(x, errStale))
			}
		case c := <-w.known:
			w.say(c.text(w.rec.On))
			if !c.ready {
				unclaimed = time.Now()
			}
			// Otherwise the hub has lost the offer, or has given it out in vain too often.
			if time.Since(unclaimed) > fleetwire.OfferWait && w.publish(ctx, l, to, fmt.Sprint(w.offer, again), data) {
				again, unclaimed = again+1, time.Now()
			}
		}
	}
}

// publish offers the task, or says why the hub does not take the offer.
func (w *work) publish(ctx context.Context, l *link.Link, to, id string, offer []byte) bool {
	one, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := l.Publish(one, to, id, offer)
	if err != nil && ctx.Err() == nil {
		w.say("waits for the hub: " + l.Why(ctx, err).Error())
	}
	return err == nil
}

// grant gives the task to the worker of a claim, durably before the worker knows.
func (w *work) grant(ctx context.Context, c asked) (bool, error) {
	b, fresh, err := w.book.Grant(w.offer, c.Offer, c.Worker, c.Instance)
	if err != nil {
		answer(c.msg, fleetwire.Grant{Refused: err.Error()})
		return false, nil
	}
	w.has = c.Has
	if fresh {
		b.Sending = w.repo != "" || w.plain
		if err := w.record(ctx, b); err != nil {
			return false, err
		}
	}
	answer(c.msg, fleetwire.Grant{Epoch: b.Epoch, Lease: w.f.cfg.Lease, Job: w.job()})
	return true, nil
}

// record makes a grant durable, with which the task begins.
func (w *work) record(ctx context.Context, b Book) error {
	state, err := b.encode()
	if err != nil {
		return err
	}
	p, ok := w.h.(task.Placer)
	if !ok {
		return errors.New("place task: this runtime has no workers")
	}
	if err := p.Placed(ctx, b.Worker, state); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book, w.renewal = b, time.Now()
	return nil
}

// grantAgain answers a claim after the grant: the answer was lost, or another worker asks. The worker counts its lease
// from when it asked last, so it is counted anew here too.
func (w *work) grantAgain(c asked) {
	if b, fresh, err := w.book.Grant("", c.Offer, c.Worker, c.Instance); err == nil && !fresh && w.want != nil {
		w.mu.Lock()
		w.renewal = time.Now()
		w.mu.Unlock()
		answer(c.msg, fleetwire.Grant{Epoch: b.Epoch, Lease: w.f.cfg.Lease, Job: w.job()})
		return
	}
	answer(c.msg, fleetwire.Grant{Refused: errOther.Error()})
}

// follow takes the events of the worker until the task has ended there, or the worker is given up.
func (w *work) follow(ctx context.Context, l *link.Link) (task.Result, error) {
	w.say("")
	tick := time.NewTicker(max(w.f.cfg.Lease/10, 10*time.Millisecond))
	defer tick.Stop()
	done := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case <-done:
			cause := context.Cause(ctx)
			if errors.Is(cause, task.ErrClosing) && w.rec.Keep {
				return task.Result{}, task.ErrDetached
			}
			done = nil
			patience := w.stop(l, cause)
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		case <-w.aborted:
			return w.silent(ctx, "nobody waits for it any more")
		case <-late: // the host is closing: the lease ends it
			return w.silent(ctx, "it has not said in time that it was stopped")
		case <-w.inbox.wake:
			switch x := w.inbox.next().(type) {
			case asked:
				w.grantAgain(x)
			case fleetwire.Command:
				w.send(l, x)
			case told:
				res, ended, err := w.take(ctx, l, x)
				if ended {
					return res, err
				}
			}
		case <-tick.C:
			w.mu.Lock()
			silence, untold := time.Since(w.renewal), w.untold
			w.mu.Unlock()
			switch {
			case silence > fleetwire.GiveUp(w.f.cfg.Lease):
				return w.silent(ctx, fmt.Sprintf("it has not renewed its lease for %s", silence.Round(time.Second)))
			case silence > w.f.cfg.Lease/2:
				w.say(fmt.Sprintf("worker %s is out of reach for %s", w.book.Worker, silence.Round(time.Second)))
			case untold != "":
				w.say(fmt.Sprintf("the hub does not take what worker %s tells: %s", w.book.Worker, excerpt.Line(untold, maxUntold)))
			case w.told != "":
				w.say("")
			}
		}
	}
}

// silent gives the worker up. Its claim has ended, so it ends the task as soon as it
// hears of that, or when its lease ends, whichever is first.
func (w *work) silent(ctx context.Context, why string) (task.Result, error) {
	w.set(w.book.End())
	res := task.Result{Leave: func(context.Context) *task.Worktree { return w.ofLost() }}
	res.Left = []task.Survivor{{Task: w.id, Command: w.rec.Command,
		Why: fmt.Sprintf("worker %s is out of reach: it ends the processes when its lease ends, %s after it was last heard",
			w.book.Worker, w.f.cfg.Lease)}}
	if cause := context.Cause(ctx); cause != nil {
		return res, cause
	}
	return res, &task.FailError{Reason: reasonWorkerLost, Err: fmt.Errorf("worker %s is lost: %s", w.book.Worker, why)}
}

// closingTime is how long a session that closes waits for a worker.
const closingTime = 1500 * time.Millisecond

// stop tells the worker to end the task, and returns how long to wait for that.
func (w *work) stop(l *link.Link, cause error) time.Duration {
	c := fleetwire.Command{Kind: fleetwire.Stop, Actor: task.ByRuntime}
	if stop, ok := errors.AsType[*task.StopError](cause); ok {
		c.Actor, c.Grace = stop.Cause.Actor, stop.Grace
	}
	patience := 2 * w.f.cfg.Lease // before that the lease decides
	if errors.Is(cause, task.ErrClosing) {
		patience = closingTime
		short := time.Second
		c.Grace = &short
	}
	w.send(l, c)
	return patience
}

// sendTime is how long one command may take to be in the stream.
const sendTime = 2 * time.Second

// send tells the worker something. What cannot be said now is said again before anything else.
func (w *work) send(l *link.Link, c fleetwire.Command) {
	c.Epoch = w.book.Epoch
	data, err := fleetwire.Encode(c, nil)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	subject := fleetwire.CommandTo(w.book.Worker, w.rec.Session, w.id)
	if l.Publish(ctx, subject, "", data) != nil {
		w.say(fmt.Sprintf("worker %s is out of reach: %s is told to it as soon as it is there", w.book.Worker, c.Kind))
		_ = w.command(c)
	}
}

// take takes in one event.
func (w *work) take(ctx context.Context, l *link.Link, t told) (res task.Result, ended bool, err error) {
	if why := w.book.Valid(t.worker, t.Instance, t.Epoch); why != nil {
		w.f.late(t.msg, w.evidence(t, why), t.Event)
		return res, false, nil
	}
	switch t.Kind {
	case fleetwire.Output:
		part, next, gap := w.book.Take(w.base, t.Offset, t.data)
		if gap {
			w.send(l, fleetwire.Command{Kind: fleetwire.Resend, Offset: w.book.Bytes - w.base})
			break
		}
		if len(part) > 0 {
			if _, err := w.h.Output().Write(part); err != nil {
				res, err = w.limited(l, err)
				return res, true, err
			}
			w.set(next)
			if w.want != nil && w.want.Tee != nil {
				_, _ = w.want.Tee.Write(part)
			}
			if o := w.h.Output(); o.Limit() > 0 && o.Size() >= o.Limit() {
				err := fmt.Errorf("the output has reached its limit of %d bytes", o.Limit())
				res, err = w.limited(l, &task.FailError{Reason: task.ReasonOutputLimit, Err: err})
				return res, true, err
			}
		}
	case fleetwire.Note:
		w.say(t.Text)
	case fleetwire.Open:
		if t.Ready != nil && w.opened != nil {
			select {
			case w.opened <- *t.Ready:
			default: // it is known
			}
		}
	case fleetwire.Ended:
		if t.End == nil {
			w.f.refuse(t.msg, w.evidence(t, errors.New("it says that the task has ended, and not how")))
			return res, false, nil
		}
		if missing := w.base + t.End.OutputBytes; missing > w.book.Bytes {
			// The end comes again after the output that is missing.
			w.send(l, fleetwire.Command{Kind: fleetwire.Resend, Offset: w.book.Bytes - w.base})
			break
		}
		b := w.book.End()
		b.Reported = true
		w.set(b)
		if w.want != nil && w.want.EndedIn != nil {
			w.want.EndedIn(t.End.Cwd)
		}
		res, err := w.result(ctx, *t.End)
		res.Leave = w.leave(l, *t.End)
		res.Settle = func() { _ = t.msg.Ack() } // until the end is durable here, the worker repeats it
		return res, true, err
	}
	_ = t.msg.Ack()
	return res, false, nil
}

// limited ends a task here because of its output; the worker ends it there, and reports its changes too late.
func (w *work) limited(l *link.Link, why error) (task.Result, error) {
	now := time.Duration(0)
	w.send(l, fleetwire.Command{Kind: fleetwire.Stop, Actor: task.ByRuntime, Grace: &now})
	w.set(w.book.End())
	return task.Result{Leave: func(context.Context) *task.Worktree { return w.ofLost() }}, why
}

// result is the end at the worker as the end of the run here.
func (w *work) result(ctx context.Context, e fleetwire.End) (task.Result, error) {
	res := task.Result{ExitCode: e.ExitCode, Signal: e.Signal, Signals: e.Sent, Left: e.Left, Notes: e.Notes}
	if cause := context.Cause(ctx); cause != nil && e.Status == task.Killed {
		return res, cause
	}
	why := task.Cause{Reason: task.ReasonError}
	if e.Cause != nil {
		why = *e.Cause
	}
	switch e.Status {
	case task.Completed:
		return res, nil
	case task.Killed:
		if why.Actor == task.ByItself || why.Actor == "" {
			why.Actor = task.ByUnknown
		}
		why.Detail = "at worker " + w.book.Worker + ": " + why.Detail
		return res, errors.Join(task.ErrLost, &task.StopError{Cause: why})
	}
	text := e.Error
	if text == "" {
		text = string(why.Reason)
	}
	return res, &task.FailError{Reason: why.Reason, Err: errors.New(text), Detail: why.Detail}
}
