package session

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
)

// guestWait is how long a host that was started for somebody who wants to attach
// waits for that.
const guestWait = 15 * time.Second

// errRetired refuses whoever comes when the session has begun to end.
var errRetired = errors.New("the session is closing")

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
		if !req.Snapshot {
			leave, err := s.audience.come()
			if err != nil {
				yield(
					control.Piece{},
					&control.Error{
						Code:        control.Unavailable,
						Message:     err.Error(),
						Fix:         "attach again: it goes on under a new host",
						NotAccepted: true,
					},
				)
				return
			}
			defer leave()
		}
		at := req.After
		if !yield(control.Piece{N: s.feed.Newest(), Kind: control.OpenPiece, At: time.Now().UTC()}, nil) {
			return
		}
		for {
			p, ok, grown := s.feed.Next(at)
			if ok {
				if at = p.Mark(); !yield(p, nil) {
					return
				}
				continue
			}
			if req.Snapshot {
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

// abandoned is called when the last who was attached has gone.
func (s *Session) abandoned() {
	s.mu.Lock()
	m := s.main
	s.wake()
	s.mu.Unlock()
	if m != nil {
		m.Detached()
	}
}
