package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// maxClosed is how many closed questions are kept, so that a late answer gets the outcome.
const maxClosed = 100

// desk holds the open questions. Questions of tasks are also in the records of their tasks;
// questions of the session itself are only here.
type desk struct {
	mu      sync.Mutex
	open    []*question // in the order asked
	closed  []closedQuestion
	version int64
	changed chan struct{} // closed and replaced at every change

	people int           // who see the questions and can answer them
	parted *time.Timer   // runs when the last of them has gone; nil: none was there
	absent bool          // deadlines run
	turned chan struct{} // closed and replaced when absent changes
}

// parting is how long a frontend that has gone may take to come back, as between two requests.
const parting = 5 * time.Second

// question is one open question. The record of its task is authoritative.
type question struct {
	task.Question
	whole task.Question   // with its complete input
	e     *entry          // nil: asked by the session itself
	reply chan task.Reply // capacity 1

	mu      sync.Mutex // held while the answer is appended to the log
	settled bool
}

type closedQuestion struct{ id, how string }

// ErrNoQuestion is returned for an answer to an unknown question.
var ErrNoQuestion = errors.New("no such question")

// StaleError is returned for an answer to a closed question, or to a request that differs from
// the one that was shown. The answer changed nothing.
type StaleError struct{ ID, Why string }

func (e *StaleError) Error() string { return fmt.Sprintf("question %s %s", e.ID, e.Why) }

// Ask is [task.Host.Ask] for an agent that runs without a Host, such as the main agent. If the
// agent is not a task, its question exists in memory only: every client sees it, and it is lost
// with this process.
func (s *Supervisor) Ask(ctx context.Context, asker task.ID, q task.Question) (task.Reply, error) {
	e := s.entry(asker)
	switch {
	case e == nil && asker != s.cfg.Session:
		return task.Reply{}, fmt.Errorf("ask: %w: %s", ErrUnknown, asker)
	case e != nil && e.rec.Load().Status != task.Running && asker == s.cfg.Session:
		e = nil // the session continues after the end of its main agent's task
	}
	q.Task = asker
	return s.ask(ctx, s.life, e, q)
}

// ask opens a question and waits until it is closed. life is the context of the run.
func (s *Supervisor) ask(ctx, life context.Context, e *entry, q task.Question) (task.Reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	if ctx.Err() != nil {
		return task.Reply{}, context.Cause(ctx)
	}
	if e != nil {
		q.Task = e.id
	}
	o := &question{Question: lifecycle.Shown(q), whole: q, e: e, reply: make(chan task.Reply, 1)}
	o.ID = lifecycle.NewQuestionID()
	if err := s.desk.enter(ctx, o); err != nil {
		return task.Reply{}, err
	}
	defer s.desk.leave(o, "is not asked any more: whoever asked has ended or was stopped")
	if e != nil {
		asked := s.desk.shown(o)
		asked.Wait = 0 // it is of this process
		if _, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Ask, At: o.At, Question: &asked}, nil, ""); err != nil {
			return task.Reply{}, fmt.Errorf("ask: %w", err)
		}
		_ = failpoint.Hit("task/asked")
		s.desk.touch() // it becomes visible only now
	}
	for {
		until, turned := s.desk.deadline(o)
		var late <-chan time.Time
		if !until.IsZero() {
			late = time.After(time.Until(until))
		}
		select {
		case r := <-o.reply:
			return r, nil
		case <-late:
			return s.expire(ctx, o, until)
		case <-turned:
		case <-ctx.Done():
			return s.withdraw(ctx, o)
		}
	}
}

// Attend is called by a frontend that shows the questions to a person, and returns what to call
// when it goes. Meanwhile no question is denied because its Wait is over; the wait begins anew when
// the last one has gone.
func (s *Supervisor) Attend() (gone func()) {
	d := &s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.people++; d.parted != nil {
		d.parted.Stop()
	}
	d.turn(false)
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.people--; d.people == 0 {
			d.parted = time.AfterFunc(parting, func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.turn(d.people == 0)
			})
		}
	})
}

// turn makes deadlines run, or stops them. The caller holds mu.
func (d *desk) turn(absent bool) {
	if d.absent == absent {
		return
	}
	d.absent = absent
	for _, o := range d.open {
		o.wait(absent, time.Now())
	}
	close(d.turned)
	d.turned = make(chan struct{})
	d.change()
}

