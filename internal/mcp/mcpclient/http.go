package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

const (
	goodbye    = 500 * time.Millisecond // to tell the server the end of the session
	takeUps    = 5                      // of one broken stream in a row
	takeUpWait = time.Second            // before the next; it doubles
	errorBody  = 64 << 10               // bytes that are read of a refusal
)

var errForgotten = errors.New("it has ended the session")

// web is a server over streamable HTTP.
type web struct {
	c       *Conn
	client  *http.Client
	url     string
	headers map[string]string
	meter   meter
	token   func(ctx context.Context, address, refused string) (string, error) // nil: no token is sent
	ready   chan struct{}                                                      // closed when the revision is agreed
	hears   chan struct{}                                                      // see [wire.agreed]

	mu       sync.Mutex
	session  string // guarded by mu, as are the next
	revision string
	post     string // address of messages, if it differs from the address of streams
}

func newWeb(c *Conn, s Server) *web {
	t := http.DefaultTransport.(*http.Transport).Clone() // a connection of its own can be closed
	t.MaxIdleConnsPerHost = 4
	return &web{
		c:       c,
		url:     s.URL,
		headers: s.Headers,
		meter:   meter{most: int64(c.cfg.budget)},
		ready:   make(chan struct{}),
		hears:   make(chan struct{}),
		// A redirection would take the headers, and so their secrets, elsewhere.
		client: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (w *web) said() string { return "" }

func (w *web) agreed(revision string) <-chan struct{} {
	w.mu.Lock()
	w.revision = revision
	w.mu.Unlock()
	close(w.ready)
	if revision == stateless {
		return nil
	}
	return w.hears
}

// request implements [wire]: the answer comes with the response, or on a stream
// that takes its place.
func (w *web) request(r request) (func(), error) {
	return w.begin(r, func(ctx context.Context) error {
		err := w.exchange(ctx, r)
		var dial *net.OpError
		if ctx.Err() == nil && (errors.Is(err, errForgotten) || errors.As(err, &dial) && dial.Op == "dial") {
			w.c.end(err)
			return nil
		}
		return err
	})
}

// begin sends a request in a goroutine of the connection. If do fails, so does the call; stop ends
// its context.
func (w *web) begin(r request, do func(ctx context.Context) error) (stop func(), err error) {
	ctx, stop := context.WithCancel(w.c.life)
	begun := w.c.spawn(func() {
		defer stop()
		if err := do(ctx); err != nil && ctx.Err() == nil {
			w.c.failed(r.id, err)
		}
	})
	if !begun {
		stop()
		return func() {}, w.c.goneError()
	}
	return stop, nil
}

// send implements [wire].
func (w *web) send(ctx context.Context, frame []byte) error {
	res, err := w.do(ctx, http.MethodPost, frame, nil)
	if err != nil {
		return err
	}
	defer w.drop(res)
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return w.refusal(res)
	}
	return nil
}

// drop reads a little of the rest, so that the connection can be used again.
func (w *web) drop(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, errorBody)
	_ = res.Body.Close()
}

// do makes a request, and once more with a fresh token if the first is refused.
func (w *web) do(ctx context.Context, method string, frame []byte, more map[string]string) (*http.Response, error) {
	if w.token == nil {
		return w.once(ctx, method, frame, more, "")
	}
	token, err := w.token(ctx, w.url, "")
	if err != nil {
		return nil, err
	}
	res, err := w.once(ctx, method, frame, more, token)
	if err != nil || res.StatusCode != http.StatusUnauthorized || token == "" {
		return res, err
	}
	w.drop(res)
	if token, err = w.token(ctx, w.url, token); err != nil {
		return nil, err
	}
	return w.once(ctx, method, frame, more, token)
}

