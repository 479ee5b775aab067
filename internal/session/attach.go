package session

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// guestWait is how long a host that was started for somebody who wants to attach
// waits for that.
const guestWait = 15 * time.Second

var (
	// errAttended breaks off what is done because nobody is attached.
	errAttended = errors.New("somebody has attached")
	// errRetired refuses whoever comes when the session has begun to end.
	errRetired = errors.New("the session is closing")
)

// audience counts who is attached to a session. While somebody is, its host stays.
type audience struct {
	left func() // called when the last has gone, without mu

	mu      sync.Mutex      // guards what follows
	n       int             // attached now, an expected guest included
	guest   *time.Timer     // nil: nobody is expected
	retired bool            // nobody may come any more
	as      context.Context // ends when the first comes or the last goes; nil: nobody asked
	change  context.CancelFunc
}

// come counts one more; leave takes it back.
func (a *audience) come() (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired {
		return nil, errRetired
	}
	a.add()
	if a.guest != nil && a.guest.Stop() { // this is the guest
		a.n--
	}
	a.guest = nil
	return sync.OnceFunc(a.leave), nil
}

// add counts one more. The caller holds mu.
func (a *audience) add() {
	if a.n++; a.n == 1 {
		a.wake()
	}
}

func (a *audience) leave() {
	a.mu.Lock()
	a.n--
	last := a.n == 0
	if last {
		a.wake()
	}
	a.mu.Unlock()
	if last {
		a.left()
	}
}

// expect counts somebody who has not come yet, for a while.
func (a *audience) expect(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add()
	a.guest = time.AfterFunc(d, a.leave)
}

// wake tells of the first or the last. The caller holds mu.
func (a *audience) wake() {
	if a.as != nil {
		a.change()
		a.as = nil
	}
}

// now says whether somebody is attached, and for how long that is so.
func (a *audience) now() (bool, context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.as == nil {
		a.as, a.change = context.WithCancel(context.Background())
	}
	return a.n > 0, a.as
}

// retire turns away whoever comes from now on, if nobody is attached and ready
// says that nothing is left.
func (a *audience) retire(ready func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > 0 || !ready() {
		return false
	}
	a.retired = true
	return true
}

// close turns away whoever comes.
func (a *audience) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
	if a.guest != nil {
		a.guest.Stop()
	}
}

// Expect keeps the host for a while that was started for somebody to attach.
func (s *Session) Expect() { s.audience.expect(guestWait) }

// Watch yields what happens in the conversation of the main agent.
func (s *Session) Watch(ctx context.Context, req control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(yield func(control.Piece, error) bool) {
		if !req.Still {
			leave, err := s.audience.come()
			if err != nil {
				yield(control.Piece{}, &control.Error{Code: control.Unavailable, Message: err.Error(), Mend: "attach again: it goes on under a new host", Untaken: true})
				return
			}
			defer leave()
		}
		at := req.After
		if !yield(control.Piece{N: s.feed.newest(), Kind: control.OpenPiece, At: time.Now().UTC()}, nil) {
			return
		}
		for {
			p, ok, grown := s.feed.next(at)
			if ok {
				if at = p.Mark(); !yield(p, nil) {
					return
				}
				continue
			}
			if req.Still {
				return
			}
			select {
			case <-grown:
			case <-s.closes:
				return
			case <-ctx.Done():
				yield(control.Piece{}, context.Cause(ctx))
				return
			}
		}
	}
}

// HostMain makes the conversation of m one that goes on for as long as somebody is
// attached, and for as long as there is something to answer: each prompt that comes
// when nothing is under way begins a run of the task that stands for it; see
// [Session.StartMain]. The ceiling is as for [Main.Settle], and counts from when the
// last has gone.
func (s *Session) HostMain(m *Main, ceiling time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosted, m.ceiling, m.over = true, ceiling, true
}

