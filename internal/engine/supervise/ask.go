package supervise

import (
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

// maxClosed is how many questions are remembered after they were closed, so
// that who answers late is told what became of them.
const maxClosed = 100

// desk is where open questions wait for an answer. Those of tasks stand in the
// records of their tasks too; those of the session itself only here.
type desk struct {
	mu      sync.Mutex
	open    []*question // in the order asked
	closed  []closedQuestion
	version int64
	changed chan struct{} // closed and replaced at every change
}

// question is one that is open. Its task's record says whether it still is.
type question struct {
	task.Question
	whole task.Question   // with all of its input
	e     *entry          // nil: the session itself asks
	reply chan task.Reply // capacity 1

	mu      sync.Mutex // held over the durable append of the answer
	settled bool
}

type closedQuestion struct{ id, how string }

// ErrNoQuestion is returned for an answer to a question that nobody knows.
var ErrNoQuestion = errors.New("no such question")

// StaleError is returned for an answer to a question that is not open any more,
// or to another request than the one that was asked about. It changed nothing.
type StaleError struct{ ID, Why string }

func (e *StaleError) Error() string { return fmt.Sprintf("question %s %s", e.ID, e.Why) }

// Ask puts a question of an agent whose run nobody holds a host of, such as the
// main agent, as [task.Host.Ask] does. Where the agent is no task, its question
// lives in memory only: everybody sees it, and it goes with this process.
func (s *Supervisor) Ask(ctx context.Context, asker task.ID, q task.Question) (task.Reply, error) {
	e := s.entry(asker)
	switch {
	case e == nil && asker != s.cfg.Session:
		return task.Reply{}, fmt.Errorf("ask: %w: %s", ErrUnknown, asker)
	case e != nil && e.rec.Load().Status != task.Running && asker == s.cfg.Session:
		e = nil // the session goes on after the task that stood for it
	}
	q.Task = asker
	return s.ask(ctx, s.life, e, q)
}

// ask opens a question and waits until it is closed, by whatever way. life is
// that of the run.
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
		if _, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Ask, At: o.At, Question: &o.Question}, nil, ""); err != nil {
			return task.Reply{}, fmt.Errorf("ask: %w", err)
		}
		_ = failpoint.Hit("task/asked")
		s.desk.touch() // it is to be seen only now
	}
	var late <-chan time.Time
	if !o.Until.IsZero() {
		timer := time.NewTimer(time.Until(o.Until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-o.reply:
		return r, nil
	case <-late:
		return s.expire(ctx, o)
	case <-ctx.Done():
		return s.withdraw(ctx, o)
	}
}

// expire makes a denial of a question that nobody has answered.
func (s *Supervisor) expire(ctx context.Context, o *question) (task.Reply, error) {
	r := task.Reply{Reason: fmt.Sprintf("nobody answered within %s", o.Until.Sub(o.At).Round(time.Millisecond))}
	err := s.settle(
		context.WithoutCancel(ctx),
		o,
		r,
		task.Cause{Actor: task.ByRuntime, Reason: task.ReasonUnanswered, Detail: r.Reason},
	)
	select {
	case r := <-o.reply: // this one, or that of somebody who was a moment faster
		return r, nil
	default:
	}
	if gone(err) { // by the stop or the end of the run, which ends ctx
		<-ctx.Done()
		return task.Reply{}, context.Cause(ctx)
	}
	return task.Reply{}, fmt.Errorf("ask: %w", err)
}

// withdraw closes a question that nobody waits for any more.
func (s *Supervisor) withdraw(ctx context.Context, o *question) (task.Reply, error) {
	cause := task.Cause{Actor: task.ByRuntime, Reason: task.ReasonWithdrawn}
	if s.settle(context.WithoutCancel(ctx), o, task.Reply{}, cause) == nil {
		return task.Reply{}, context.Cause(ctx)
	}
	select {
	case r := <-o.reply: // it was answered first, and the log says so
		return r, nil
	default: // a log that cannot be written shows it until the run ends
		return task.Reply{}, context.Cause(ctx)
	}
}

// gone reports that a question was closed by something else than an answer.
func gone(err error) bool {
	var move *task.MoveError
	return errors.Is(err, lifecycle.ErrNotAsked) || errors.As(err, &move)
}

// settle closes a question, once: the record of its task decides who was first.
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

// how says what became of a question, for who comes late.
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

// Questions returns what is open, oldest first, with the version of the listing.
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

// Question returns an open question with all of its input; false: it is not open.
func (s *Supervisor) Question(id string) (task.Question, bool) {
	o, _ := s.desk.find(id)
	if o == nil || o.e != nil && !o.e.rec.Load().Asks(o.ID) {
		return task.Question{}, false
	}
	q, all := o.Question, lifecycle.Whole(o.whole)
	q.Input, q.Hidden = all.Input, all.Hidden
	return q, true
}

// AwaitQuestions returns when the listing is of another version than the one
// given, when the supervisor closes, or with the cause of ctx.
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

// QuestionsChanged returns a channel that is closed when the listing of questions changes.
func (s *Supervisor) QuestionsChanged() <-chan struct{} {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.desk.changed
}

// MarkSeen records that the user knows how an ended task ended. What is marked already
// stays so; a task that has not ended is a [*task.MoveError].
func (s *Supervisor) MarkSeen(ctx context.Context, id task.ID) (task.Record, error) {
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("mark as seen: %w: %s", ErrUnknown, id)
	}
	return s.apply(ctx, e, lifecycle.Change{Verb: task.MarkSeen}, nil, "")
}

// Decide answers an open question. It returns when the answer is durable and
// whoever asked has it. The digest must be that of the request that was looked
// at: an answer that is late, second, or to something else is a [*StaleError],
// or [ErrNoQuestion], and changes nothing. A reply that does not fit is a
// [*task.ReplyError].
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
	if err := o.Check(r); err != nil {
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

// unask closes what the run of an earlier host has asked.
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

// enter takes a question in, when the asker has a place for one more.
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

// leave takes a question out and remembers how it was closed. What is out
// already stays as it is.
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

// change wakes who waits. The caller holds mu.
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

// find returns an open question, or how it was closed.
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
