package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// mostHosts is how many hosts are tried one after the other for a request.
const mostHosts = 5

// askedWait is how long the client waits until the session asks for the body of a request. Then
// it sends it anyway.
const askedWait = time.Hour

// Follow is [Dial] for a client that can continue with another host. When a host does not
// accept a request because it is ending or gone, next returns the socket of its successor. next
// is not called concurrently.
func Follow(socket string, next func(context.Context) (string, error)) *Client {
	c := Dial(socket)
	c.next = next
	return c
}

// turn switches to the next host, unless another goroutine has already replaced was.
func (c *Client) turn(ctx context.Context, was *target) error {
	select {
	case c.turning <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.turning }()
	if c.at.Load() != was {
		return nil
	}
	socket, err := c.next(ctx)
	if err != nil {
		return err
	}
	c.at.Store(newTarget(socket))
	was.transport.CloseIdleConnections()
	return nil
}

// offer is the body of a request, which is sent only when the session asks for it: until then
// nothing can have been executed.
type offer struct {
	data []byte

	mu      sync.Mutex
	given   bool // some of it may have been sent
	revoked bool // none of it will be
}

// errRevoked ends the sending of a failed request.
var errRevoked = errors.New("the request was taken back")

// body may be called several times, for a connection that was closed before anything was sent.
func (o *offer) body() (io.ReadCloser, error) {
	return io.NopCloser(&offered{o, bytes.NewReader(o.data)}), nil
}

// revoke prevents further sending, and reports whether nothing was sent.
func (o *offer) revoke() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revoked = true
	return !o.given
}

func (o *offer) give() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.revoked {
		return errRevoked
	}
	o.given = true
	return nil
}

// offered reads an offer once.
type offered struct {
	offer *offer
	rest  *bytes.Reader
}

func (r *offered) Read(p []byte) (int, error) {
	if err := r.offer.give(); err != nil {
		return 0, err
	}
	return r.rest.Read(p)
}

// put sets the offer as the body of a request.
func (o *offer) put(req *http.Request) {
	req.Body, _ = o.body() // which gives no error
	req.GetBody = o.body
	req.ContentLength = int64(len(o.data))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
}

// untaken is the error of a batch of which nothing was started because the session is closing.
func untaken(started []Started) error {
	var late *Error
	for _, s := range started {
		switch {
		case s.Task != nil:
			return nil
		case s.Error != nil && s.Error.NotAccepted:
			late = s.Error
		}
	}
	if late == nil {
		return nil
	}
	return late
}
