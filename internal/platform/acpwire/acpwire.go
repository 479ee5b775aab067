// Package acpwire is one connection of the Agent Client Protocol (ACP, version 1): JSON-RPC 2.0, one message
// per line, with requests in both directions. Agents and clients use the same connection.
//
// A [Conn] owns the reader, the writer and the IDs of requests. It promises that requests and notifications
// begin in the order of arrival, that every request is answered once, that the messages before an answer are
// handled before the answer, that lines, requests and queues are bounded, and that nothing runs after
// [Conn.Serve] and [Conn.Close] have returned, except a read or a write that the operating system does not
// let a program cancel. It knows no method except $/cancel_request. The types of the protocol come from
// github.com/coder/acp-go-sdk. The connection of that module is not used: it ends at a message of 10 MiB,
// does not answer unreadable messages, and lets a session/cancel overtake its session/prompt.
package acpwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/lines"
)

// methodCancel withdraws a request, in both directions.
const methodCancel = "$/cancel_request"

// ErrClosed is the error of a request that was open when the connection ended, and the cause of the contexts
// of the peer's requests then.
var ErrClosed = errors.New("the connection is closed")

// ErrWithdrawn is the cause of the context of a request that the peer has withdrawn by $/cancel_request.
var ErrWithdrawn = errors.New("the request was withdrawn")

// Work is the rest of a request after its begin. It runs concurrently with other requests. Its context ends
// with the request and with the connection.
type Work func(ctx context.Context) (any, error)

// Then is a result of [Work] with a function that runs when the answer is queued.
type Then struct {
	Result any
	Do     func()
}

// Fault is a line that is not a message of JSON-RPC, or too long.
type Fault struct {
	Line []byte // of a long line only the beginning
	Size int    // of the line in bytes
	Long bool
	Err  *acp.RequestError
}

// Options are required, except Warn.
type Options struct {
	MaxLine     int // bytes of a message
	MaxRequests int // requests of the peer at once
	// Begin begins a request or a notification. It is called in the order of arrival and must not wait for
	// later messages. A nil Work with a nil error answers an empty result. The work of a notification runs at
	// once.
	Begin func(method string, params json.RawMessage) (Work, error)
	// Fault is called with each faulty line, and reports whether to answer it.
	Fault func(Fault) (refuse bool)
	// Warn reports mistakes of the peer.
	Warn func(format string, args ...any)
}

// Conn is a connection. Its methods may be called by several goroutines.
type Conn struct {
	o     Options
	out   *outbox
	lines chan message  // closed at the end of the input
	ended error         // why the input has ended; set before lines is closed
	done  chan struct{} // closed by Serve

	mu      sync.Mutex
	next    int64
	waiting map[string]chan message            // our requests, by ID
	open    map[string]context.CancelCauseFunc // requests of the peer, by ID
	working sync.WaitGroup                     // one for each request of the peer
}

// message is a line of the peer.
type message struct {
	ID     json.RawMessage   `json:"id"`
	Method *string           `json:"method"`
	Params json.RawMessage   `json:"params"`
	Result json.RawMessage   `json:"result"`
	Error  *acp.RequestError `json:"error"`

	fault *Fault // set: the other fields are those that could be read
}

// New starts to read and to write. [Conn.Serve] must be called, and [Conn.Close] after it. A read cannot be
// cancelled, so the reading goroutine ends with the input.
func New(in io.Reader, out io.Writer, o Options) *Conn {
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	c := &Conn{o: o, out: newOutbox(out), lines: make(chan message), done: make(chan struct{}),
		waiting: map[string]chan message{}, open: map[string]context.CancelCauseFunc{}}
	go c.read(in) // ends with in, at the latest with the process
	return c
}

func (c *Conn) read(in io.Reader) {
	defer close(c.lines)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, size, err := lines.Read(r, c.o.MaxLine)
		if m, ok := c.parse(bytes.TrimSpace(line), size); ok {
			select {
			case c.lines <- m:
			case <-c.done:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.ended = fmt.Errorf("read: %w", err)
			}
			return
		}
	}
}

