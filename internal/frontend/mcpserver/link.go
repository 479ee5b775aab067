package mcpserver

import (
	"context"
	"errors"
	"sync"

	"github.com/drover-dev/drover/internal/api/control"
)

// link is the way to the session. It connects when first needed, and again
// when the session at the other end is gone: a detached host ends a while
// after its last task.
type link struct {
	connect func(context.Context) (control.API, func(), error)
	life    context.Context
	lease   string
	holds   sync.WaitGroup // one per connection; close waits for them

	mu  sync.Mutex // held while connecting, so that all callers share one connection
	now *connection
}

// connection is one session for as long as its lease is held.
type connection struct {
	api    control.API
	cancel context.CancelFunc // ends the hold
	gone   <-chan struct{}    // closed when the lease is not held any more
}

func newLink(life context.Context, connect func(context.Context) (control.API, func(), error), lease string) *link {
	return &link{connect: connect, life: life, lease: lease}
}

// close ends the lease, if it has not ended with life, and waits until the
// connection is released.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.cancel()
	}
	l.holds.Wait()
}

// get is the connection as it is, or a new one.
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
		// How the hold ended does not matter: the next call connects again.
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

// reach is a connection to a session that answers. The old connection, and
// with it the lease, is given up only when nobody is there any more.
func (l *link) reach(ctx context.Context) (*connection, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.api.Info(ctx); !unavailable(err) || ctx.Err() != nil {
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

// ask calls the session, once more if it turns out to have ended. It is for
// calls that may be made twice; a start is not.
func ask[T any](ctx context.Context, l *link, call func(control.API) (T, error)) (T, error) {
	c, err := l.get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	out, err := call(c.api)
	if !unavailable(err) || ctx.Err() != nil {
		return out, err
	}
	again, reachErr := l.reach(ctx)
	if reachErr != nil || again == c {
		return out, err
	}
	return call(again.api)
}

func unavailable(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.Unavailable
}
