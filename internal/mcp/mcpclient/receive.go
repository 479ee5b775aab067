package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
)

// inFlight bounds the requests of a server that run at the same time.
const inFlight = 16

// maxReplies bounds the short answers that wait to be sent.
const maxReplies = 256

// receive handles one frame of the server. The readers of a wire call it, and it
// returns at once.
func (c *Conn) receive(frame []byte) error {
	m, err := parse(frame)
	switch {
	case errors.Is(err, errEmpty):
		return nil
	case errors.Is(err, errBatch):
		c.count(func(s *Stats) { s.Batches++ })
		return err
	case err != nil:
		c.count(func(s *Stats) { s.Junk++ })
		return err
	case m.Method != "" && m.ID != nil:
		c.asked(m)
	case m.Method != "":
		c.told(m)
	default:
		c.answered(m)
	}
	return nil
}

func (c *Conn) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

func (c *Conn) answered(m message) {
	a := answer{result: bytes.Clone(m.Result)}
	if m.Error != nil {
		a.err = m.Error
	}
	id, ok := number(m.ID)
	if !ok {
		c.count(func(s *Stats) { s.Unknown++ })
		return
	}
	c.deliver(id, a)
}

// failed ends a call that can get no answer any more.
func (c *Conn) failed(id int64, err error) { c.deliver(id, answer{err: err}) }

func (c *Conn) deliver(id int64, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting[id]
	switch {
	case p != nil:
		delete(c.waiting, id) // a second answer is a late one
		p.answer <- a
	case id > 0 && id <= c.last:
		c.stats.Late++
	default:
		c.stats.Unknown++
	}
}

// tooLong handles a frame above the limit by its two ends. It reports whether the frame
// was the answer to a call, which then fails.
func (c *Conn) tooLong(head, tail []byte) bool {
	c.count(func(s *Stats) { s.Long++ })
	id, ok := answeredBy(head, tail)
	c.mu.Lock()
	ok = ok && c.waiting[id] != nil
	c.mu.Unlock()
	if ok {
		c.failed(id, fmt.Errorf("%w: more than %d bytes", ErrTooLong, c.cfg.frame))
	}
	return ok
}

func (c *Conn) told(m message) {
	switch m.Method {
	case "notifications/progress":
		c.progressed(m.Params)
	case "notifications/tools/list_changed":
		select {
		case c.relist <- struct{}{}:
		default: // it is going to be read again anyway
		}
	case "notifications/cancelled":
		c.takenBack(m.Params)
	}
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.mu.Lock()
	listeners := c.hear[m.Method]
	c.mu.Unlock()
	for _, l := range listeners {
		l.f(bytes.Clone(m.Params))
	}
}

func (c *Conn) progressed(params json.RawMessage) {
	var p struct {
		Token    any     `json:"progressToken"`
		Progress float64 `json:"progress"`
		Total    float64 `json:"total"`
		Message  string  `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		if w.token != p.Token {
			continue
		}
		w.latest = Progress{p.Progress, p.Total, p.Message}
		select {
		case w.more <- struct{}{}:
		default: // it will be seen with the earlier one
		}
	}
}

func (c *Conn) takenBack(params json.RawMessage) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.incoming[string(p.ID)]; cancel != nil {
		cancel()
	}
}

// asked begins to answer a request of the server.
func (c *Conn) asked(m message) {
	id := string(m.ID)
	if m.Method == "ping" { // answered at the limit of running requests too: it asks for a sign of life
		c.reply(encodeAnswer(m.ID, struct{}{}, nil))
		return
	}
	ctx, cancel := context.WithCancel(c.life)
	c.mu.Lock()
	functions := c.serve[m.Method]
	_, twice := c.incoming[id]
	if twice || len(c.incoming) >= inFlight {
		c.stats.Refused++
		c.mu.Unlock()
		cancel()
		if !twice { // else it would be taken for the answer to the first
			c.reply(encodeAnswer(m.ID, nil,
				&RPCError{Code: CodeInternal, Message: fmt.Sprintf("too many requests: %d are at work", inFlight)}))
		}
		return
	}
	c.incoming[id] = cancel
	c.mu.Unlock()
	params, key := bytes.Clone(m.Params), bytes.Clone(m.ID)
	begun := c.spawn(func() {
		res, err := c.serveOne(ctx, m.Method, params, functions)
		revoked := ctx.Err() != nil
		c.leave(id, cancel)
		if revoked {
			return // the server does not wait, or is gone
		}
		last, done := context.WithTimeoutCause(c.life, sendLimit, ErrNoAnswer)
		defer done()
		_ = c.wire.send(last, encodeAnswer(key, res, err)) // a server that cannot be reached is about to go
	})
	if !begun {
		c.leave(id, cancel)
	}
}

// reply sends a short answer outside the limit of running requests, and does not
// wait. It drops and counts the answer if too many wait already.
func (c *Conn) reply(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.replies) >= maxReplies {
		c.stats.Unsaid++
		return
	}
	c.replies = append(c.replies, frame)
	if len(c.replies) == 1 { // else they are being sent
		c.work.Go(c.sendReplies)
	}
}

func (c *Conn) sendReplies() {
	for left := true; left; {
		c.mu.Lock()
		frame := c.replies[0] // it stays there until it is sent
		c.mu.Unlock()
		ctx, done := context.WithTimeoutCause(c.life, sendLimit, ErrNoAnswer)
		_ = c.wire.send(ctx, frame) // a server that cannot be reached is about to go
		done()
		c.mu.Lock()
		c.replies = c.replies[1:]
		left = len(c.replies) > 0
		c.mu.Unlock()
	}
}

func (c *Conn) leave(id string, cancel context.CancelFunc) {
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.incoming, id)
}

func (c *Conn) serveOne(ctx context.Context, method string, params json.RawMessage,
	functions []*server) (any, error) {
	for i := len(functions) - 1; i >= 0; i-- {
		res, err := functions[i].f(ctx, params)
		if !errors.Is(err, ErrNotMine) {
			return res, err
		}
	}
	switch {
	case method == "elicitation/create":
		return map[string]string{"action": "cancel"}, nil // this client has no one to ask
	case method == "roots/list" && len(c.roots) > 0:
		return c.listRoots(), nil
	case method == "sampling/createMessage" && c.samples:
		return nil, &RPCError{Code: codeRejected, Message: "models can be asked during a call of a tool only"}
	}
	return nil, &RPCError{Code: CodeNoMethod, Message: "method not found: " + method}
}

// listRoots returns the folders that the server may work in.
func (c *Conn) listRoots() any {
	all := make([]map[string]string, len(c.roots))
	for i, dir := range c.roots {
		u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}
		all[i] = map[string]string{"uri": u.String(), "name": filepath.Base(dir)}
	}
	return map[string]any{"roots": all}
}

// waits reports whether a call still has no answer.
func (c *Conn) waits(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id] != nil
}
