package acpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds of a connection.
const (
	maxLine   = 64 << 20 // bytes of a message; a longer one is refused
	maxOpen   = 256      // requests of the client under way
	maxQueued = 256      // messages to the client that are not written
	lastWrite = 2 * time.Second
)

// errGone is why a request to the client has no answer when the client has left.
var errGone = errors.New("the client has closed stdin")

// errWithdrawn is the cause of a request that the client has withdrawn by $/cancel_request.
var errWithdrawn = errors.New("the client has withdrawn the request")

// work is what is left of a request when it has begun. It runs beside other requests.
type work func(ctx context.Context) (any, error)

// begin begins a request of the client. It is called in the order in which requests arrive,
// and must not wait for anything.
type begin func(method string, params json.RawMessage) (work, error)

// conn is a JSON-RPC connection with the client, one message a line. Its methods may be
// called by several goroutines.
type conn struct {
	out   *outbox
	warn  func(format string, args ...any)
	lines chan message  // closed at the end of stdin
	done  chan struct{} // closed by serve: nobody reads lines any more
	gone  chan struct{} // closed when the client has left

	mu      sync.Mutex
	next    int64
	waiting map[string]chan message            // requests to the client, by ID
	open    map[string]context.CancelCauseFunc // requests of the client, by ID
	working sync.WaitGroup                     // the goroutines of requests
}

// message is a line of the client. With fault it is none of JSON-RPC.
type message struct {
	ID     json.RawMessage   `json:"id"`
	Method *string           `json:"method"`
	Params json.RawMessage   `json:"params"`
	Result json.RawMessage   `json:"result"`
	Error  *acp.RequestError `json:"error"`

	fault *acp.RequestError
}

// answer is a response to the client.
type answer struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Result  any               `json:"result,omitempty"`
	Error   *acp.RequestError `json:"error,omitempty"`
}

// call is a request or a notification to the client.
type call struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  any             `json:"params,omitempty"`
}

// newConn begins to read. The goroutine that reads ends with stdin: a read cannot be ended.
func newConn(in io.Reader, out io.Writer, warn func(string, ...any)) *conn {
	c := &conn{
		out: newOutbox(out), warn: warn, lines: make(chan message), done: make(chan struct{}), gone: make(chan struct{}),
		waiting: map[string]chan message{}, open: map[string]context.CancelCauseFunc{},
	}
	go c.read(in)
	return c
}

// read hands on the messages of the client, until the end of stdin or of the connection.
func (c *conn) read(in io.Reader) {
	defer close(c.lines)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		text, err := readLine(r, maxLine)
		m, ok := message{}, true
		switch {
		case errors.Is(err, errLong):
			m.ID = idOf(text)
			m.fault = refuse(acp.NewInvalidRequest,
				fmt.Sprintf("the message is longer than %d MiB and was not read", maxLine>>20))
			err = nil
		default:
			m, ok = parse(text)
		}
		if ok {
			select {
			case c.lines <- m:
			case <-c.done:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.warn("read stdin: %v", err)
			}
			return
		}
	}
}

// errLong means that a line was read to its end and only its beginning was kept.
var errLong = errors.New("line too long")

// idPrefix is how much of a line that is too long is kept, to find its ID.
const idPrefix = 4 << 10

