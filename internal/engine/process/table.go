package process

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Proc is one entry of the process table.
type Proc struct {
	PID     int
	Parent  int
	Group   int
	Session int
	Start   uint64
	State   byte     // in the kernel's spelling: R, S, D, T, Z …
	Marks   []string // entries of its environment with the prefix DROVER_

	loading  bool   // it is executing exec and has no environment yet
	forked   bool   // it has not called exec since it was forked; always false on macOS
	ignored  uint64 // signals 1 to 31 that it ignores, from the lowest bit on
	terminal uint64 // device number of its controlling terminal; 0: none
}

// Identity of the process.
func (p Proc) Identity() Identity { return Identity{PID: p.PID, Start: p.Start, Boot: Boot()} }

// Carries reports whether key=value was in the environment with which it was started.
func (p Proc) Carries(key, value string) bool { return value != "" && p.Mark(key) == value }

// Mark returns the value of a mark of the process, or "".
func (p Proc) Mark(key string) string {
	for _, m := range p.Marks {
		if k, v, _ := strings.Cut(m, "="); k == key {
			return v
		}
	}
	return ""
}

func (p Proc) ignores(s syscall.Signal) bool { return p.ignored>>(s-1)&1 == 1 }

func (p Proc) ended() bool { return p.State == 'Z' || p.State == 'X' || p.State == 'x' }

// Table reads the table of all processes. Its zero value works. It may be used by several
// goroutines, and concurrent calls share one reading: stopping a thousand tasks must not read a
// thousand tables.
type Table struct {
	mu   sync.Mutex
	next *reading // the next reading, not begun yet; guarded by mu

	turn sync.Mutex // held while reading
}

type reading struct {
	once  sync.Once
	procs []Proc
	err   error
}

// Read returns all processes, as they were at some time after the call. The result must not be
// changed.
func (t *Table) Read() []Proc {
	procs, _ := t.read()
	return procs
}

// read is Read, with an error when some processes may be missing.
func (t *Table) read() ([]Proc, error) {
	t.mu.Lock()
	if t.next == nil {
		t.next = new(reading)
	}
	r := t.next
	t.mu.Unlock()
	r.once.Do(func() {
		t.turn.Lock()
		defer t.turn.Unlock()
		t.mu.Lock()
		t.next = nil // later callers need a newer reading
		t.mu.Unlock()
		r.procs, r.err = readTable()
	})
	return r.procs, r.err
}

// Marked returns the live processes that carry key=value.
func (t *Table) Marked(key, value string) []Proc {
	var out []Proc
	for _, p := range t.Read() {
		if !p.ended() && p.Carries(key, value) {
			out = append(out, p)
		}
	}
	return out
}

// Leader finds the live leader of the group that was started with key=value. Its descendants
// carry the same mark and may lead groups of their own; they are younger, and most are children
// of a process with the mark.
func Leader(procs []Proc, key, value string) (Proc, bool) {
	var marked []Proc
	for _, p := range procs {
		if !p.ended() && p.Carries(key, value) {
			marked = append(marked, p)
		}
	}
	within := func(pid int) bool {
		return slices.ContainsFunc(marked, func(p Proc) bool { return p.PID == pid })
	}
	var leader Proc
	for _, p := range marked {
		if p.Group == p.PID && !within(p.Parent) && (leader.PID == 0 || p.Start < leader.Start) {
			leader = p
		}
	}
	return leader, leader.PID != 0
}

// marks extracts Drover's entries from an environment of NUL-terminated strings.
func marks(env []byte) []string {
	var out []string
	for len(env) > 0 {
		entry, rest, _ := bytes.Cut(env, []byte{0})
		if bytes.HasPrefix(entry, []byte("DROVER_")) {
			out = append(out, string(entry))
		}
		env = rest
	}
	return out
}

// SignalName returns a name such as SIGTERM, and "" for 0.
func SignalName(s syscall.Signal) string {
	if s == 0 {
		return ""
	}
	if name := unix.SignalName(s); name != "" {
		return name
	}
	const firstRealTime = 34
	if s >= firstRealTime && s <= 64 {
		if s == firstRealTime {
			return "SIGRTMIN"
		}
		return fmt.Sprintf("SIGRTMIN+%d", int(s)-firstRealTime)
	}
	return "SIG" + strconv.Itoa(int(s))
}
