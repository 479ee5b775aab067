package mcpclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	randv2 "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// ErrGivenUp is wrapped by errors of a server that has failed too often.
var ErrGivenUp = errors.New("it is given up")

// ErrClosed is returned by a pool that is closed, and by a lease that was
// released.
var ErrClosed = errors.New("MCP servers are closed")

var errUnused = errors.New("nobody uses it")

// Config configures a pool. The zero value works.
type Config struct {
	Version string   // of this program, for servers
	Session string   // value of [process.MarkSession] for commands; empty: none
	Env     []string // of each command, before the variables of its server
	Cwd     string   // folder of commands that name none
	// Ready returns when another process is ready to end the commands if this one dies. It is
	// called before each start. nil: no process would.
	Ready func() error
	// Tell gets messages about a server for the user, from several goroutines.
	// nil: they are lost.
	Tell func(server, text string)

	// Roots are the folders that servers may list; absolute.
	Roots []string
	// Samples says that the caller of a tool answers sampling/createMessage.
	Samples bool

	// Token returns the token of a server over HTTP that has no Authorization among its
	// headers; empty: it has none. refused is a token that the server has just refused.
	Token func(ctx context.Context, address, refused string) (string, error)

	Idle       time.Duration // until an unused server is ended; default 5 min
	Initialize time.Duration // for the first answer; default 10 s
	List       time.Duration // for the list of tools; default 10 s
	Call       time.Duration // for each other call; default 10 min
	Pause      time.Duration // before a server that has failed is tried again, at first; default 0.5 s
	FrameBytes int           // of one message; default 8 MB
}

// Pool owns the connections to servers. Its methods may be called by several
// goroutines. The caller must [Pool.Close] it.
type Pool struct {
	cfg   Config
	table process.Table
	self  process.Self

	life context.Context // of all connections
	stop context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool              // guarded by mu
	bound   Binder            // guarded by mu; nil: no server has bounds
	entries map[string]*entry // by [Server.Key], and whether it has bounds; guarded by mu
	work    sync.WaitGroup    // one per goroutine; Add under mu while not closed; Close waits
}

// Binder returns the bounds of a server of a project; nil: it is unbounded. An error means that
// the server cannot be started.
type Binder func(name string, s Server) (process.Bounds, error)

// Bound makes servers with [Server.Bounded] start within bounds. It must be called before the
// first [Pool.Use].
func (p *Pool) Bound(b Binder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound = b
}

// slot returns the key of an entry: a server without bounds and one with bounds are never shared.
func slot(key string, s Server) string {
	if s.Bounded && s.Kind() == Stdio {
		return key + " bounded"
	}
	return key
}

// entry is one server and its connections, one after another.
type entry struct {
	key    string
	name   string
	server Server
	life   context.Context // ends after the last use
	stop   context.CancelCauseFunc

	// Guarded by the pool's mu.
	users    int
	idle     *time.Timer // nil: it is used
	conn     *Conn       // nil while not connected
	begun    time.Time   // of conn
	trying   chan struct{}
	err      error // of the latest attempt or connection
	sessions bool  // it had no newer revision when it was last connected to
	patience patience
}

// NewPool makes a pool. It starts nothing.
func NewPool(c Config) *Pool {
	c.Idle = cmp.Or(c.Idle, 5*time.Minute)
	c.Initialize = cmp.Or(c.Initialize, 10*time.Second)
	c.List = cmp.Or(c.List, 10*time.Second)
	c.Call = cmp.Or(c.Call, 10*time.Minute)
	c.Pause = cmp.Or(c.Pause, 500*time.Millisecond)
	c.FrameBytes = cmp.Or(c.FrameBytes, 8<<20)
	p := &Pool{
		cfg:     c,
		entries: map[string]*entry{},
	}
	p.life, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Use begins to connect to a server, or shares the existing connection, and does
// not wait. Messages call the server by name. The caller must [Lease.Release] the
// lease.
func (p *Pool) Use(_ context.Context, name string, s Server) (*Lease, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("MCP server %s: %w", name, err)
	}
	key := s.Key(p.cfg.Cwd)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	e := p.entries[slot(key, s)]
	if e == nil {
		e = &entry{key: key, name: name, server: s}
		e.life, e.stop = context.WithCancelCause(p.life)
		p.entries[slot(key, s)] = e
	}
	e.patience.again(time.Now())
	e.users++
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	p.try(e)
	return &Lease{p: p, e: e, name: name, server: s}, nil
}

// try begins an attempt to connect, unless the server is connected, being tried or given up. The
// caller holds mu.
func (p *Pool) try(e *entry) {
	p.settle(e)
	if e.trying != nil || e.conn != nil || e.patience.spent() || p.closed || e.life.Err() != nil {
		return
	}
	e.trying = make(chan struct{})
	p.work.Go(func() { p.connect(e) })
}

// Lease is a use of a server. Its methods may be called by several goroutines.
type Lease struct {
	p      *Pool
	e      *entry
	name   string
	server Server
	once   sync.Once
}

// Name returns the user's name for the server, as given to [Pool.Use].
func (l *Lease) Name() string { return l.name }

