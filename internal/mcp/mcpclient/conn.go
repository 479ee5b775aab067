package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// ErrGone is wrapped by errors of a server that has ended, or was ended. The
// [Lease] gives another connection.
var ErrGone = errors.New("the server has gone")

// ErrTooLong is wrapped by errors of answers that are longer than a frame may be.
var ErrTooLong = errors.New("the answer is too long")

// ErrNoAnswer is wrapped by errors of calls whose time is over.
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

// RPCError is an error that a server has answered, or that it is answered.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Progress is what a server has told of a call last.
type Progress struct {
	Done    float64 // so far
	Total   float64 // 0: not known
	Message string
}

// CallOptions are the options of one call. [Conn.Call] uses the zero value.
type CallOptions struct {
	// NoCancel leaves the server at work when the caller goes away.
	NoCancel bool
	// Progress is called by the goroutine of the call, at most once in Every; what
	// comes in between is merged. nil: none is asked for.
	Progress func(Progress)
	// Every is the least time between two calls of Progress; 0: a tenth of a second.
	Every time.Duration
	// Token is the progress token, if it is to be known beyond the call; what
	// comes for it later is heard by [Conn.Listen]. Empty: one is made.
	Token string
	// Timeout is for the answer to a request; 0: the server's; below 0: none.
	Timeout time.Duration
	// Tasks lets the server answer with a task; see [MadeTask]. It counts with servers
	// that have [Conn.ExtendsTasks].
	Tasks bool
	// Answer answers questions that come in the answer to this call, before those who
	// serve them for all calls. nil: there is none. See [Conn.Serve].
	Answer Answerer
}

// Answerer answers a request of a server, or returns [ErrNotMine].
type Answerer func(ctx context.Context, method string, params json.RawMessage) (any, error)

// Conn is one live connection to a server, shared by all who use it. Its methods
// may be called by several goroutines.
type Conn struct {
	name string
	cfg  limits
	wire wire

	roots   []string // folders that the server is told of
	samples bool     // models can be asked

	life context.Context // ends when the server goes, or is to go; the cause says why
	end  context.CancelCauseFunc

	bounds process.Bounds // nil: it has none; set before anybody gets the Conn

	revision     string          // as are the next two, set before anybody gets the Conn
	capabilities json.RawMessage // the server's
	about        string          // name and version, as the server has it
	meta         map[string]any  // what each request says of us; nil: nothing
	relist       chan struct{}   // wakes the goroutine that reads the tools again

	hearing sync.Mutex // held while listeners are called: notifications stay in order

	mu       sync.Mutex // guards what follows
	last     int64      // ID of the newest request; none is used twice
	waiting  map[int64]*call
	hear     map[string][]*listener
	serve    map[string][]*server
	incoming map[string]context.CancelFunc // requests of the server that are at work
	replies  [][]byte                      // short answers, the first of which is being sent
	made     []*made                       // tasks that were made of such requests, oldest first
	watched  map[string]context.CancelFunc // resources that the server tells of; see [Conn.Subscribe]
	tools    []Tool
	stats    Stats
	over     bool           // no goroutine may begin
	work     sync.WaitGroup // one per goroutine of the connection; run waits
}

// Stats counts what was dropped of one connection.
type Stats struct {
	Junk    int // lines that were no message
	Unknown int // answers that nobody had asked for
	Late    int // answers to calls that are over, and second answers
	Batches int // arrays of messages, which the revision does not know
	Long    int // frames above the limit
	Refused int // requests of the server beyond those at work
	Unsaid  int // short answers that were not sent, since too many waited
}

// limits bound one connection; each is above 0.
type limits struct {
	initialize, list, call time.Duration
	frame                  int // bytes of one message
	budget                 int // bytes of all that is being read at the same time
}

