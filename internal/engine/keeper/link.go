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

// ErrLost is returned when the keeper is not there any more.
var ErrLost = errors.New("the keeper is gone")

// Bounds: of one write to a keeper that does not read, and of its last moments
// after a goodbye.
const (
	writeWait = 2 * time.Second
	byeWait   = 2 * time.Second
)

// A helper is told of ends with whatever it is told next, or after a moment: it
// wakes up once for a command and not twice.
const (
	endsWait = 50 * time.Millisecond
	mostEnds = 64
)

// Link is the host's end towards its keeper. All methods may be called by
// several goroutines.
type Link struct {
	session string
	argv    []string      // of a helper that starts with the first Watch; nil: there is a parent
	lost    chan struct{} // closed when the keeper died and was not told goodbye

	mu     sync.Mutex                    // held while writing
	conn   *os.File                      // nil until there is a keeper; guarded by mu
	group  *process.Group                // of a helper; guarded by mu
	closed bool                          // guarded by mu
	ends   []process.Identity            // leaders that a helper is still to be told of; guarded by mu
	later  *time.Timer                   // tells of them; nil while there are none; guarded by mu
	spared map[process.Identity]struct{} // what a parent was told of; guarded by mu
	reader sync.WaitGroup                // sees the keeper's end; Close waits for it
}

// Inherit takes up the link to the parent of this process. It returns nil and
// no error when this process was not started by a keeper. Call it before
// anything is started, once.
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

// greet takes a fresh connection into use. The caller holds mu.
func (l *Link) greet(conn *os.File) error {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("greet keeper: %w", err)
	}
	l.conn = conn
	l.reader.Go(func() {
		// The keeper never speaks: a read ends with its life, or with Close.
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

// Ready returns when there is a keeper. It is called before anything is started:
// a keeper that knows the session finds what it carries by its mark, also what
// nobody lived to tell of.
func (l *Link) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready()
}

// ready starts the helper if there is to be one. The caller holds mu.
func (l *Link) ready() error {
	if l.conn == nil && l.argv != nil && !l.closed {
		return l.startHelper()
	}
	return nil
}

// Expect tells the keeper of a kept task that is about to be started: should this
// process die before it has told of the group, the keeper finds it by its mark.
// Watch or Unexpect follows.
func (l *Link) Expect(task, exitFile string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	return l.write(message{Op: opExpect, Watch: &watch{Task: task, Keep: true, ExitFile: exitFile}})
}

// Unexpect takes back an Expect: the task was not started.
func (l *Link) Unexpect(task string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(message{Op: opForget, Watch: &watch{Task: task}})
}

// Watch tells the keeper of a group that it could not know by itself. It returns when the message is out of this
// process, where its death cannot take it back. A kept group outlives this
// process, and a parent then writes its exit to exitFile (absolute; see
// [process.ReadDeparture]).
func (l *Link) Watch(leader process.Identity, task string, keep bool, exitFile string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if l.argv == nil {
		// A parent inherits all that is left of its host, and ends it. It need
		// only know what to spare, so that starting costs nothing.
		if !keep {
			return nil
		}
		l.spared[leader] = struct{}{}
	}
	return l.write(message{Op: opWatch, Watch: &watch{Process: leader, Task: task, Keep: keep, ExitFile: exitFile}})
}

// Forget tells the keeper that a group has ended. Its number may be somebody else's
// by now, also of a group that is watched. A helper hears of it a moment later, and
// before anything else.
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

func forgotten(leader process.Identity) message {
	return message{Op: opForget, PID: leader.PID, Start: leader.Start}
}

// tellEnds is called by the timer.
func (l *Link) tellEnds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) > 0 {
		_ = l.write() // a keeper that is gone has forgotten already
	}
}

// write sends messages, behind those of the ends. The caller holds mu.
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

// Close says goodbye. A helper then goes without touching anything; a parent
// still ends what is left when this process has ended. A second Close does
// nothing.
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
