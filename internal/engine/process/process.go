package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Marks in the environment of a child, by which it is found after it has left its group and its
// parents have ended.
const (
	MarkTask    = "DROVER_TASK_ID"
	MarkSession = "DROVER_SESSION"
	MarkHost    = "DROVER_HOST" // see [Identity.Mark]
)

// ErrGone is returned for a process that has ended or whose PID now belongs to another process.
var ErrGone = errors.New("process is gone")

// Identity identifies a process even if its PID is reused.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot on Linux, microseconds since 1970 on macOS
	Boot  string `json:"boot"`
}

// Mark is the value of [MarkHost] for children of this process.
func (id Identity) Mark() string { return fmt.Sprintf("%d.%d", id.PID, id.Start) }

// ParseMark returns the process of this boot that has a given [Identity.Mark].
func ParseMark(mark string) (Identity, error) {
	pid, start, _ := strings.Cut(mark, ".")
	p, err := strconv.Atoi(pid)
	at, serr := strconv.ParseUint(start, 10, 64)
	if err = errors.Join(err, serr); err != nil || p <= 1 {
		return Identity{}, fmt.Errorf("read mark of a process: %.40q names none", mark)
	}
	return Identity{PID: p, Start: at, Boot: Boot()}, nil
}

// Boot returns the ID of this boot of the machine. Tests may set TEST_BOOT_ID to simulate a
// restart.
func Boot() string {
	if b := os.Getenv("TEST_BOOT_ID"); b != "" {
		return b
	}
	return bootID()
}

// The boot ID cannot change while this process lives.
//
//rules:constant read once, and the same as long as the machine runs
var bootID = sync.OnceValue(readBootID)

// Identify reads the identity of a process. A zombie child still has one. It returns [ErrGone]
// if the process does not exist.
func Identify(pid int) (Identity, error) {
	p, err := readProc(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: p.Start, Boot: Boot()}, nil
}

// Self knows the identity of this process. Its zero value works. Several goroutines may use it.
type Self struct{ known atomic.Pointer[Identity] }

// Identity reads the identity once. An error, as of a process without a free descriptor, is not
// kept: the next call reads again.
func (s *Self) Identity() (Identity, error) {
	if id := s.known.Load(); id != nil {
		return *id, nil
	}
	id, err := Identify(os.Getpid())
	if err == nil {
		s.known.Store(&id)
	}
	return id, err
}

// Alive reports whether the process still runs. A zombie does not.
func Alive(id Identity) bool {
	if id.PID <= 0 || id.Boot != Boot() {
		return false
	}
	p, err := readProc(id.PID)
	return err == nil && p.Start == id.Start && !p.ended()
}

// Stopped reports whether the process is stopped, as by SIGSTOP or Ctrl-Z.
func Stopped(id Identity) bool {
	p, err := readProc(id.PID)
	return err == nil && p.Start == id.Start && p.State == 'T'
}

// HasShell reports whether an ancestor of this process, in its session and outside its group,
// could continue it after a stop. Without one the kernel ignores Ctrl-Z, and so should a
// handler of it.
func HasShell() bool {
	self, err := readProc(os.Getpid())
	for p := self; err == nil && p.Parent > 1; {
		if p, err = readProc(p.Parent); err == nil && p.Group != self.Group {
			return p.Session == self.Session
		}
	}
	return false
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // 0 to 255, or -1 when a signal ended it
	Signal syscall.Signal // 0, or the signal that ended it
	Core   bool           // a core was dumped
}

// Group is a process and everything in its process group. One goroutine at a
// time may use it.
type Group struct {
	id     Identity
	stdin  pipeID
	child  bool // a child that must be reaped
	reaped bool
	h      *handle
	closed atomic.Bool
}

// Identity returns the identity of the leader.
func (g *Group) Identity() Identity { return g.id }

// Wait returns when the leader has ended, or with the cause of ctx. It does not reap: until
// [Group.Reap] the PID of the leader cannot be reused, and its exit can be read again. For an
// adopted group Exit is unknown and zero.
func (g *Group) Wait(ctx context.Context) (Exit, error) {
	if err := g.h.wait(ctx); err != nil {
		return Exit{}, err
	}
	if !g.child {
		return Exit{}, nil
	}
	return g.h.exit()
}