// parse reads a line. ok is false for an empty one.
func (c *Conn) parse(text []byte, size int) (m message, ok bool) {
	if len(text) == 0 {
		return m, false
	}
	faulty := func(id json.RawMessage, kind func(any) *acp.RequestError, format string, args ...any) (message, bool) {
		return message{ID: id, fault: &Fault{Line: text, Size: size, Long: size > c.o.MaxLine,
			Err: Refuse(kind, format, args...)}}, true
	}
	if size > c.o.MaxLine {
		return faulty(idOf(text), acp.NewInvalidRequest, "the message is longer than %d MiB and was not read",
			c.o.MaxLine>>20)
	}
	err := json.Unmarshal(text, &m)
	switch {
	case err != nil && !json.Valid(text):
		return faulty(nil, acp.NewParseError, "the line is not JSON: %s", excerpt.Line(err.Error(), 200))
	case err != nil:
		return faulty(idOf(text), acp.NewInvalidRequest, "the line is not a message of JSON-RPC: %s",
			excerpt.Line(err.Error(), 200))
	case text[0] != '{':
		return faulty(nil, acp.NewInvalidRequest, "the line is not a JSON object")
	case m.ID != nil && !isID(m.ID):
		return faulty(nil, acp.NewInvalidRequest, "the id is neither a string nor a number")
	case m.Method == nil && m.ID == nil:
		return faulty(nil, acp.NewInvalidRequest, "the message has neither method nor id")
	}
	return m, true
}

// isID reports whether a value is an ID of JSON-RPC.
func isID(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	switch v.(type) {
	case string, float64, nil:
		return true
	}
	return false
}

// idOf is the ID in the beginning of a message, or nil.
func idOf(text []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		if key == "id" && isID(value) {
			return value
		}
	}
	return nil
}

// Refuse returns an error of JSON-RPC with a text for people.
func Refuse(kind func(data any) *acp.RequestError, format string, args ...any) *acp.RequestError {
	e := kind(nil)
	e.Message = fmt.Sprintf(format, args...)
	return e
}

// Serve handles the messages of the peer until the input ends, ctx ends, or a write fails. Then it cancels
// the open requests and waits for their work. It is called once. The end of the input is not an error.
func (c *Conn) Serve(ctx context.Context) error {
	work, cancel := context.WithCancelCause(ctx)
	err := c.handle(work)
	close(c.done)
	c.out.expire()
	cancel(ErrClosed)
	c.working.Wait()
	return err
}

// Done is closed when Serve handles no more messages.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close writes the queued messages, for at most 2 s after the end of the input. Serve must have returned.
func (c *Conn) Close() { c.out.close() }

func (c *Conn) handle(ctx context.Context) error {
	for ctx.Err() == nil { // handling a message may end ctx, and then no later message counts
		select {
		case m, more := <-c.lines:
			if !more {
				return c.ended
			}
			c.take(ctx, m)
		case <-c.out.broken:
			return c.out.err
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func (c *Conn) take(ctx context.Context, m message) {
	switch {
	case m.fault != nil:
		if c.o.Fault(*m.fault) {
			c.reply(m.ID, nil, m.fault.Err)
		}
	case m.Method == nil:
		c.answered(m)
	case *m.Method == methodCancel:
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p) // unreadable parameters name no request
		c.mu.Lock()
		cancel := c.open[string(p.ID)]
		c.mu.Unlock()
		if cancel != nil {
			cancel(ErrWithdrawn)
		}
	default:
		c.begin(ctx, m)
	}
}

// answered gives an answer to the caller of Ask. The answer to a request that was withdrawn may be late.
func (c *Conn) answered(m message) {
	c.mu.Lock()
	asked := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	n, err := strconv.ParseInt(string(m.ID), 10, 64)
	known := err == nil && 0 < n && n <= c.next
	c.mu.Unlock()
	if asked != nil {
		asked <- m
	} else if !known {
		c.o.Warn("ignored an answer: no request has the id %s", excerpt.Line(string(m.ID), 80))
	}
}

// begin begins a request or a notification.
func (c *Conn) begin(ctx context.Context, m message) {
	id := string(m.ID)
	c.mu.Lock()
	_, twice := c.open[id]
	full := len(c.open) >= c.o.MaxRequests
	c.mu.Unlock()
	switch {
	case m.ID != nil && twice:
		c.reply(m.ID, nil, Refuse(acp.NewInvalidRequest, "a request with this id is open"))
		return
	case m.ID != nil && full:
		c.reply(m.ID, nil, Refuse(acp.NewInternalError, "%d requests are open (wait for answers)", c.o.MaxRequests))
		return
	}
	work, err := c.o.Begin(*m.Method, m.Params)
	if m.ID == nil {
		if err == nil && work != nil {
			_, err = work(ctx)
		}
		if err != nil {
			c.o.Warn("notification %s: %v", excerpt.Line(*m.Method, 80), errorOf(err).Message)
		}
		return
	}
	if err != nil || work == nil {
		c.reply(m.ID, nil, err)
		return
	}
	one, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	c.open[id] = cancel
	c.mu.Unlock()
	c.working.Go(func() {
		result, err := work(one)
		c.mu.Lock()
		delete(c.open, id)
		c.mu.Unlock()
		cancel(nil)
		then, _ := result.(Then)
		if then.Do != nil {
			result = then.Result
		}
		c.reply(m.ID, result, err)
		if then.Do != nil && err == nil {
			then.Do()
		}
	})
}

// errorOf is an error as the peer gets it.
func errorOf(err error) *acp.RequestError {
	var e *acp.RequestError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrWithdrawn):
		return Refuse(acp.NewRequestCancelled, "%v", err)
	}
	return Refuse(acp.NewInternalError, "%v", err)
}

