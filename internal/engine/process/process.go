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
)

// Marks that a child carries in its environment, so that it can be found again
// when it has left its group and its parents are gone.
const (
	MarkTask    = "DROVER_TASK_ID"
	MarkSession = "DROVER_SESSION"
	MarkHost    = "DROVER_HOST" // see [Identity.Mark]
)

// ErrGone is returned for a process that has ended or whose number now belongs
// to somebody else.
var ErrGone = errors.New("process is gone")

// Identity names a process beyond the reuse of its number.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot on Linux, microseconds since 1970 on macOS
	Boot  string `json:"boot"`
}

// Mark is the value of [MarkHost] for children of this process.
func (id Identity) Mark() string { return fmt.Sprintf("%d.%d", id.PID, id.Start) }

// ParseMark is the process of this start of the machine that [Identity.Mark] stands for.
func ParseMark(mark string) (Identity, error) {
	pid, start, _ := strings.Cut(mark, ".")
	p, err := strconv.Atoi(pid)
	at, serr := strconv.ParseUint(start, 10, 64)
	if err = errors.Join(err, serr); err != nil || p <= 1 {
		return Identity{}, fmt.Errorf("read mark of a process: %.40q names none", mark)
	}
	return Identity{PID: p, Start: at, Boot: Boot()}, nil
}

// Boot tells one start of the machine from another. Tests may set TEST_BOOT_ID
// to play a restart.
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

// Identify reads the identity of a process. An ended child that was not reaped
// still has one. It returns [ErrGone] when there is no such process.
func Identify(pid int) (Identity, error) {
	p, err := readProc(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: p.Start, Boot: Boot()}, nil
}

// Alive reports whether the process still runs. One that has ended and waits to
// be reaped does not.
func Alive(id Identity) bool {
	if id.PID <= 0 || id.Boot != Boot() {
		return false
	}
	p, err := readProc(id.PID)
	return err == nil && p.Start == id.Start && !p.ended()
}

// Stopped reports whether the process stands still, as by SIGSTOP or Ctrl-Z.
func Stopped(id Identity) bool {
	p, err := readProc(id.PID)
	return err == nil && p.Start == id.Start && p.State == 'T'
}

// HasShell reports whether somebody above this process, in its session and outside its
// group, could continue it if it stood still. Where nobody could, the kernel passes
// Ctrl-Z over, and so should who catches it.
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
	child  bool // ours to reap
	reaped bool
	h      *handle
	closed atomic.Bool
}

// Identity names the leader.
func (g *Group) Identity() Identity { return g.id }

// Wait returns when the leader has ended, or with the cause of ctx. It does not
// reap: until [Group.Reap] the leader's number cannot be reused, and the way it
// ended can be asked again. For an adopted group Exit is unknown and zero.
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

// Reap lets go of a leader that has ended and reports whether the group may
// still have members: an ended one that its own parent has not reaped counts.
// It looks at the group only, which is cheap; [Group.End] looks closer, and finds
// members that left the group too.
func (g *Group) Reap() (left bool) {
	g.Release()
	return g.populated()
}

// Release is Reap for who does not ask.
func (g *Group) Release() {
	if g.child && !g.reaped {
		g.h.reap()
		g.reaped = true
	}
}

// populated reports whether somebody, even an ended leader, is in the group.
func (g *Group) populated() bool { return g.signalGroup(0) == nil }

func (g *Group) signalGroup(sig syscall.Signal) error {
	err := g.h.signalGroup(sig)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// An older kernel: the number is surely ours only until the leader is
	// reaped. Asking with signal 0 harms nobody.
	if sig == 0 || (g.child && !g.reaped) {
		return syscall.Kill(-g.id.PID, sig)
	}
	return syscall.ESRCH
}

// Close gives the descriptor back. The processes are left as they are.
func (g *Group) Close() {
	if g.closed.CompareAndSwap(false, true) {
		g.h.close()
	}
}

// Adopt takes over a group that another process started. Wait then tells that
// the leader ended, but not how. It returns [ErrGone] when the leader is gone.
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

// open holds a process and proves that the held one is the one that is meant:
// a number can change hands before it is held, but not after.
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

// Signal sends one signal to the leader, and to nobody if it has ended.
func (g *Group) Signal(sig syscall.Signal) error {
	if err := g.h.signal(sig); err != nil {
		return fmt.Errorf("signal process %d: %w", g.id.PID, err)
	}
	return nil
}

// SignalGroup sends one signal to the group of a leader that lives. It returns
// [ErrGone] when the leader has ended. On systems that cannot signal the group of
// a process that is held, the leader is looked at just before instead.
func SignalGroup(id Identity, sig syscall.Signal) error {
	g, err := Adopt(id)
	if err != nil {
		return err
	}
	defer g.Close()
	err = g.h.signalGroup(sig)
	if errors.Is(err, errors.ErrUnsupported) && !g.Ended() {
		err = syscall.Kill(-id.PID, sig)
	}
	switch {
	case errors.Is(err, syscall.ESRCH), g.Ended():
		return fmt.Errorf("signal group %d: %w", id.PID, ErrGone)
	case err != nil:
		return fmt.Errorf("signal group %d: %w", id.PID, err)
	}
	return nil
}
