package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// ErrGone is wrapped by errors of a server that has ended, or was ended. [Lease.Conn]
// makes another connection.
var ErrGone = errors.New("the server has gone")

// ErrTooLong is wrapped by errors of answers that are longer than a frame may be.
var ErrTooLong = errors.New("the answer is too long")

// ErrNoAnswer is wrapped by errors of calls that have timed out.
var ErrNoAnswer = errors.New("no answer in time")

// ErrNotMine is returned by a function of [Conn.Serve] that leaves a request to
// another.
var ErrNotMine = errors.New("not mine")

// The error codes of JSON-RPC that are used here.
const (
	CodeNoMethod  = -32601
	CodeBadParams = -32602
	CodeInternal  = -32603

	codeRejected = -1 // of sampling that the user did not want
)

// RPCError is an error answer, from a server or to it.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Progress is the latest progress of a call that a server has reported.
type Progress struct {
	Done    float64 // so far
	Total   float64 // 0: not known
	Message string
}

// CallOptions configures one call. [Conn.Call] uses the zero value.
type CallOptions struct {
	// NoCancel lets the server work on when ctx ends.
	NoCancel bool
	// Progress is called by the goroutine of the call, at most once in Every; reports in
	// between are merged. nil: the call asks for no progress.
	Progress func(Progress)
	// Every is the least time between two calls of Progress; 0: a tenth of a second.
	Every time.Duration
	// Token is the progress token, for callers that need it after the call; [Conn.Listen]
	// gets later progress. Empty: the call makes one.
	Token string
	// Timeout bounds the wait for an answer; 0: the timeout of the server; below 0: none.
	Timeout time.Duration
	// Tasks lets the server answer with a task; see [MadeTask]. It affects servers with
	// [Conn.ExtendsTasks] only.
	Tasks bool
	// Answer answers questions that come in the answer to this call, before the functions
	// of [Conn.Serve], which serve all calls. nil: only they answer.
	Answer Answerer
}

// Answerer answers a request of a server, or returns [ErrNotMine].
type Answerer func(ctx context.Context, method string, params json.RawMessage) (any, error)

// Conn is one live connection to a server, shared by all its users. Its methods
// may be called by several goroutines.
type Conn struct {
	name string
	cfg  limits
	wire wire

	roots   []string // folders that the server may list
	samples bool     // models can be asked

	life context.Context // ends when the server goes, or is to go; the cause says why
	end  context.CancelCauseFunc

	bounds process.Bounds // nil: it has none; set before the Conn is shared

	revision     string          // as are the next two, set before the Conn is shared
	capabilities json.RawMessage // the server's
	about        string          // name and version, as the server has it
	meta         map[string]any  // describes this client in each request; nil: requests do not
	relist       chan struct{}   // wakes the goroutine that reads the tools again

	hearing sync.Mutex // held while listeners are called: notifications stay in order

	mu       sync.Mutex // guards the fields below
	last     int64      // ID of the newest request; IDs are never used twice
	waiting  map[int64]*call
	hear     map[string][]*listener
	serve    map[string][]*server
	incoming map[string]context.CancelFunc // requests of the server that are at work
	replies  [][]byte                      // short answers, the first of which is being sent
	watched  map[string]context.CancelFunc // resources with a subscription; see [Conn.Subscribe]
	tools    []Tool
	stats    Stats
	over     bool           // no goroutine may begin
	work     sync.WaitGroup // one per goroutine of the connection; run waits
}

// Stats counts the dropped input of one connection.
type Stats struct {
	Junk    int // lines that were not messages
	Unknown int // answers without a request
	Late    int // answers to calls that are over, and second answers
	Batches int // arrays of messages, which the revision does not know
	Long    int // frames above the limit
	Refused int // requests of the server beyond those at work
	Unsaid  int // short answers that were dropped, since too many waited
}

// limits bounds one connection; every field is above 0.
type limits struct {
	initialize, list, call time.Duration
	frame                  int // bytes of one message
	budget                 int // bytes of all that is being read at the same time
}

