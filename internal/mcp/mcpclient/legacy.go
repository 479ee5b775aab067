package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// legacy is a server over the HTTP+SSE transport of 2024: all its messages come on one
// stream, which begins with the address for messages to it.
type legacy struct {
	*web
	told chan struct{} // closed when the address is known
}

func newLegacy(w *web) *legacy { return &legacy{w, make(chan struct{})} }

func (l *legacy) agreed(string) <-chan struct{} { return nil }

// request implements [wire].
func (l *legacy) request(r request) (func(), error) {
	ctx, stop := context.WithCancel(l.c.life)
	begun := l.c.spawn(func() {
		defer stop()
		if err := l.send(ctx, r.frame); err != nil && ctx.Err() == nil {
			l.c.failed(r.id, err)
		}
	})
	if !begun {
		stop()
		return func() {}, l.c.goneError()
	}
	return stop, nil
}

// send implements [wire].
func (l *legacy) send(ctx context.Context, frame []byte) error {
	select {
	case <-l.told:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return l.web.send(ctx, frame)
}

// run implements [wire].
func (l *legacy) run(ctx context.Context) error {
	l.c.end(l.hearAll(ctx)) // if ctx has ended, its cause was set first
	<-ctx.Done()
	l.client.CloseIdleConnections()
	return context.Cause(ctx)
}

// hearAll reads the stream to its end.
func (l *legacy) hearAll(ctx context.Context) error {
	res, err := l.do(ctx, http.MethodGet, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return l.refusal(res)
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return errors.New("it answers without a stream of events (use type http if it speaks streamable HTTP)")
	}
	e := newEvents(res.Body, l.c.cfg.frame, &l.meter)
	defer e.lines.done()
	for {
		data, err := e.next()
		switch {
		case errors.Is(err, ErrTooLong):
			l.c.tooLong(e.head, e.tail)
		case err != nil:
			return fmt.Errorf("its stream has ended: %w", err)
		case e.name == "endpoint":
			if err := l.address(string(data)); err != nil {
				return err
			}
		default:
			_ = l.c.receive(data) // it counts invalid messages
		}
	}
}

// address stores the address for messages to the server. It must be on the same host,
// because the messages hold secrets.
func (l *legacy) address(text string) error {
	base, err := url.Parse(l.url)
	if err != nil {
		return err
	}
	at, err := base.Parse(strings.TrimSpace(text))
	if err != nil || at.Scheme != base.Scheme || at.Host != base.Host {
		return errors.New("it wants its messages at an address of another host")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.post != "" {
		return nil // the first one counts
	}
	l.post = at.String()
	close(l.told)
	return nil
}

// longData returns both ends of an event that is too long, without the name of its field.
func longData(one line) (head, tail []byte) {
	head, _ = bytes.CutPrefix(one.data, []byte("data:"))
	return bytes.Clone(head), bytes.Clone(one.tail)
}
