package conversation

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

// Audience is who is attached to a session, and what they see of its conversation.
// While somebody is attached, the host stays. Its methods may be called by several
// goroutines.
type Audience struct {
	Feed Feed

	left func()        // called when the last has gone, without mu
	over chan struct{} // closed by Close

	mu      sync.Mutex      // guards what follows
	n       int             // attached now, an expected guest included
	guest   *time.Timer     // nil: nobody is expected
	retired bool            // nobody may come any more
	as      context.Context // ends when the first comes or the last goes; nil: nobody asked
	change  context.CancelFunc
}

// NewAudience returns an audience of nobody. left is called when the last of it has gone.
func NewAudience(left func()) *Audience { return &Audience{left: left, over: make(chan struct{})} }

// come counts one more; leave takes it back.
func (a *Audience) come() (leave func(), err error) {
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
func (a *Audience) add() {
	if a.n++; a.n == 1 {
		a.wake()
	}
}

func (a *Audience) leave() {
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

// Expect counts somebody who has not come yet, for a while.
func (a *Audience) Expect() { a.expect(guestWait) }

func (a *Audience) expect(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add()
	a.guest = time.AfterFunc(d, a.leave)
}

// wake tells of the first or the last. The caller holds mu.
func (a *Audience) wake() {
	if a.as != nil {
		a.change()
		a.as = nil
	}
}

// Now says whether somebody is attached, and for how long that is so.
func (a *Audience) Now() (bool, context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.as == nil {
		a.as, a.change = context.WithCancel(context.Background())
	}
	return a.n > 0, a.as
}

// Retire turns away whoever comes from now on, if nobody is attached and ready
// says that nothing is left.
func (a *Audience) Retire(ready func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > 0 || !ready() {
		return false
	}
	a.retired = true
	return true
}

// Close turns away whoever comes, and ends what is watched.
func (a *Audience) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
	close(a.over)
	if a.guest != nil {
		a.guest.Stop()
	}
}

// Watch yields what happens in the conversation. Who asks for more than a snapshot of it
// is attached.
func (a *Audience) Watch(ctx context.Context, req control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(yield func(control.Piece, error) bool) {
		if !req.Snapshot {
			leave, err := a.come()
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
		if !yield(control.Piece{N: a.Feed.Newest(), Kind: control.OpenPiece, At: time.Now().UTC()}, nil) {
			return
		}
		for {
			p, ok, grown := a.Feed.Next(at)
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
			case <-a.over:
				return
			case <-ctx.Done():
				yield(control.Piece{}, context.Cause(ctx))
				return
			}
		}
	}
}