// wire carries frames. Its methods may be called by several goroutines.
type wire interface {
	// request sends a request. Its answer goes to receive, as all messages do; or failed
	// is called with its ID. stop frees the resources that wait for the answer.
	request(r request) (stop func(), err error)
	// send sends a notification or an answer.
	send(ctx context.Context, frame []byte) error
	// agreed sets the revision, once. hears is closed when requests and notifications of
	// the server can arrive, or never will; nil: they can already.
	agreed(revision string) (hears <-chan struct{})
	// run ends when ctx does, or when the server goes. It returns, with the reason,
	// when no process and no goroutine is left.
	run(ctx context.Context) error
	// said returns the server's latest output for people; empty: none.
	said() string
}

// request is a request to the server.
type request struct {
	id     int64
	method string
	params json.RawMessage
	frame  []byte // all of it
	alone  bool   // it is of a revision without sessions
}

// call is a request that waits for its answer.
type call struct {
	token  string
	answer chan answer   // takes one
	more   chan struct{} // takes one; there is progress
	latest Progress      // guarded by Conn.mu
}

type answer struct {
	result json.RawMessage
	err    error
}

type listener struct{ f func(json.RawMessage) }

type server struct {
	f func(context.Context, json.RawMessage) (any, error)
}

// Name returns the name of the server in the configuration of its first user.
func (c *Conn) Name() string { return c.name }

// Revision returns the revision of the protocol, such as 2025-11-25.
func (c *Conn) Revision() string { return c.revision }

// Capabilities returns the capabilities of the server as it has sent them.
func (c *Conn) Capabilities() json.RawMessage { return c.capabilities }

// About returns the name and version that the server gives itself.
func (c *Conn) About() string { return c.about }

// Gone is closed when the server goes, or begins to be ended.
func (c *Conn) Gone() <-chan struct{} { return c.life.Done() }

// Said returns the end of the server's output on stderr, and of its lines on stdout that
// were not messages: at most 64 KB.
func (c *Conn) Said() string { return c.wire.said() }

// Refused returns the reasons for which the sandbox has refused connections of the server so far.
func (c *Conn) Refused() []string {
	if c.bounds == nil {
		return nil
	}
	return c.bounds.Refused()
}

// Stats returns the current counters.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Tools returns the latest list of tools from the server. The caller must not change
// it.
func (c *Conn) Tools() []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools
}

// Call sends a request and waits for its answer: an error is an [*RPCError], or
// wraps [ErrGone], [ErrNoAnswer] or [ErrTooLong], or is the cause of ctx. When
// ctx ends, the server gets a cancellation (except for tasks/*, which have a request
// of their own for it), and the call returns at once; a later answer is dropped.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return c.CallOpt(ctx, method, params, CallOptions{})
}

// CallOpt is [Conn.Call] with options.
func (c *Conn) CallOpt(ctx context.Context, method string, params any, o CallOptions) (json.RawMessage, error) {
	if c.Stateless() && (method == "tools/call" || method == "prompts/get" || method == "resources/read") {
		return c.rounds(ctx, method, params, o)
	}
	return c.exchange(ctx, method, params, o, c.metaFor(method, o))
}

// exchange makes one request and waits for its answer. meta describes this client.
func (c *Conn) exchange(ctx context.Context, method string, params any, o CallOptions,
	meta map[string]any) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	id, p := c.open(o.Token)
	defer c.close(id)
	token := ""
	if o.Progress != nil || o.Token != "" {
		token = p.token
	}
	raw, frame, err := encodeRequest(id, method, params, token, meta)
	if err != nil {
		return nil, fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	if c.life.Err() != nil {
		return nil, c.goneError()
	}
	stop, err := c.wire.request(request{id, method, raw, frame, meta != nil})
	if errors.Is(err, ErrGone) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	defer stop()
	res, err := c.await(ctx, p, o)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrNoAnswer)) && !o.NoCancel && c.cancels(method) {
		c.close(id) // before the cancellation is sent: an answer after it counts as late
		c.cancelled(id, err)
	}
	_, plain := err.(*RPCError) //nolint:errorlint // one in another has its own words
	if err != nil && ctx.Err() == nil && !plain && !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	return res, err
}

