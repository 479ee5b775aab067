package mcpserver

import (
	"context"
	"sync"

	"github.com/drover-dev/drover/internal/api/control"
)

// link is the connection to the session. It connects at the first use, and again when the session has ended: a detached
// host ends some time after its last task.
type link struct {
	connect func(context.Context) (control.API, func(), error)
	life    context.Context
	lease   string
	holds   sync.WaitGroup // one per connection; close waits for them

	mu  sync.Mutex // held while connecting, so that all callers share one connection
	now *connection
}

// connection is one session while its lease is held.
type connection struct {
	api    control.API
	cancel context.CancelFunc // ends the hold
	gone   <-chan struct{}    // closed when the lease is no longer held
}

func newLink(life context.Context, connect func(context.Context) (control.API, func(), error), lease string) *link {
	return &link{connect: connect, life: life, lease: lease}
}

// close ends the lease and waits until the connection is released.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.cancel()
	}
	l.holds.Wait()
}

// get returns the current connection or a new one.
func (l *link) get(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		select {
		case <-l.now.gone:
		default:
			return l.now, nil
		}
	}
	if l.life.Err() != nil {
		return nil, context.Cause(l.life)
	}
	api, release, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	hold, cancel := context.WithCancel(l.life)
	gone := make(chan struct{})
	l.holds.Go(func() {
		// The reason of the end does not matter: the next call reconnects.
		_ = api.HoldLease(hold, l.lease)
		cancel()
		close(gone)
		if release != nil {
			release()
		}
	})
	l.now = &connection{api: api, cancel: cancel, gone: gone}
	return l.now, nil
}

// reach returns a connection to a session that answers. It gives up the old connection, and with it the lease, only if
// the session does not answer.
func (l *link) reach(ctx context.Context) (*connection, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.api.Info(ctx); !control.IsCode(err, control.Unavailable) || ctx.Err() != nil {
		return c, nil
	}
	c.cancel()
	select {
	case <-c.gone:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return l.get(ctx)
}

// ask calls the session, and calls again if the session has ended. It is for calls that may be repeated, which a
// start may not.
func ask[T any](ctx context.Context, l *link, call func(control.API) (T, error)) (T, error) {
	c, err := l.get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	out, err := call(c.api)
	if !control.IsCode(err, control.Unavailable) || ctx.Err() != nil {
		return out, err
	}
	again, reachErr := l.reach(ctx)
	if reachErr != nil || again == c {
		return out, err
	}
	return call(again.api)
}
