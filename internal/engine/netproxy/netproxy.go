package netproxy

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Config says who may use the proxy, and for which requests. Known is required; every other
// field has a useful zero value. The functions are called by several goroutines.
type Config struct {
	// Known reports whether credentials belong to a running task. The user is never empty.
	Known func(user, password string) bool

	// Match applies the rules at once; [Rules.Match] is one. nil allows nothing.
	Match func(Request) (allowed, private bool)

	// Allow decides about a request that Match does not allow. It may wait for the answer of
	// a person until ctx ends. Connections that ask for the same at the same time share one call.
	// nil lets it through; the text of an error is shown to the command, and says what would
	// allow it. nil func: refused.
	Allow func(ctx context.Context, r Request) error

	// Setting is where the rules are, for people: errors say that a host must be named there; empty: in rules.
	Setting string

	// Private reports whether a request that is allowed may lead to this machine or a private
	// network. It is called for the host as asked for and for the address it resolved to.
	// nil: as Match says.
	Private func(Request) bool

	// Log gets every request of a known user once, at its end.
	Log func(Request, Outcome)

	// Upstream returns the proxy for a connection to an address of http or https; nil: none is
	// used. It returns an error for a proxy of another protocol than HTTP. A nil func uses none.
	Upstream func(to *url.URL) (*url.URL, error)

	// Credential returns what is added to the requests of https to a host; nil: they are not looked into. A nil func
	// looks into none.
	Credential func(Request) *Credential
	Roots      *x509.CertPool // by which the certificates of such hosts are checked; nil: those of the system

	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil: a net.Dialer
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)         // nil: the resolver of the system
	Limits  Limits
}

// Limits are bounds. A zero field has the default that is named.
type Limits struct {
	Connections int // of all users together; 1024
	PerUser     int // connections of one user; 256
	Handshaking int // connections that have not shown credentials; 128
	Questions   int // calls of Allow that wait, of one user; 16
	HeaderBytes int // of an HTTP request or response; 64 KiB

	Handshake time.Duration // for the header of a request; 10 s
	Question  time.Duration // for one call of Allow; 10 min
	Dial      time.Duration // to resolve and connect; 20 s
	HalfOpen  time.Duration // without data, after one side has ended; 2 min
	Idle      time.Duration // without data in either direction; 1 h
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Connections: cmp.Or(l.Connections, 1024), PerUser: cmp.Or(l.PerUser, 256),
		Handshaking: cmp.Or(l.Handshaking, 128), Questions: cmp.Or(l.Questions, 16),
		HeaderBytes: cmp.Or(l.HeaderBytes, 64<<10), Handshake: cmp.Or(l.Handshake, 10*time.Second),
		Question: cmp.Or(l.Question, 10*time.Minute), Dial: cmp.Or(l.Dial, 20*time.Second),
		HalfOpen: cmp.Or(l.HalfOpen, 2*time.Minute), Idle: cmp.Or(l.Idle, time.Hour),
	}
}

// Outcome is what became of a request.
type Outcome struct {
	Err      error // why there was no connection; nil: there was one
	Refused  bool  // Err is a refusal, not a failure of the network
	Sent     int64 // bytes from the command
	Received int64

	Credential string // the name of the one that was added; empty: none was
}

// Proxy serves listeners. Its methods may be called by several goroutines.
type Proxy struct {
	cfg Config
	own func() ([]netip.Addr, error) // the addresses of this machine

	mu    sync.Mutex
	total int            // connections; guarded by mu
	users map[string]int // the same by user, "" before credentials; guarded by mu

	questions map[topic]*question // open ones; guarded by mu
}

// New makes a proxy. It panics without Config.Known, since then anybody could use it.
func New(c Config) *Proxy {
	if c.Known == nil {
		panic("netproxy: Config.Known is missing")
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if c.Match == nil {
		c.Match = func(Request) (bool, bool) { return false, false }
	}
	if c.Private == nil {
		match := c.Match
		c.Private = func(r Request) bool { _, private := match(r); return private }
	}
	if c.Log == nil {
		c.Log = func(Request, Outcome) {}
	}
	c.Limits = c.Limits.withDefaults()
	return &Proxy{cfg: c, own: ownAddresses, users: map[string]int{}, questions: map[topic]*question{}}
}

var (
	errClosed      = errors.New("the proxy is closed")
	errCredentials = errors.New("the proxy needs the credentials of a running task " +
		"(use the proxy settings in the environment of the command)")
	errBusy = errors.New("too many connections are open (close some, or try again)")
)

// Serve accepts connections until ctx ends or the listener is closed. Then it closes the
// listener and every connection, and returns when all have ended: nil for a listener that
// was closed, else the cause of ctx or the error of the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &service{Proxy: p, ctx: ctx, forHTTP: handover{ctx, l.Addr(), make(chan net.Conn)},
		conns: map[*conn]bool{}}
	s.running.Go(func() {
		<-ctx.Done()
		_ = l.Close()
		s.closeAll()
	})
	s.running.Go(s.serveHTTP)

	err := s.accept(l)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(errClosed)
	s.running.Wait()
	return err
}