// Server returns the argument of [Pool.Use].
func (l *Lease) Server() Server { return l.server }

// Key returns the key of the server; see [Server.Key].
func (l *Lease) Key() string { return l.e.key }

// Conn returns the live connection. It makes a lost one again, after a pause that
// grows. It returns the error of a failed attempt; the error wraps [ErrGivenUp] when no
// further attempt follows until the server is used anew, a minute later or more.
func (l *Lease) Conn(ctx context.Context) (*Conn, error) {
	p, e := l.p, l.e
	p.mu.Lock()
	p.try(e)
	conn, trying, err := e.conn, e.trying, e.state()
	closed := p.closed || e.life.Err() != nil
	p.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case conn != nil:
		return conn, nil
	case trying == nil:
		return nil, err
	}
	select {
	case <-trying:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return l.Peek()
}

// Peek returns the live connection, or nil and the reason why it is missing. Both are
// nil while the first attempt runs.
func (l *Lease) Peek() (*Conn, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.settle(l.e)
	if l.e.conn != nil {
		return l.e.conn, nil
	}
	return nil, l.e.state()
}

// state returns why the server is not connected. The caller holds mu of the pool.
func (e *entry) state() error {
	if e.err != nil && e.patience.spent() {
		return fmt.Errorf("MCP server %s has failed %d times in a row: %w: %w", e.name, e.patience.failures, ErrGivenUp,
			e.err)
	}
	if e.err != nil {
		return fmt.Errorf("MCP server %s: %w", e.name, e.err)
	}
	return nil
}

// Release ends the use of the server. A second call does nothing.
func (l *Lease) Release() {
	l.once.Do(func() {
		p, e := l.p, l.e
		p.mu.Lock()
		defer p.mu.Unlock()
		p.settle(e)
		if e.users--; e.users > 0 {
			return
		}
		if e.conn == nil && e.trying == nil {
			p.forget(e)
			return
		}
		e.idle = time.AfterFunc(p.cfg.Idle, func() { p.expire(e) })
	})
}

// expire ends a server that has been unused for long.
func (p *Pool) expire(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.users == 0 {
		p.forget(e)
	}
}

// forget makes the next use of the server start it anew. The caller holds mu.
func (p *Pool) forget(e *entry) {
	if at := slot(e.key, e.server); p.entries[at] == e {
		delete(p.entries, at)
	}
	e.stop(errUnused)
}

// Close ends all servers and returns when none of their processes is left.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, e := range p.entries {
		if e.idle != nil {
			e.idle.Stop()
		}
	}
	p.mu.Unlock()
	p.stop(ErrClosed)
	p.work.Wait()
}

// connect is the goroutine of a connection, from the attempt to its end.
func (p *Pool) connect(e *entry) {
	c, err := p.dial(e)
	p.mu.Lock()
	close(e.trying)
	e.trying = nil
	if err == nil {
		e.conn, e.err, e.begun = c, nil, time.Now()
	} else {
		p.lost(e, err, 0)
	}
	p.mu.Unlock()
	if err != nil {
		p.tell(e, err)
		return
	}
	<-c.Gone()
	p.mu.Lock()
	p.settle(e)
	p.mu.Unlock()
	p.tell(e, context.Cause(c.life))
}

// settle records the end of a lost connection, so that a request for a new one does
// not wait for the goroutine of the old one. The caller holds mu.
func (p *Pool) settle(e *entry) {
	if e.conn == nil || e.conn.life.Err() == nil {
		return
	}
	c := e.conn
	e.conn = nil
	p.lost(e, context.Cause(c.life), time.Since(e.begun))
	if e.users == 0 && e.life.Err() == nil {
		p.forget(e)
	}
}

// lost records that the connection is gone. The caller holds mu.
func (p *Pool) lost(e *entry, why error, lived time.Duration) {
	e.err = why
	if e.life.Err() == nil {
		e.patience.failed(time.Now(), lived, p.cfg.Pause, randv2.Float64())
	}
}

// tell reports a failure of the server to the user.
func (p *Pool) tell(e *entry, why error) {
	if e.life.Err() != nil || p.cfg.Tell == nil {
		return
	}
	p.mu.Lock()
	text := why.Error()
	if e.patience.spent() {
		text = fmt.Sprintf("%v; it has failed %d times in a row and is given up (see drover mcp list)", why,
			e.patience.failures)
	}
	p.mu.Unlock()
	p.cfg.Tell(e.name, text)
}