// wait sets when a question that waits for people becomes a denial. The caller holds mu of the desk.
func (o *question) wait(absent bool, from time.Time) {
	if o.Wait <= 0 {
		return
	}
	if o.Until = (time.Time{}); absent {
		o.Until = from.Add(o.Wait).UTC()
	}
}

// deadline is when a question becomes a denial, and a channel that is closed when that changes.
func (d *desk) deadline(o *question) (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return o.Until, d.turned
}

// expire closes an unanswered question as a denial.
func (s *Supervisor) expire(ctx context.Context, o *question, until time.Time) (task.Reply, error) {
	waited := cmp.Or(o.Wait, until.Sub(o.At).Round(time.Millisecond))
	r := task.Reply{Dismissed: o.Kind == task.Form, Reason: fmt.Sprintf("nobody answered within %s", waited)}
	err := s.settle(
		context.WithoutCancel(ctx),
		o,
		r,
		task.Cause{Actor: task.ByRuntime, Reason: task.ReasonUnanswered, Detail: r.Reason},
	)
	select {
	case r := <-o.reply: // this reply, or another one from a moment earlier
		return r, nil
	default:
	}
	if gone(err) { // by the stop or the end of the run, which ends ctx
		<-ctx.Done()
		return task.Reply{}, context.Cause(ctx)
	}
	return task.Reply{}, fmt.Errorf("ask: %w", err)
}

// withdraw closes a question whose asker no longer waits.
func (s *Supervisor) withdraw(ctx context.Context, o *question) (task.Reply, error) {
	cause := task.Cause{Actor: task.ByRuntime, Reason: task.ReasonWithdrawn}
	if s.settle(context.WithoutCancel(ctx), o, task.Reply{}, cause) == nil {
		return task.Reply{}, context.Cause(ctx)
	}
	select {
	case r := <-o.reply: // an answer was recorded first
		return r, nil
	default: // if the log cannot be written, the question stays visible until the run ends
		return task.Reply{}, context.Cause(ctx)
	}
}

// gone reports whether a question was closed by anything but an answer.
func gone(err error) bool {
	var move *task.MoveError
	return errors.Is(err, lifecycle.ErrNotAsked) || errors.As(err, &move)
}

// settle closes a question once: the record of its task decides which reply was first.
func (s *Supervisor) settle(ctx context.Context, o *question, r task.Reply, by task.Cause) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return lifecycle.ErrNotAsked
	}
	if o.e != nil {
		now := time.Now().UTC()
		a := &task.Answered{
			ID:      o.ID,
			Tool:    o.Tool,
			Digest:  o.Digest,
			Allow:   r.Allow,
			Changed: len(r.Input) > 0,
			Cause:   by,
			At:      now,
		}
		if _, err := s.apply(ctx, o.e, lifecycle.Change{Verb: task.Answer, At: now, Answered: a}, nil, ""); err != nil {
			return err
		}
	}
	_ = failpoint.Hit("task/answered")
	o.settled = true
	s.desk.leave(o, how(r, by))
	o.reply <- r
	return nil
}

// how describes the outcome of a question for a late answer.
func how(r task.Reply, by task.Cause) string {
	switch {
	case by.Reason == task.ReasonUnanswered:
		return "was denied: " + by.Detail
	case by.Reason == task.ReasonWithdrawn:
		return "was taken back: whoever asked does not wait any more"
	case r.Allow:
		return fmt.Sprintf("has been answered already: allowed by %s", by.Actor)
	}
	return fmt.Sprintf("has been answered already: denied by %s", by.Actor)
}

// Questions returns the open questions, oldest first, and the version of the list.
func (s *Supervisor) Questions() ([]task.Question, int64) {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	open := []task.Question{}
	for _, o := range s.desk.open {
		if o.e == nil || o.e.rec.Load().Asks(o.ID) {
			open = append(open, o.Question)
		}
	}
	return open, s.desk.version
}

// Question returns an open question with its complete input; false: it is not open.
func (s *Supervisor) Question(id string) (task.Question, bool) {
	o, _ := s.desk.find(id)
	if o == nil || o.e != nil && !o.e.rec.Load().Asks(o.ID) {
		return task.Question{}, false
	}
	q, all := s.desk.shown(o), lifecycle.Whole(o.whole)
	q.Input, q.Hidden = all.Input, all.Hidden
	return q, true
}

