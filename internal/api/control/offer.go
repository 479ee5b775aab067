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

// mostHosts is how many hosts are asked one after the other that do not take a
// request.
const mostHosts = 5

// askedWait is how long a session may take to ask for the body of a request. It
// gets it all the same then.
const askedWait = time.Hour

// Follow is [Dial] for whoever can go on with another host. When one does not take
// a request since it is ending or gone, next finds the socket of its successor, which
// is asked instead. next is not called by two goroutines at once.
func Follow(socket string, next func(context.Context) (string, error)) *Client {
	c := Dial(socket)
	c.next = next
	return c
}

// turn goes on with the next host, unless somebody has done so since was was asked.
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

// offer is the body of a request, which is sent when the session asks for it and not
// before: until then nothing can have been done.
type offer struct {
	data []byte

	mu      sync.Mutex
	given   bool // some of it may have been sent
	revoked bool // none of it will be
}

// errRevoked ends the sending of a request that has failed already.
var errRevoked = errors.New("the request was taken back")

// body may be called several times, for a connection that was gone before anything
// was sent.
func (o *offer) body() (io.ReadCloser, error) {
	return io.NopCloser(&offered{o, bytes.NewReader(o.data)}), nil
}

// revoke takes back what was not sent, and reports whether that is all of it.
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

// put has a request carry the offer.
func (o *offer) put(req *http.Request) {
	req.Body, _ = o.body() // which gives no error
	req.GetBody = o.body
	req.ContentLength = int64(len(o.data))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
}

// untaken is the error of a batch of which nothing was started since the session is
// closing.
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