// wire carries frames. Its methods may be called by several goroutines.
type wire interface {
	// request sends a request. Its answer is received as all else; or failed is
	// called with its ID. stop gives back what waits for the answer.
	request(r request) (stop func(), err error)
	// send sends a notification or an answer.
	send(ctx context.Context, frame []byte) error
	// agreed is told of the revision, once. hears is closed when what the server says
	// by itself can arrive, or never will; nil: it can already.
	agreed(revision string) (hears <-chan struct{})
	// run begins to end when ctx does, or when the server goes. It returns when
	// nothing is left, and says why it ended.
	run(ctx context.Context) error
	// said is what the server has printed last for people; empty: nothing.
	said() string
}

// request is one to the server.
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

// Name names the server in the configuration of its first user.
func (c *Conn) Name() string { return c.name }

// Revision is the agreed revision of the protocol, such as 2025-11-25.
func (c *Conn) Revision() string { return c.revision }

// Capabilities returns the server's capabilities as it sent them.
func (c *Conn) Capabilities() json.RawMessage { return c.capabilities }

// About is the name and version that the server gives itself.
func (c *Conn) About() string { return c.about }

// Gone is closed when the server goes, or begins to be ended.
func (c *Conn) Gone() <-chan struct{} { return c.life.Done() }

// Said is what the server has printed last on stderr, and on stdout what was no
// message: at most 64 KB.
func (c *Conn) Said() string { return c.wire.said() }

// Refused is why the sandbox has not let the server through to hosts so far.
func (c *Conn) Refused() []string {
	if c.bounds == nil {
		return nil
	}
	return c.bounds.Refused()
}

// Stats are the counters of now.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Tools returns the server's latest list of tools. The result is not to
// be changed.
func (c *Conn) Tools() []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools
}

// Call sends a request and waits for its answer: an error is an [*RPCError], or
// wraps [ErrGone], [ErrNoAnswer] or [ErrTooLong], or is the cause of ctx. When
// ctx ends, the server is told to cancel (but for tasks/*, whose end is asked
// for otherwise), and the call returns at once; what comes later is dropped.
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

// exchange makes one request and waits for its answer. meta is what it says of us.
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
		c.close(id) // before the server is told: what it answers then is late
		c.cancelled(id, err)
	}
	_, plain := err.(*RPCError) //nolint:errorlint // one in another has its own words
	if err != nil && ctx.Err() == nil && !plain && !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%s to MCP server %s: %w", method, c.name, err)
	}
	return res, err
}

// progressEvery is how often the progress of a call is told at most, by default.
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

// open gives a call an ID that was never used on this connection.
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

// sendLimit is how long a notification or an answer may take to be sent.
const sendLimit = 10 * time.Second

// cancels reports whether the server is told when nobody waits for the answer any
// more. Over HTTP without sessions the end of the stream says so.
func (c *Conn) cancels(method string) bool {
	_, overHTTP := c.wire.(*web)
	return method != "initialize" && method != "server/discover" && !strings.HasPrefix(method, "tasks/") &&
		!(overHTTP && c.Stateless())
}

// cancelled tells the server that nobody waits any more. Nobody waits for that
// either.
func (c *Conn) cancelled(id int64, why error) {
	params := map[string]any{"requestId": id, "reason": why.Error()}
	c.spawn(
		func() { _ = c.Notify(c.life, "notifications/cancelled", params) },
	) // a server that cannot be told is about to go
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

// spawn begins a goroutine that the end of the connection waits for. It reports
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
	l := &listener{f}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hear[method] = append(c.hear[method], l)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hear[method] = without(c.hear[method], l)
	}
}

// Serve answers requests of the server of a method, until stop is called. Each
// call of f has a goroutine of its own, and a ctx that ends when the server
// takes the request back or goes. Of several functions the newest is asked
// first; one that returns [ErrNotMine] leaves the request to the next. An
// [*RPCError] is answered as it is.
func (c *Conn) Serve(method string, f func(ctx context.Context, params json.RawMessage) (any, error)) (stop func()) {
	s := &server{f}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serve[method] = append(c.serve[method], s)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serve[method] = without(c.serve[method], s)
	}
}

// without is a list without one, as a new list: who goes through the old one is
// not disturbed.
func without[T comparable](list []T, one T) []T {
	var out []T
	for _, x := range list {
		if x != one {
			out = append(out, x)
		}
	}
	return out
}