// progressEvery is the default for the shortest time between two reports of progress.
const progressEvery = 100 * time.Millisecond

func (c *Conn) await(ctx context.Context, p *call, o CallOptions) (json.RawMessage, error) {
	limit := o.Timeout
	if limit == 0 {
		limit = c.cfg.call
	}
	var late <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		late = t.C
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	var more <-chan struct{} // nil until the pause is over
	ready := pause.C
	if o.Progress == nil {
		ready = nil
	}
	for {
		select {
		case <-ready:
			more = p.more
		case <-more:
			o.Progress(c.progress(p))
			more = nil
			pause.Reset(cmp.Or(o.Every, progressEvery))
		case a := <-p.answer:
			return a.result, a.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
			return nil, fmt.Errorf("%w: none within %v", ErrNoAnswer, limit)
		case <-c.life.Done():
			select {
			case a := <-p.answer: // it came before the end
				return a.result, a.err
			default:
				return nil, c.goneError()
			}
		}
	}
}

func (c *Conn) progress(p *call) Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.latest
}

// open makes a call with an ID that was never used on this connection.
func (c *Conn) open(token string) (int64, *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	if token == "" {
		token = fmt.Sprint("p", c.last)
	}
	p := &call{token: token, answer: make(chan answer, 1), more: make(chan struct{}, 1)}
	c.waiting[c.last] = p
	return c.last, p
}

func (c *Conn) close(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Conn) goneError() error {
	return fmt.Errorf("MCP server %s: %w: %w", c.name, ErrGone, context.Cause(c.life))
}

// sendLimit bounds the time to send a notification or an answer.
const sendLimit = 10 * time.Second

// cancels reports whether the server gets a notification when a call is given up.
// Over HTTP without sessions the end of the stream tells it.
func (c *Conn) cancels(method string) bool {
	_, overHTTP := c.wire.(*web)
	return method != "initialize" && method != "server/discover" && !strings.HasPrefix(method, "tasks/") &&
		!(overHTTP && c.Stateless())
}

// cancelled tells the server that a call was given up. It does not wait for the
// notification to be sent.
func (c *Conn) cancelled(id int64, why error) {
	params := map[string]any{"requestId": id, "reason": why.Error()}
	c.spawn(
		func() { _ = c.Notify(c.life, "notifications/cancelled", params) },
	) // a server that cannot be reached is about to go
}

// Notify sends a notification.
func (c *Conn) Notify(ctx context.Context, method string, params any) error {
	frame, err := encodeNotification(method, params)
	if err != nil {
		return fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	ctx, done := context.WithTimeoutCause(ctx, sendLimit, ErrNoAnswer)
	defer done()
	err = c.wire.send(ctx, frame)
	if err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	return err
}

// spawn starts a goroutine that the end of the connection waits for. It returns
// false when the connection is over.
func (c *Conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.work.Go(f)
	return true
}

// Listen calls f for each notification of a method, in the order in which they
// come and by one goroutine at a time, until stop is called. f must return at
// once and may not call the connection: nothing is read from the server
// meanwhile. stop does not wait for a call of f.
func (c *Conn) Listen(method string, f func(params json.RawMessage)) (stop func()) {
	return register(c, c.hear, method, &listener{f})
}

// Serve answers the server's requests of a method, until stop is called. Each
// call of f has a goroutine of its own, and a ctx that ends when the server
// cancels the request or exits. Of several functions the newest is called
// first; [ErrNotMine] passes the request to the next one. An
// [*RPCError] is answered as it is.
func (c *Conn) Serve(method string, f func(ctx context.Context, params json.RawMessage) (any, error)) (stop func()) {
	return register(c, c.serve, method, &server{f})
}

// register adds a function for a method, until stop is called. Loops over an earlier list are not
// disturbed.
func register[T comparable](c *Conn, to map[string][]T, method string, one T) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to[method] = append(to[method], one)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		to[method] = slices.DeleteFunc(slices.Clone(to[method]), func(x T) bool { return x == one })
	}
}