// readLine reads one line, or returns the beginning of one of more than most bytes.
func readLine(r *bufio.Reader, most int) (text []byte, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if len(text)+len(piece) > most {
			head := bytes.Clone(append(text[:min(len(text), idPrefix)], piece[:min(len(piece), idPrefix)]...))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
			return head, errLong
		}
		text = append(text, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

// parse reads a line. ok is false for one that holds nothing.
func parse(text []byte) (m message, ok bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return m, false
	}
	if err := json.Unmarshal(text, &m); err != nil {
		if !json.Valid(text) {
			return message{fault: refuse(acp.NewParseError, "the line is no JSON: "+excerpt.Line(err.Error(), 200))}, true
		}
		return message{ID: idOf(text), fault: refuse(acp.NewInvalidRequest, "the line is no message of JSON-RPC: "+
			excerpt.Line(err.Error(), 200))}, true
	}
	switch {
	case text[0] != '{':
		m = message{fault: refuse(acp.NewInvalidRequest, "the line is no JSON object")}
	case m.ID != nil && !isID(m.ID):
		m = message{fault: refuse(acp.NewInvalidRequest, "the id is neither a text nor a number")}
	case m.Method == nil && m.ID == nil:
		m.fault = refuse(acp.NewInvalidRequest, "the message has neither method nor id")
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

// refuse makes an error of JSON-RPC with a text that a person can read.
func refuse(kind func(any) *acp.RequestError, text string) *acp.RequestError {
	e := kind(nil)
	e.Message = text
	return e
}

// serve handles the messages of the client until it closes stdin, ctx ends, or nobody reads
// stdout. Then requests are cancelled, and waited for. The error is nil if the client left.
func (c *conn) serve(ctx context.Context, begin begin) error {
	work, cancel := context.WithCancelCause(ctx)
	err := c.handle(work, begin)
	close(c.done)
	close(c.gone)
	c.out.hurry(lastWrite)
	cancel(errGone)
	c.working.Wait()
	return err
}

func (c *conn) handle(ctx context.Context, begin begin) error {
	for {
		select {
		case m, more := <-c.lines:
			if !more {
				return nil
			}
			c.take(ctx, m, begin)
		case <-c.out.broken:
			return c.out.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take handles one message.
func (c *conn) take(ctx context.Context, m message, begin begin) {
	switch {
	case m.fault != nil:
		c.warn("a message of the client was refused: %s", m.fault.Message)
		c.reply(m.ID, nil, m.fault)
	case m.Method == nil:
		c.mu.Lock()
		asked := c.waiting[string(m.ID)]
		delete(c.waiting, string(m.ID))
		n, err := strconv.ParseInt(string(m.ID), 10, 64)
		known := err == nil && 0 < n && n <= c.next // it was withdrawn meanwhile
		c.mu.Unlock()
		if asked == nil {
			if known {
				return
			}
			c.warn("an answer of the client was passed over: no request has the id %s", excerpt.Line(string(m.ID), 80))
			return
		}
		asked <- m
	case *m.Method == "$/cancel_request":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p) // an odd one names no request
		c.mu.Lock()
		cancel := c.open[string(p.ID)]
		c.mu.Unlock()
		if cancel != nil {
			cancel(errWithdrawn)
		}
	default:
		c.begin(ctx, m, begin)
	}
}

// begin begins a request or a notification.
func (c *conn) begin(ctx context.Context, m message, begin begin) {
	id := string(m.ID)
	c.mu.Lock()
	_, twice := c.open[id]
	full := len(c.open) >= maxOpen
	c.mu.Unlock()
	switch {
	case m.ID != nil && twice:
		c.reply(m.ID, nil, refuse(acp.NewInvalidRequest, "a request with this id is under way"))
		return
	case m.ID != nil && full:
		c.reply(m.ID, nil, refuse(acp.NewInternalError, fmt.Sprintf("%d requests are under way (wait for answers)", maxOpen)))
		return
	}
	do, err := begin(*m.Method, m.Params)
	if m.ID == nil {
		if err == nil && do != nil {
			_, err = do(ctx)
		}
		if err != nil {
			c.warn("notification %s: %v", excerpt.Line(*m.Method, 80), describe(err).Message)
		}
		return
	}
	if err != nil {
		c.reply(m.ID, nil, err)
		return
	}
	one, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	c.open[id] = cancel
	c.mu.Unlock()
	c.working.Go(func() {
		result, err := do(one)
		c.mu.Lock()
		delete(c.open, id)
		c.mu.Unlock()
		cancel(nil)
		var then *followed
		if f, ok := result.(followed); ok {
			then, result = &f, f.result
		}
		c.reply(m.ID, result, err)
		if then != nil && err == nil {
			then.then()
		}
	})
}

// followed is a result, and what is done once it is sent.
type followed struct {
	result any
	then   func()
}

// reply answers a request.
func (c *conn) reply(id json.RawMessage, result any, err error) {
	a := answer{JSONRPC: "2.0", ID: id, Result: result}
	if id == nil {
		a.ID = json.RawMessage("null")
	}
	if err != nil {
		a.Result, a.Error = nil, describe(err)
	} else if result == nil {
		a.Result = struct{}{}
	}
	if err := c.send(a); err != nil && !errors.Is(err, errGone) {
		c.warn("answer the client: %v", err)
	}
}

// send queues a message.
func (c *conn) send(v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode a message for the client: %w", err)
	}
	return c.out.put(buf.Bytes())
}

// notify sends a notification.
func (c *conn) notify(method string, params any) {
	if err := c.send(call{JSONRPC: "2.0", Method: method, Params: params}); err != nil && !errors.Is(err, errGone) {
		c.warn("%s: %v", method, err)
	}
}

// ask sends a request and waits for its answer, which is decoded into result. When ctx ends
// first the client is told that nobody waits any more.
func (c *conn) ask(ctx context.Context, method string, params, result any) error {
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
	select {
	case m := <-got:
		if m.Error != nil {
			return fmt.Errorf("%s: the client answered: %s (code %d)", method, excerpt.Line(m.Error.Message, 500), m.Error.Code)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			return fmt.Errorf("%s: read the answer of the client: %w", method, err)
		}
		return nil
	case <-c.gone:
		return fmt.Errorf("%s: %w", method, errGone)
	case <-ctx.Done():
		c.notify("$/cancel_request", map[string]any{"requestId": json.RawMessage(id)})
		return context.Cause(ctx)
	}
}

// close writes what is queued, as far as the client reads it in time.
func (c *conn) close() { c.out.close() }

// outbox writes messages to stdout in order. A client that does not read holds up who sends,
// until the connection is closed.
type outbox struct {
	queue  chan []byte
	ending chan struct{} // closed by close: what is queued is written, and nothing is queued any more
	late   chan struct{} // closed some time after hurry: nobody waits for a client that has left
	timer  *time.Timer   // closes late; nil: not set
	broken chan struct{} // closed when a write has failed
	done   chan struct{} // closed when the writer has ended
	err    error         // set before broken is closed
}

// newOutbox begins to write. The goroutine that writes ends with close, or with the write
// that is under way then: a write cannot be ended.
func newOutbox(w io.Writer) *outbox {
	o := &outbox{queue: make(chan []byte, maxQueued), ending: make(chan struct{}), late: make(chan struct{}),
		broken: make(chan struct{}), done: make(chan struct{})}
	go o.write(w)
	return o
}

func (o *outbox) write(w io.Writer) {
	defer close(o.done)
	for {
		select {
		case line := <-o.queue:
			if !o.line(w, line) {
				return
			}
		case <-o.ending:
			for {
				select {
				case line := <-o.queue:
					if !o.line(w, line) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

func (o *outbox) line(w io.Writer, line []byte) bool {
	if _, err := w.Write(line); err != nil {
		o.err = fmt.Errorf("write to the client: %w", err)
		close(o.broken)
		return false
	}
	return true
}

// put queues a message. It waits while the queue is full.
func (o *outbox) put(line []byte) error {
	select {
	case <-o.ending:
		return errGone
	default:
	}
	select {
	case o.queue <- line:
		return nil
	case <-o.ending:
		return errGone
	case <-o.late:
		return errGone
	case <-o.broken:
		return o.err
	}
}

// hurry bounds how long a client that has left may hold up who sends.
func (o *outbox) hurry(within time.Duration) {
	o.timer = time.AfterFunc(within, func() { close(o.late) })
}

// close ends the writer when it has written what is queued, or when it is late.
func (o *outbox) close() {
	close(o.ending)
	select {
	case <-o.done:
		o.timer.Stop()
	case <-o.late:
	}
}
