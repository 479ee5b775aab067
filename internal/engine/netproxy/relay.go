package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Relay passes bytes both ways until both sides have ended, one has failed, nothing came for as long as the
// default [Limits] say, or ctx ends. It closes both connections.
func Relay(ctx context.Context, client, up net.Conn) {
	relay(ctx, Limits{}.withDefaults(), client, nil, up)
}

func (s *service) relay(client net.Conn, early []byte, up net.Conn) (sent, received int64) {
	return relay(s.ctx, s.cfg.Limits, client, early, up)
}

// relay is [Relay] with other limits. early are bytes of the client that were read already.
func relay(ctx context.Context, l Limits, client net.Conn, early []byte, up net.Conn) (sent, received int64) {
	closeBoth := func() { _ = client.Close(); _ = up.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	defer closeBoth()

	r := &relaying{idle: l.Idle, halfOpen: l.HalfOpen}
	r.moved()
	var other sync.WaitGroup
	other.Go(func() {
		n, err := r.copy(client, up)
		received = n
		if err != nil {
			closeBoth()
		}
	})
	_ = up.SetWriteDeadline(time.Now().Add(r.idle))
	n, err := up.Write(early)
	sent = int64(n)
	if err == nil {
		var more int64
		more, err = r.copy(up, client)
		sent += more
	}
	if err != nil {
		closeBoth()
	}
	other.Wait()
	return sent, received
}

// relaying is what the two directions of a connection know of each other.
type relaying struct {
	idle, halfOpen time.Duration
	half           atomic.Bool  // one direction has ended
	last           atomic.Int64 // when bytes moved, in either direction; Unix nanoseconds
}

func (r *relaying) moved() { r.last.Store(time.Now().UnixNano()) }

// deadline is when the connection ends if nothing moves before.
func (r *relaying) deadline() time.Time {
	patience := r.idle
	if r.half.Load() {
		patience = r.halfOpen
	}
	return time.Unix(0, r.last.Load()).Add(patience)
}

// arm sets when a read ends. Both directions may do so for one connection: the last one
// to set it has seen whether one direction has ended.
func (r *relaying) arm(c net.Conn) {
	for {
		half := r.half.Load()
		_ = c.SetReadDeadline(r.deadline())
		if half == r.half.Load() {
			return
		}
	}
}

// copy passes one direction on to its end, and passes that on too.
func (r *relaying) copy(to, from net.Conn) (n int64, err error) {
	b := make([]byte, 32<<10)
	for {
		r.arm(from)
		got, err := from.Read(b)
		if got > 0 {
			r.moved()
			_ = to.SetWriteDeadline(time.Now().Add(r.idle))
			put, err := to.Write(b[:got])
			n += int64(put)
			if err != nil {
				return n, err
			}
			r.moved()
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(r.deadline()):
			// the other direction moved meanwhile
		case errors.Is(err, io.EOF):
			r.moved()
			r.half.Store(true)
			r.arm(to) // what the other direction waits for
			return n, closeWrite(to)
		case err != nil:
			return n, err
		}
	}
}

// closeWrite ends one direction, or both of a connection that cannot do that.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