// AwaitQuestions returns when the version of the list differs from the given one, when the
// supervisor closes, or with the cause of ctx.
func (s *Supervisor) AwaitQuestions(ctx context.Context, version int64) error {
	for {
		s.desk.mu.Lock()
		now, changed := s.desk.version, s.desk.changed
		s.desk.mu.Unlock()
		if now != version {
			return nil
		}
		select {
		case <-changed:
		case <-s.life.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// QuestionsChanged returns a channel that is closed when the list of questions changes.
func (s *Supervisor) QuestionsChanged() <-chan struct{} {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.desk.changed
}

// MarkSeen records that the user has seen how an ended task ended. It does nothing if that is
// recorded already; for a task that has not ended it returns a [*task.MoveError].
func (s *Supervisor) MarkSeen(ctx context.Context, id task.ID) (task.Record, error) {
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("mark as seen: %w: %s", ErrUnknown, id)
	}
	return s.apply(ctx, e, lifecycle.Change{Verb: task.MarkSeen}, nil, "")
}

// Decide answers an open question. It returns when the answer is durable and delivered to the
// asker. The digest must be that of the request that was shown: an answer that is late,
// repeated, or to another request is a [*StaleError] or [ErrNoQuestion] and changes nothing. An
// invalid reply is a [*task.ReplyError].
func (s *Supervisor) Decide(ctx context.Context, id, digest string, r task.Reply, by task.Cause) error {
	o, how := s.desk.find(id)
	switch {
	case o == nil && how != "":
		return &StaleError{id, how}
	case o == nil:
		return fmt.Errorf("%w: %.40q", ErrNoQuestion, id)
	case digest != o.Digest:
		return &StaleError{id, "asks about another request than the one that was answered"}
	case o.e.isFrozen():
		return &StaleError{id, "is not asked any more: its task is being stopped"}
	}
	if err := s.desk.shown(o).Check(r); err != nil {
		return err
	}
	by.Reason = task.ReasonAnswered
	err := s.settle(ctx, o, r, by)
	if !gone(err) {
		return err
	}
	if _, how = s.desk.find(id); how == "" {
		how = "is not asked any more: its task is being stopped"
	}
	return &StaleError{id, how}
}

// unask closes the questions that the run under an earlier host has asked.
func (s *Supervisor) unask(ctx context.Context, e *entry) error {
	for _, q := range e.rec.Load().Questions {
		now := time.Now().UTC()
		a := &task.Answered{ID: q.ID, Tool: q.Tool, Digest: q.Digest, At: now,
			Cause: task.Cause{Actor: task.ByRuntime, Reason: task.ReasonWithdrawn, Detail: "its host ended without closing"}}
		if _, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Answer, At: now, Answered: a}, nil, ""); err != nil {
			return err
		}
	}
	return nil
}

// enter adds a question once the asker has fewer open ones than its limit.
func (d *desk) enter(ctx context.Context, o *question) error {
	for {
		d.mu.Lock()
		n := 0
		for _, other := range d.open {
			if other.e == o.e {
				n++
			}
		}
		if n < task.MaxQuestions {
			o.At = time.Now().UTC()
			o.wait(d.absent, o.At)
			d.open = append(d.open, o)
			d.change()
			d.mu.Unlock()
			return nil
		}
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shown is a question as it is now.
func (d *desk) shown(o *question) task.Question {
	d.mu.Lock()
	defer d.mu.Unlock()
	return o.Question
}

// leave removes a question and stores how it was closed. For a removed question it does
// nothing.
func (d *desk) leave(o *question, how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.open, o)
	if i < 0 {
		return
	}
	d.open = slices.Delete(d.open, i, i+1)
	if d.closed = append(d.closed, closedQuestion{o.ID, how}); len(d.closed) > maxClosed {
		d.closed = slices.Clone(d.closed[1:])
	}
	d.change()
}

// change wakes all waiters. The caller holds mu.
func (d *desk) change() {
	d.version++
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *desk) touch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change()
}

// find returns an open question, or the outcome of a closed one.
func (d *desk) find(id string) (*question, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.open {
		if o.ID == id {
			return o, ""
		}
	}
	for _, c := range d.closed {
		if c.id == id {
			return nil, c.how
		}
	}
	return nil, ""
}
