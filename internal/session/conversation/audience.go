package conversation

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
)

// guestWait is how long a host that was started for a client waits until the client attaches.
const guestWait = 15 * time.Second

// errRetired refuses clients when the session has begun to end.
var errRetired = errors.New("the session is closing")

// Audience has the attached clients of a session and their view of its conversation. The host
// stays while a client is attached. Its methods may be called by several goroutines.
type Audience struct {
	Feed Feed

	left func()        // called when the last client has left, without mu
	over chan struct{} // closed by Close

	mu      sync.Mutex      // guards the fields below
	n       int             // attached clients, including an expected one
	guest   *time.Timer     // nil: no client is expected
	retired bool            // further clients are refused
	as      context.Context // ends when the first client comes or the last one leaves; nil: unused
	change  context.CancelFunc
}

// NewAudience returns an audience without clients. left is called when the last client has
// left.
func NewAudience(left func()) *Audience { return &Audience{left: left, over: make(chan struct{})} }

// come adds a client; leave removes it.
func (a *Audience) come() (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired {
		return nil, errRetired
	}
	a.add()
	if a.guest != nil && a.guest.Stop() { // the expected client
		a.n--
	}
	a.guest = nil
	return sync.OnceFunc(a.leave), nil
}

// add adds a client. The caller holds mu.
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

// Expect counts a client in advance, for a while.
func (a *Audience) Expect() { a.expect(guestWait) }

func (a *Audience) expect(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add()
	a.guest = time.AfterFunc(d, a.leave)
}

// wake reports the first or the last client to waiters. The caller holds mu.
func (a *Audience) wake() {
	if a.as != nil {
		a.change()
		a.as = nil
	}
}

// Now reports whether a client is attached, with a context that ends when that changes.
func (a *Audience) Now() (bool, context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.as == nil {
		a.as, a.change = context.WithCancel(context.Background())
	}
	return a.n > 0, a.as
}

// Retire refuses clients from now on, if none is attached and ready reports that nothing is
// left to do.
func (a *Audience) Retire(ready func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > 0 || !ready() {
		return false
	}
	a.retired = true
	return true
}

// Close refuses further clients and ends the streams of the others.
func (a *Audience) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
	close(a.over)
	if a.guest != nil {
		a.guest.Stop()
	}
}

// Watch yields the events of the conversation. A caller that wants more than a snapshot counts
// as attached.
func (a *Audience) Watch(ctx context.Context, req control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(yield func(control.Piece, error) bool) {
		if !req.Snapshot {
			leave, err := a.come()
			if err != nil {
				yield(control.Piece{}, &control.Error{
					Code:        control.Unavailable,
					Message:     err.Error(),
					Fix:         "attach again: it goes on under a new host",
					NotAccepted: true,
				})
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