// dial makes one attempt. Its connection ends with the entry.
func (p *Pool) dial(e *entry) (*Conn, error) {
	p.mu.Lock()
	pause, sessions := time.Until(e.patience.until), e.sessions
	p.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-e.life.Done():
		return nil, context.Cause(e.life)
	}
	limit := e.server.Timeout()
	c := newConn(e.life, e.name, limits{initialize: p.cfg.Initialize, list: p.cfg.List, call: cmp.Or(limit, p.cfg.Call),
		frame: p.cfg.FrameBytes, budget: 8 * p.cfg.FrameBytes})
	c.roots, c.samples = p.cfg.Roots, p.cfg.Samples
	bounds, err := p.reach(c, e)
	if err != nil {
		c.end(err)
		return nil, err
	}
	over := make(chan struct{})
	p.work.Go(func() { // from a goroutine that Close waits for
		defer close(over)
		c.run()
	})
	err = c.hello(e.life, p.cfg.Version, sessions || e.server.Type == SSE)
	p.mu.Lock()
	e.sessions = err == nil && !c.Stateless()
	p.mu.Unlock()
	if err == nil {
		return c, nil
	}
	c.end(err)
	<-over
	if said := lastLine(c.Said()); said != "" && !strings.Contains(err.Error(), said) {
		err = fmt.Errorf("%w (it says: %s)", err, said)
	}
	return nil, walls(e, bounds, trim(err, c.name))
}

// Outside begins the name of a server in the setting sandbox.outside.
const Outside = "mcp:"

// walls adds to an error the accesses that the bounds of a server may have refused, and how to
// allow them.
func walls(e *entry, bounds process.Bounds, err error) error {
	if bounds == nil {
		return err
	}
	refused := ""
	if all := bounds.Refused(); len(all) > 0 {
		refused = ", which did not let it through: " + strings.Join(all, "; ")
	}
	return fmt.Errorf("%w (it ran in the sandbox%s; %q in the setting sandbox.outside lets it run outside, see docs/mcp.md)",
		err, refused, Outside+e.name)
}

// trim takes the name of the server out of the error of its first call: the message
// around it has the name already.
func trim(err error, name string) error {
	var rpc *RPCError
	if errors.As(err, &rpc) {
		return fmt.Errorf("it does not let us in: %w", err)
	}
	if errors.Is(err, ErrGone) {
		prefix := fmt.Sprintf("MCP server %s: %v: ", name, ErrGone)
		return errors.New(strings.Replace(err.Error(), prefix, "", 1))
	}
	return err
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// reach gives the connection its wire. bounds is nil without bounds.
func (p *Pool) reach(c *Conn, e *entry) (bounds process.Bounds, err error) {
	s := e.server
	if s.Kind() == HTTP {
		w := newWeb(c, s)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.Headers)),
			func(name string) bool { return strings.EqualFold(name, "Authorization") }) {
			w.token = p.cfg.Token
		}
		c.wire = w
		if s.Type == SSE {
			c.wire = newLegacy(w)
		}
		return nil, nil
	}
	if p.cfg.Ready != nil {
		if err := p.cfg.Ready(); err != nil {
			return nil, err
		}
	}
	self, err := p.self.Identity()
	if err != nil {
		return nil, err
	}
	mark := "mcp_" + rand.Text()
	cmd := process.Command{Args: append([]string{s.Command}, s.Args...), Dir: cmp.Or(s.Cwd, p.cfg.Cwd),
		Env: p.environment(s, mark, self), Session: true}
	p.mu.Lock()
	bind := p.bound
	p.mu.Unlock()
	if s.Bounded && bind != nil {
		if bounds, err = bind(e.name, s); err != nil {
			return nil, err
		}
	}
	if bounds != nil {
		bounds.Apply(&cmd)
	}
	w, err := startStdio(c, cmd, mark, &p.table)
	if err != nil {
		return nil, err
	}
	c.wire, c.bounds = w, bounds
	return bounds, nil
}

// environment returns the environment of a command: the variables of its server win over
// all others except the marks.
func (p *Pool) environment(s Server, mark string, self process.Identity) []string {
	env := slices.Clone(p.cfg.Env)
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		env = append(env, name+"="+value)
	}
	for name, value := range s.Env {
		set(name, value)
	}
	set(process.MarkTask, mark)
	set(process.MarkHost, self.Mark())
	if p.cfg.Session != "" {
		set(process.MarkSession, p.cfg.Session)
	}
	return env
}

const (
	maxFailures  = 5 // in a row; then a server is given up
	maxPause     = 30 * time.Second
	wellBehaved  = time.Minute // a connection that lived so long ends a row of failures
	secondWind   = time.Minute // until a server that was given up is tried again
	jitterSpread = 0.5         // of a pause, either way
)

// patience decides when a failed server is tried again. It does no I/O. The zero value
// belongs to a server that never failed.
type patience struct {
	failures int
	until    time.Time
}

// failed records that the server has gone after a life of that length. pause is the pause
// after a first failure, and doubles; chance is from 0 to 1.
func (p *patience) failed(now time.Time, lived, pause time.Duration, chance float64) {
	if lived >= wellBehaved {
		p.failures = 0
	}
	p.failures++
	pause = min(pause<<min(p.failures-1, 16), maxPause)
	p.until = now.Add(time.Duration(float64(pause) * (1 - jitterSpread + 2*jitterSpread*chance)))
}

// again gives a server that was given up one more chance, if it was unused for a
// while.
func (p *patience) again(now time.Time) {
	if p.spent() && now.Sub(p.until) >= secondWind {
		p.failures = maxFailures - 1
	}
}

// spent reports whether the server is given up.
func (p *patience) spent() bool { return p.failures >= maxFailures }