// answer is a response to the peer.
type answer struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Result  any               `json:"result,omitempty"`
	Error   *acp.RequestError `json:"error,omitempty"`
}

// call is a request or a notification to the peer.
type call struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  any             `json:"params,omitempty"`
}

// reply answers a request.
func (c *Conn) reply(id json.RawMessage, result any, err error) {
	a := answer{JSONRPC: "2.0", ID: id, Result: result}
	if id == nil {
		a.ID = json.RawMessage("null")
	}
	if err != nil {
		a.Result, a.Error = nil, errorOf(err)
	} else if result == nil {
		a.Result = struct{}{}
	}
	if err := c.send(a); err != nil && !errors.Is(err, ErrClosed) {
		c.o.Warn("answer a request: %v", err)
	}
}

// send queues a message.
func (c *Conn) send(v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	return c.out.put(buf.Bytes())
}

// Notify sends a notification. It blocks while the peer does not read.
func (c *Conn) Notify(method string, params any) {
	err := c.send(call{JSONRPC: "2.0", Method: method, Params: params})
	if err != nil && !errors.Is(err, ErrClosed) {
		c.o.Warn("%s: %v", method, err)
	}
}

// AnswerError is an error that the peer has answered a request with.
type AnswerError struct {
	Method string
	*acp.RequestError
}

func (e *AnswerError) Error() string {
	text := e.Message
	if more, err := json.Marshal(e.Data); e.Data != nil && err == nil && string(more) != "{}" {
		text += " " + string(more[:min(len(more), 300)])
	}
	return fmt.Sprintf("%s was refused: %.500s (code %d)", e.Method, strings.Join(strings.Fields(text), " "), e.Code)
}

// Ask sends a request and waits for its answer, which it decodes into result unless that is nil. When ctx
// ends first, Ask withdraws the request and returns the cause.
func (c *Conn) Ask(ctx context.Context, method string, params, result any) error {
	got := make(chan message, 1)
	c.mu.Lock()
	c.next++
	id := strconv.FormatInt(c.next, 10)
	c.waiting[id] = got
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.send(call{JSONRPC: "2.0", ID: json.RawMessage(id), Method: method, Params: params}); err != nil {
		return err
	}
	var m message
	select {
	case m = <-got:
	case <-c.done:
		select {
		case m = <-got: // it came before the end
		default:
			return fmt.Errorf("%s: %w", method, ErrClosed)
		}
	case <-ctx.Done():
		c.Notify(methodCancel, map[string]any{"requestId": json.RawMessage(id)})
		return context.Cause(ctx)
	}
	if m.Error != nil {
		return &AnswerError{method, m.Error}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("%s: read the answer: %w", method, err)
	}
	return nil
}