// Ended reports whether the leader has ended, without waiting.
func (g *Group) Ended() bool { return g.h.ended() }

// Reap reaps a leader that has ended and reports whether the group may still have members,
// including zombies that their own parents have not reaped. It checks the group only, which is
// cheap; [Group.End] also finds members that have left the group.
func (g *Group) Reap() (left bool) {
	g.Release()
	return g.populated()
}

// Release is Reap without the report.
func (g *Group) Release() {
	if g.child && !g.reaped {
		g.h.reap()
		g.reaped = true
	}
}

// populated reports whether the group has any process, even an ended leader.
func (g *Group) populated() bool { return g.signalGroup(0) == nil }

func (g *Group) signalGroup(sig syscall.Signal) error {
	err := g.h.signalGroup(sig)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// An older kernel: the PID is certainly ours only until the leader is reaped. Signal 0 has
	// no effect.
	if sig == 0 || (g.child && !g.reaped) {
		return syscall.Kill(-g.id.PID, sig)
	}
	return syscall.ESRCH
}

// Close closes the descriptor. It does not affect the processes.
func (g *Group) Close() {
	if g.closed.CompareAndSwap(false, true) {
		g.h.close()
	}
}

// Adopt opens a group that another process started. Wait then reports that the leader ended,
// but not how. It returns [ErrGone] when the leader has ended.
func Adopt(id Identity) (*Group, error) {
	if id.Boot != Boot() {
		return nil, fmt.Errorf("adopt process %d: %w", id.PID, ErrGone)
	}
	h, err := open(id)
	if err != nil {
		return nil, fmt.Errorf("adopt process %d: %w", id.PID, err)
	}
	return &Group{id: id, h: h}, nil
}

// open opens a process and then verifies its identity: a PID can be reused before it is opened,
// but not afterwards.
func open(id Identity) (*handle, error) {
	h, err := openHandle(id.PID)
	if err != nil {
		return nil, err
	}
	p, err := readProc(id.PID)
	switch {
	case err == nil && p.Start != id.Start, err == nil && p.ended(), errors.Is(err, ErrGone):
		h.close()
		return nil, ErrGone
	case err != nil:
		h.close()
		return nil, err
	}
	return h, nil
}

// Signal sends a signal to the leader, and to no process if it has ended.
func (g *Group) Signal(sig syscall.Signal) error {
	if err := g.h.signal(sig); err != nil {
		return fmt.Errorf("signal process %d: %w", g.id.PID, err)
	}
	return nil
}

// stopWait bounds how long [FreezeGroup] waits for the leader to stop. A leader in a
// call of the kernel that cannot be interrupted stops when that returns.
const stopWait = time.Second

// FreezeGroup stops the group of a live leader, and returns when the leader is stopped: until
// Linux 6.18 at least, a child whose fork is under way while SIGSTOP and then SIGCONT come stays
// stopped for ever (SIGCONT takes SIGSTOP only from processes that exist). It does nothing when the
// leader has ended.
func FreezeGroup(id Identity) error {
	if err := signalGroup(id, syscall.SIGSTOP); err != nil {
		return err
	}
	for begun := time.Now(); Alive(id) && !Stopped(id) && time.Since(begun) < stopWait; {
		time.Sleep(100 * time.Microsecond) // the stop of another process's child has no event
	}
	return nil
}

// ThawGroup lets the group of a live leader go on. It does nothing when the leader has ended.
func ThawGroup(id Identity) error { return signalGroup(id, syscall.SIGCONT) }

// KillGroup kills the group of a live leader. It does nothing when the leader has ended.
func KillGroup(id Identity) error { return signalGroup(id, syscall.SIGKILL) }

// signalGroup sends a signal to the group of a live leader. On systems that cannot signal the
// group of an open process, the leader is verified directly before.
func signalGroup(id Identity, sig syscall.Signal) error {
	g, err := Adopt(id)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	err = g.h.signalGroup(sig)
	if errors.Is(err, errors.ErrUnsupported) && !g.Ended() {
		err = syscall.Kill(-id.PID, sig)
	}
	if err == nil || errors.Is(err, syscall.ESRCH) || g.Ended() {
		return nil
	}
	return fmt.Errorf("signal group %d: %w", id.PID, err)
}