// service is one call of Serve.
type service struct {
	*Proxy
	ctx     context.Context
	running sync.WaitGroup // goroutines of connections and questions
	forHTTP handover

	connsMu sync.Mutex
	closed  bool           // guarded by connsMu
	conns   map[*conn]bool // open ones; guarded by connsMu
}

// accept gives every connection a goroutine until the listener is closed.
func (s *service) accept(l net.Listener) error {
	const longest = time.Second
	wait := time.Duration(0)
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || err != nil && s.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// Such as a lack of file descriptors: it passes, or the listener is useless.
			if wait = max(2*wait, 5*time.Millisecond); wait > longest {
				return fmt.Errorf("accept a connection to the proxy: %w", err)
			}
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
			continue
		}
		wait = 0
		c := &conn{Conn: nc, ended: make(chan struct{})}
		if !s.open(c) {
			_ = nc.Close()
			continue
		}
		s.running.Go(func() {
			defer s.close(c)
			s.serve(c)
		})
	}
}

// serve tells the protocols apart by the first byte.
func (s *service) serve(c *conn) {
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.Limits.Handshake))
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.Conn, first); err != nil {
		return
	}
	switch b := first[0]; {
	case b == socksVersion:
		s.serveSOCKS(c)
	case 'A' <= b && b <= 'Z':
		c.first = first
		_ = c.SetReadDeadline(time.Time{}) // net/http sets its own
		select {
		case s.forHTTP.conns <- c:
			<-c.ended
		case <-s.ctx.Done():
		}
	}
}

// conn is a connection of a command.
type conn struct {
	net.Conn
	first    []byte  // read already; only its reader uses it
	user     string  // who has shown credentials; only the goroutine that serves it uses it
	within   *within // it is in one of a command, of which the TLS has been ended; never changes
	hijacked atomic.Bool
	ended    chan struct{} // closed when net/http and its handler have ended
}

func (c *conn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// open counts a connection, or refuses it.
func (s *service) open(c *conn) bool {
	s.mu.Lock()
	if s.total >= s.cfg.Limits.Connections || s.users[""] >= s.cfg.Limits.Handshaking {
		s.mu.Unlock()
		return false
	}
	s.total++
	s.users[""]++
	s.mu.Unlock()

	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	s.conns[c] = true
	if s.closed {
		_ = c.Close()
	}
	return true
}

func (s *service) close(c *conn) {
	_ = c.Close()
	s.connsMu.Lock()
	delete(s.conns, c)
	s.connsMu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.leave(c.user)
}

// leave is called with mu held.
func (p *Proxy) leave(user string) {
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
}

func (s *service) closeAll() {
	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
}

// claim checks credentials. A connection belongs to the first user who shows them.
func (s *service) claim(c *conn, user, password string) error {
	if user == "" || c.user != "" && c.user != user || !s.cfg.Known(user, password) {
		return errCredentials
	}
	if c.user == user {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user] >= s.cfg.Limits.PerUser {
		return errBusy
	}
	s.leave("")
	s.users[user]++
	c.user = user
	return nil
}

// handover is the listener of net/http: it gets the connections that speak HTTP.
type handover struct {
	ctx   context.Context
	addr  net.Addr
	conns chan net.Conn
}

func (h handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h handover) Close() error   { return nil }
func (h handover) Addr() net.Addr { return h.addr }

func (s *service) serveHTTP() {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.cfg.Limits.Handshake,
		IdleTimeout:       s.cfg.Limits.HalfOpen,
		MaxHeaderBytes:    s.cfg.Limits.HeaderBytes,

		DisableGeneralOptionsHandler: true,

		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateHijacked: // its handler ends it
				c.(*conn).hijacked.Store(true)
			case http.StateClosed:
				close(c.(*conn).ended)
			}
		},
	}
	_ = server.Serve(s.forHTTP) // ends with ctx, by an error that says so
}

type connKey struct{}