// promptHosted gives a prompt to a conversation that is a task: to the run that is
// under way, or to a new one.
func (s *Session) promptHosted(ctx context.Context, m *Main, text string) error {
	m.door.Lock() // a second prompt finds the run that the first has begun
	defer m.door.Unlock()
	id := s.cfg.Info.Session
	if r, again := s.sup.Get(id); again && r.Status.Terminal() && m.under() { // it was stopped before it began to take prompts
		m.drop()
	}
	if m.under() {
		if err := m.Prompt(ctx, text); !control.Refused(err) || m.under() {
			return err
		}
	}
	if r, again := s.sup.Get(id); again && !r.Status.Terminal() { // it has answered, or was stopped, and is ending
		if _, err := s.sup.Wait(ctx, []task.ID{id}, false); err != nil {
			return err
		}
	}
	m.reopen()
	seq, err := m.post(ctx, text)
	if err != nil {
		m.drop()
		return refusal(err)
	}
	if _, err = s.beginMain(ctx, m, text, &mainTask{main: m, ceiling: m.ceiling}); err != nil {
		left := m.withdraw(ctx, seq)
		m.drop()
		if left != nil { // the next host may tell of it
			return errors.Join(refusal(err), left)
		}
		return notStarted(err)
	}
	s.entitle()
	return nil
}

// entitle shows the session under its first prompt, if it was opened without one.
func (s *Session) entitle() {
	s.mu.Lock() // Close writes the last word, after it has taken the lock
	defer s.mu.Unlock()
	if s.cfg.Info.Title == "" && !s.closed {
		_ = s.writeInfo(nil) // Close writes it again
	}
}

// unused reports whether somebody has opened a conversation and left it without a
// word.
func (m *Main) unused() bool {
	return m != nil && m.hosted && !m.kit.resumed && m.standing().turned == 0 && m.s.log.Last() == 0
}

// under reports whether a run of the conversation takes prompts.
func (m *Main) under() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.over || m.ended
}

// drop ends the queue: what is left of it goes with the next prompt.
func (m *Main) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale, m.over = m.keepPrompts(), true
}

// settle is [Main.Settle] for a run that somebody may be attached to: while there
// is, it rests when it has nothing to answer.
func (d *mainTask) settle(ctx context.Context, h task.Host) error {
	m := d.main
	for {
		attended, same := m.s.audience.now()
		if !attended {
			wait, cancel := context.WithCancelCause(ctx)
			late := context.AfterFunc(same, func() { cancel(errAttended) })
			_, err := m.Settle(wait, d.ceiling)
			late()
			cancel(nil)
			if ctx.Err() != nil || !errors.Is(err, errAttended) {
				return err
			}
			continue
		}
		m.stay()
		if err := d.rest(ctx, h, same); err != nil {
			return err
		}
	}
}

// rest waits until nothing is left to answer, and then until there is something,
// but only for as long as the audience is the same.
func (d *mainTask) rest(ctx context.Context, h task.Host, same context.Context) error {
	err := d.until(ctx, same, func() bool { return !d.main.due() })
	if err != nil || same.Err() != nil {
		return err
	}
	return h.Rest(ctx, func(ctx context.Context) error { return d.until(ctx, same, d.main.due) })
}

// until waits for a condition of the conversation, or for another audience.
func (d *mainTask) until(ctx, same context.Context, is func() bool) error {
	for {
		stirred, ended := d.main.s.pulse.next(), d.main.s.Changed()
		if is() {
			return nil
		}
		select {
		case <-stirred:
		case <-ended:
		case <-same.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// due reports whether there is something to answer.
func (m *Main) due() bool {
	owed := m.owed()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.working() || owed && !m.latched
}

// stay says that somebody was attached: what runs beside the conversation is then
// waited for from now on, also when the last turn went wrong.
func (m *Main) stay() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attended = true
}

// abandoned is called when the last who was attached has gone.
func (s *Session) abandoned() {
	s.mu.Lock()
	m := s.main
	s.wake()
	s.mu.Unlock()
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.rested = time.Now() // the ceiling counts from here
	}
}