func (w *web) once(ctx context.Context, method string, frame []byte, more map[string]string,
	token string) (*http.Response, error) {
	w.mu.Lock()
	session, revision, address := w.session, w.revision, w.url
	if method == http.MethodPost && w.post != "" {
		address = w.post
	}
	w.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	for name, value := range w.headers {
		req.Header.Set(name, value)
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if token != "" {
		set("Authorization", "Bearer "+token)
	}
	set("Mcp-Session-Id", session)
	set("MCP-Protocol-Version", revision)
	for name, value := range more {
		req.Header.Set(name, value) // an argument may be an empty text
	}
	switch method {
	case http.MethodPost:
		set("Content-Type", "application/json")
		set("Accept", "application/json, text/event-stream")
	case http.MethodGet:
		set("Accept", "text/event-stream")
	}
	res, err := w.client.Do(req)
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // without the address, which may hold a secret
	}
	if err != nil {
		return nil, err
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" && session == "" && len(id) <= 1024 {
		w.mu.Lock()
		w.session = id
		w.mu.Unlock()
	}
	return res, nil
}

// exchange sends one request and reads until its answer has come.
func (w *web) exchange(ctx context.Context, r request) error {
	id := r.id
	var more map[string]string
	if r.alone {
		more = w.c.httpHeaders(r.method, r.params)
	}
	res, err := w.do(ctx, http.MethodPost, r.frame, more)
	if err != nil {
		return err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode != http.StatusOK:
		defer w.drop(res)
		return w.refused(res, id)
	case kind == "text/event-stream":
		return w.streamed(ctx, res, id)
	}
	defer w.drop(res)
	l := newLines(res.Body, w.c.cfg.frame, &w.meter)
	defer l.done()
	return w.whole(l, id)
}

// whole reads an answer that fills the body. A body of several lines is one frame
// too.
func (w *web) whole(l *lines, id int64) error {
	var body []byte
	defer func() { w.meter.give(len(body)) }()
	for {
		one, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if one.long || len(body)+len(one.data) > w.c.cfg.frame {
			w.c.count(func(s *Stats) { s.Long++ })
			return fmt.Errorf("%w: more than %d bytes", ErrTooLong, w.c.cfg.frame)
		}
		if err := w.meter.take(len(one.data)); err != nil {
			w.meter.give(len(one.data))
			return err
		}
		body = append(body, one.data...)
	}
	if err := w.c.receive(body); err != nil {
		return fmt.Errorf("it answered with %w", err)
	}
	if w.c.waits(id) {
		return errors.New("it answered with something else")
	}
	return nil
}

// refused makes an error of a response with an error status. Some servers put an
// answer into it.
func (w *web) refused(res *http.Response, id int64) error {
	if res.StatusCode == http.StatusNotFound && res.Request.Header.Get("Mcp-Session-Id") != "" {
		return errForgotten
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, errorBody))
	if err := w.insufficient(res); err != nil {
		return err
	}
	if m, err := parse(body); err == nil && m.Error != nil {
		if got, ok := number(m.ID); ok && got == id {
			return m.Error
		}
		return fmt.Errorf("status %d: %w", res.StatusCode, m.Error)
	}
	return w.refusal(res)
}

func (w *web) refusal(res *http.Response) error {
	if err := w.insufficient(res); err != nil {
		return err
	}
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("it refuses the call with status %d (give what it wants as a header, such as Authorization, "+
			"or sign in with `drover mcp login %s`)", code, w.c.name)
	case code >= 300 && code <= 399:
		return fmt.Errorf("it has moved to %.200q (use that address)", res.Header.Get("Location"))
	case code == http.StatusAccepted || code == http.StatusNoContent:
		return fmt.Errorf("status %d, without an answer", code)
	default:
		return fmt.Errorf("status %d", code)
	}
}

// insufficient returns an error with the scopes that a refused call lacks (RFC 6750, section 3.1), or
// nil. It leaves out scopes with characters that a shell would interpret.
func (w *web) insufficient(res *http.Response) error {
	if res.StatusCode != http.StatusForbidden {
		return nil
	}
	all, err := oauthex.ParseWWWAuthenticate(res.Header.Values("WWW-Authenticate"))
	if err != nil {
		return nil //nolint:nilerr // it says nothing that is understood
	}
	odd := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(":/._-", r)
	}
	for _, c := range all {
		scopes := strings.Fields(c.Params["scope"])
		names := strings.Join(scopes, "")
		if c.Scheme != "bearer" || c.Params["error"] != "insufficient_scope" || names == "" || len(names) > 500 ||
			strings.ContainsFunc(names, odd) {
			continue
		}
		return fmt.Errorf("it refuses the call for want of the scope %s (sign in again with `drover mcp login --scope %s %s`)",
			strings.Join(scopes, ", "), strings.Join(scopes, " --scope "), w.c.name)
	}
	return nil
}

