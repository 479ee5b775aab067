package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/netproxy"
	"github.com/drover-dev/drover/internal/engine/sandbox"
)

const (
	maxForwards    = 32  // ports
	maxConnections = 128 // of one port; more wait to be accepted
)

// ErrNoRoom is returned where the commands of a session use the network of this machine.
var ErrNoRoom = errors.New("its commands use the network of this machine, where the port is already")

// Forward is a port of the room that this machine reaches.
type Forward struct {
	Port        int
	Address     string // on this machine
	Since       time.Time
	Connections int // that are open
}

// forwards are the ports of a session that are forwarded.
type forwards struct {
	mu     sync.Mutex
	all    map[int]*forward // by port inside
	closed bool
	served sync.WaitGroup
}

type forward struct {
	listener net.Listener
	since    time.Time
	stop     context.CancelFunc
	places   chan struct{} // holds one for each open connection
}

// Forward lets this machine reach a port of the room on its loopback address, until End or Close.
func (s *Sandboxes) Forward(port, at int) error {
	if s == nil || !s.On("") {
		return ErrNoRoom
	}
	switch room, _, err := s.open(); {
	case err != nil:
		return err
	case room == nil:
		return ErrNoRoom
	}
	f := &s.forwards
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return sandbox.ErrClosed
	case f.all[port] != nil:
		return fmt.Errorf("port %d is forwarded already, to %s", port, f.all[port].listener.Addr())
	case len(f.all) >= maxForwards:
		return fmt.Errorf("%d ports are forwarded already, the most that a session may have", maxForwards)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(cmp.Or(at, port))))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	one := &forward{listener: l, since: time.Now(), stop: stop, places: make(chan struct{}, maxConnections)}
	if f.all == nil {
		f.all = map[int]*forward{}
	}
	f.all[port] = one
	f.served.Go(func() { one.serve(ctx, func() (net.Conn, error) { return s.inside(ctx, port) }) })
	return nil
}

// EndForward ends what [Sandboxes.Forward] has begun, with its connections; false: there was nothing.
func (s *Sandboxes) EndForward(port int) bool {
	if s == nil {
		return false
	}
	f := &s.forwards
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[port]
	if one == nil {
		return false
	}
	delete(f.all, port)
	one.end()
	return true
}

// Forwards lists the ports that are forwarded.
func (s *Sandboxes) Forwards() []Forward {
	if s == nil {
		return nil
	}
	s.forwards.mu.Lock()
	defer s.forwards.mu.Unlock()
	var out []Forward
	for port, f := range s.forwards.all {
		out = append(out, Forward{port, f.listener.Addr().String(), f.since, len(f.places)})
	}
	slices.SortFunc(out, func(a, b Forward) int { return cmp.Compare(a.Port, b.Port) })
	return out
}

func (f *forward) end() {
	f.stop()
	_ = f.listener.Close()
}

// close ends all and waits for them.
func (f *forwards) close() {
	f.mu.Lock()
	f.closed = true
	for port, one := range f.all {
		delete(f.all, port)
		one.end()
	}
	f.mu.Unlock()
	f.served.Wait()
}

// serve connects each client with what dial returns until the listener is closed, and waits for them.
func (f *forward) serve(ctx context.Context, dial func() (net.Conn, error)) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case f.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := f.listener.Accept()
		if err != nil {
			<-f.places
			if ctx.Err() != nil {
				return
			}
			select { // as when no descriptors are left
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		group.Go(func() {
			defer func() { <-f.places }()
			to, err := dial()
			if err != nil {
				_ = c.Close() // nothing listens there, or no room is open
				return
			}
			netproxy.Relay(ctx, c, to)
		})
	}
}

// inside connects with a port of the room. A room that was lost is made anew by the next command, so it is asked for
// each time.
func (s *Sandboxes) inside(ctx context.Context, port int) (net.Conn, error) {
	room, _, err := s.open()
	if err != nil {
		return nil, err
	}
	if room == nil {
		return nil, sandbox.ErrUnsupported
	}
	return room.Dial(ctx, port)
}

// gateway lets the programs of the room reach a port of a loopback address of this machine, at the same port of theirs.
func (n *network) gateway(ctx context.Context, room *sandbox.Room, port int, host string) error {
	l, err := room.Listen(port)
	if err != nil {
		return fmt.Errorf("let programs in the sandbox reach port %d of this machine: %w", port, err)
	}
	ctx, stop := context.WithCancel(ctx)
	f := &forward{listener: l, stop: stop, places: make(chan struct{}, maxConnections)}
	context.AfterFunc(ctx, f.end)
	n.serve.Go(func() {
		f.serve(ctx, func() (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		})
	})
	return nil
}
