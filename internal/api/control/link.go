package control

import (
	"context"
	"sync"

	"github.com/drover-dev/drover/task"
)

// Link is a connection to a session. It connects at the first use, and again when the session has ended: a detached
// host ends some time after its last task. Its methods may be called by several goroutines.
type Link struct {
	connect func(context.Context) (API, func(), error)
	life    context.Context
	lease   string
	holds   sync.WaitGroup // one per connection; Close waits for them

	mu  sync.Mutex // held while connecting, so that all callers share one connection
	now *connection
}

// connection is one session until its hold ends.
type connection struct {
	api    API
	cancel context.CancelFunc // ends the hold
	gone   <-chan struct{}    // closed when the hold has ended
}

// NewLink returns a link that lives until Close or the end of life. The function that connect returns is called once,
// when the connection is no longer used. While the link is connected it holds the lease, unless that is empty.
func NewLink(life context.Context, connect func(context.Context) (API, func(), error), lease string) *Link {
	return &Link{connect: connect, life: life, lease: lease}
}

// Close ends the connection and returns when it is released.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.cancel()
	}
	l.holds.Wait()
}

// Get returns the current session or a new one.
func (l *Link) Get(ctx context.Context) (API, error) { return apiOf(l.get(ctx)) }

func apiOf(c *connection, err error) (API, error) {
	if err != nil {
		return nil, err
	}
	return c.api, nil
}

func (l *Link) get(ctx context.Context) (*connection, error) {
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
		if l.lease != "" {
			_ = api.HoldLease(hold, l.lease) // the next call reconnects, whatever the reason of the end
			cancel()
		}
		<-hold.Done()
		close(gone)
		if release != nil {
			release()
		}
	})
	l.now = &connection{api: api, cancel: cancel, gone: gone}
	return l.now, nil
}

// Reach returns a session that answers. It gives up the old connection, and with it the lease, only if the session does
// not answer.
func (l *Link) Reach(ctx context.Context) (API, error) { return apiOf(l.reach(ctx)) }

func (l *Link) reach(ctx context.Context) (*connection, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.api.Info(ctx); !IsCode(err, Unavailable) || ctx.Err() != nil {
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

// Ask calls the session of a link, and calls again if the session has ended. It is for calls that may be repeated,
// which a start may not.
func Ask[T any](ctx context.Context, l *Link, call func(API) (T, error)) (T, error) {
	c, err := l.get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	out, err := call(c.api)
	if !IsCode(err, Unavailable) || ctx.Err() != nil {
		return out, err
	}
	again, reachErr := l.reach(ctx)
	if reachErr != nil || again == c {
		return out, err
	}
	return call(again.api)
}

// Record is [API.Get].
func (l *Link) Record(ctx context.Context, ref string) (task.Record, error) {
	return Ask(ctx, l, func(api API) (task.Record, error) { return api.Get(ctx, ref) })
}

// Stop is [API.Stop].
func (l *Link) Stop(ctx context.Context, r StopRequest) (task.Receipt, error) {
	return Ask(ctx, l, func(api API) (task.Receipt, error) { return api.Stop(ctx, r) })
}

// maxParents is how many tasks are looked at above a task.
const maxParents = 20

// Below reports whether a task or one above it matches.
func (l *Link) Below(ctx context.Context, id task.ID, match func(task.Record) bool) bool {
	for range maxParents {
		if id == "" {
			return false
		}
		r, err := l.Record(ctx, string(id))
		if err != nil {
			return false
		}
		if match(r) {
			return true
		}
		id = r.Parent
	}
	return false
}

// Decide answers a question. A faster answer of another client is no error.
func (l *Link) Decide(ctx context.Context, r DecideRequest) error {
	_, err := Ask(ctx, l, func(api API) (struct{}, error) { return struct{}{}, api.Decide(ctx, r) })
	if IsCode(err, Conflict) || IsCode(err, NotFound) {
		return nil
	}
	return err
}
