package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// ErrLost is returned when the keeper has ended.
var ErrLost = errors.New("the keeper is gone")

// Time limits of a write to a keeper that does not read, and of its end after a goodbye.
const (
	writeWait = 2 * time.Second
	byeWait   = 2 * time.Second
)

// A helper receives ends with the next message, or after a delay, so that it wakes up once for
// a command and not twice.
const (
	endsWait = 50 * time.Millisecond
	mostEnds = 64
)

// Link is the host's end of the connection to its keeper. All methods may be called by several
// goroutines.
type Link struct {
	session string
	argv    []string      // of a helper that starts with the first Watch; nil: the keeper is the parent
	lost    chan struct{} // closed when the keeper ended without a goodbye

	mu     sync.Mutex                    // held while writing
	conn   *os.File                      // nil until there is a keeper; guarded by mu
	group  *process.Group                // of a helper; guarded by mu
	closed bool                          // guarded by mu
	ends   []process.Identity            // ended leaders not yet sent to a helper; guarded by mu
	later  *time.Timer                   // sends them; nil while none waits; guarded by mu
	spared map[process.Identity]struct{} // sent to a parent; guarded by mu
	reader sync.WaitGroup                // waits for the keeper's end; Close waits for it
}

// Inherit opens the link to the parent of this process. It returns nil and no error if this
// process was not started by a keeper. Call it once, before anything is started.
func Inherit(session string) (*Link, error) {
	conn, err := inherited()
	if conn == nil || err != nil {
		return nil, err
	}
	l := &Link{session: session, lost: make(chan struct{}), spared: map[process.Identity]struct{}{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l, l.greet(conn)
}

// Helper returns a link whose keeper is started, by argv, with the first
// [Link.Watch]. It does no I/O.
func Helper(session string, argv []string) *Link {
	return &Link{session: session, argv: argv, lost: make(chan struct{})}
}

// greet starts to use a new connection. The caller holds mu.
func (l *Link) greet(conn *os.File) error {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("greet keeper: %w", err)
	}
	l.conn = conn
	l.reader.Go(func() {
		// The keeper never writes: a read ends with its life, or with Close.
		_, err := io.Copy(io.Discard, conn)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			close(l.lost)
		}
	})
	return l.write(message{Op: opHello, Version: version, Session: l.session, Host: &self})
}

func (l *Link) startHelper() error {
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	g, err := process.StartGroup(process.Command{
		Args: l.argv, Dir: "/", Env: withLink(os.Environ()), Extra: []*os.File{theirs}, Session: true,
	})
	if err != nil {
		_ = ours.Close()
		return fmt.Errorf("start keeper: %w", err)
	}
	l.group = g
	return l.greet(ours)
}

// Ready returns when there is a keeper. Call it before anything is started: a keeper that knows
// the session finds its processes by their marks, even those that were never reported.
func (l *Link) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready()
}

// ready starts the helper if one is configured. The caller holds mu.
func (l *Link) ready() error {
	if l.conn == nil && l.argv != nil && !l.closed {
		return l.startHelper()
	}
	return nil
}

// Expect announces a kept task that is about to be started: if this process dies before it has
// reported the group, the keeper finds the group by its mark. Watch or Unexpect follows.
func (l *Link) Expect(task, exitFile string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	return l.write(message{Op: opExpect, Watch: &watch{Task: task, Keep: true, ExitFile: exitFile}})
}

// Unexpect revokes an Expect: the task was not started.
func (l *Link) Unexpect(task string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(message{Op: opForget, Watch: &watch{Task: task}})
}

// Watch reports a group that the keeper could not find by itself. It returns when the message
// has left this process, whose death then cannot lose it. A kept group outlives this process,
// and a parent then writes its exit to exitFile (absolute; see [process.ReadDeparture]).
func (l *Link) Watch(leader process.Identity, task string, keep bool, exitFile string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if l.argv == nil {
		// A parent inherits and ends everything that its host leaves. It only needs to know
		// what to spare, so a start needs no message.
		if !keep {
			return nil
		}
		l.spared[leader] = struct{}{}
	}
	return l.write(message{Op: opWatch, Watch: &watch{Process: leader, Task: task, Keep: keep, ExitFile: exitFile}})
}

// Forget reports that a group has ended. Its number may be reused by then, even by a group that
// is watched. A helper receives it with a delay, but before any other message.
func (l *Link) Forget(leader process.Identity) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.argv == nil {
		if _, told := l.spared[leader]; !told {
			return nil
		}
		delete(l.spared, leader)
		return l.write(forgotten(leader))
	}
	if l.closed || l.conn == nil {
		return fmt.Errorf("tell keeper %s: %w", opForget, ErrLost)
	}
	l.ends = append(l.ends, leader)
	switch {
	case len(l.ends) >= mostEnds:
		return l.write()
	case l.later == nil:
		l.later = time.AfterFunc(endsWait, l.tellEnds)
	}
	return nil
}

// Pulse is a sign of life: a helper that hears no further one within this time ends all processes of
// this host, which may stand still and go on later. 0 takes that back. A keeper that is the parent
// of its host does nothing. Call it before the first process is to be bounded so, and often enough.
func (l *Link) Pulse(within time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.argv == nil || l.conn == nil && within <= 0 {
		return nil
	}
	if err := l.ready(); err != nil {
		return err
	}
	return l.write(message{Op: opPulse, Within: within})
}

func forgotten(leader process.Identity) message {
	return message{Op: opForget, PID: leader.PID, Start: leader.Start}
}

// tellEnds is called by the timer.
func (l *Link) tellEnds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) > 0 {
		_ = l.write() // a dead keeper needs no message
	}
}

// write sends messages after the pending ends. The caller holds mu.
func (l *Link) write(messages ...message) error {
	what := opForget
	var out []byte
	for _, leader := range l.ends {
		b, err := encode(forgotten(leader))
		if err != nil {
			return err
		}
		out = append(out, b...)
	}
	for _, m := range messages {
		b, err := encode(m)
		if err != nil {
			return err
		}
		what, out = m.Op, append(out, b...)
	}
	l.ends = l.ends[:0]
	if l.later != nil {
		l.later.Stop()
		l.later = nil
	}
	if l.closed || l.conn == nil {
		return fmt.Errorf("tell keeper %s: %w", what, ErrLost)
	}
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeWait))
	if _, err := l.conn.Write(out); err != nil {
		return fmt.Errorf("tell keeper %s: %w", what, errors.Join(ErrLost, err))
	}
	return nil
}

// Lost is closed when the keeper has died. It stays open after [Link.Close].
func (l *Link) Lost() <-chan struct{} { return l.lost }

// Close sends a goodbye. A helper then exits without ending anything; a parent still ends what
// is left when this process has ended. A second Close does nothing.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed || l.conn == nil {
		l.closed = true
		l.mu.Unlock()
		return nil
	}
	err := l.write(message{Op: opBye})
	l.closed = true
	conn, group := l.conn, l.group
	l.mu.Unlock()

	_ = conn.SetReadDeadline(time.Unix(1, 0))
	l.reader.Wait()
	err = errors.Join(err, conn.Close())
	if group != nil {
		last, done := context.WithTimeout(context.Background(), byeWait)
		defer done()
		if _, werr := group.Wait(last); werr != nil {
			group.End(last, process.Ending{})
		}
		group.Reap()
		group.Close()
	}
	return err
}