// streamed reads a stream of events until the answer has come. It resumes a broken
// stream after the newest event with an ID.
func (w *web) streamed(ctx context.Context, res *http.Response, id int64) error {
	last, wait := "", takeUpWait
	for tries := 0; ; {
		e := newEvents(res.Body, w.c.cfg.frame, &w.meter)
		came, err := w.hear(e, func() bool { return !w.c.waits(id) })
		_ = res.Body.Close()
		if err == nil {
			return nil
		}
		if came {
			tries, wait = 0, takeUpWait
		}
		if e.last != "" {
			last = e.last
		}
		if !broken(err) || last == "" || tries >= takeUps || ctx.Err() != nil {
			return fmt.Errorf("its stream ended without the answer: %w", err)
		}
		if res, err = w.takeUp(ctx, last, pauseOf(e.retry, wait)); err != nil {
			return err
		}
		tries, wait = tries+1, 2*wait
	}
}

func pauseOf(asked, own time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return own
}

// hear reads events until done says so, or the stream ends. It reports whether
// any came.
func (w *web) hear(e *events, done func() bool) (came bool, err error) {
	for {
		data, err := e.next()
		if errors.Is(err, ErrTooLong) {
			w.c.count(func(s *Stats) { s.Long++ })
		}
		if err != nil {
			e.lines.done()
			return came, err
		}
		came = true
		_ = w.c.receive(data) // it counts invalid messages
		if done() {
			e.lines.done()
			return came, nil
		}
	}
}

// takeUp opens a stream, after a pause: after the event of a broken one, or, without
// an ID, for messages that the server sends by itself.
func (w *web) takeUp(ctx context.Context, after string, pause time.Duration) (*http.Response, error) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var more map[string]string
	if after != "" {
		more = map[string]string{"Last-Event-ID": after}
	}
	res, err := w.do(ctx, http.MethodGet, nil, more)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		defer w.drop(res)
		return nil, w.refused(res, 0)
	}
	return res, nil
}

// run implements [wire]: it receives messages that the server sends by itself, if the
// server has a stream for them.
func (w *web) run(ctx context.Context) error {
	select {
	case <-w.ready:
		if !w.c.Stateless() { // else [Conn.overhear] does
			w.overhear(ctx)
		}
	case <-ctx.Done():
	}
	<-ctx.Done()
	w.leave()
	w.client.CloseIdleConnections()
	return context.Cause(ctx)
}

func (w *web) overhear(ctx context.Context) {
	begun := sync.OnceFunc(func() { close(w.hears) })
	last, wait := "", time.Duration(0)
	for tries := 0; tries <= takeUps; tries++ {
		res, err := w.takeUp(ctx, last, wait)
		begun()
		if errors.Is(err, errForgotten) {
			w.c.end(err)
		}
		if res == nil && (ctx.Err() != nil || tries == 0) {
			return // the server has no such stream
		}
		wait = max(takeUpWait, 2*wait)
		if err != nil {
			continue
		}
		e := newEvents(res.Body, w.c.cfg.frame, &w.meter)
		came, _ := w.hear(e, func() bool { return false })
		_ = res.Body.Close()
		if came {
			tries, wait = 0, takeUpWait
		}
		if e.last != "" {
			last = e.last
		}
		wait = pauseOf(e.retry, wait)
	}
}

// leave tells the server that the session is over, and ignores failures.
func (w *web) leave() {
	w.mu.Lock()
	session := w.session
	w.mu.Unlock()
	if session == "" {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), goodbye)
	defer done()
	if res, err := w.do(ctx, http.MethodDelete, nil, nil); err == nil {
		w.drop(res)
	}
}

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
	return l.begin(r, func(ctx context.Context) error { return l.send(ctx, r.frame) })
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
