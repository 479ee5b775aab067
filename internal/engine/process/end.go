package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// killWait is how long a process may take to exit after KILL before it is reported as a
// survivor, and the limit for processes that multiply meanwhile. killRound is the interval
// between readings of the table meanwhile.
const (
	killWait  = 5 * time.Second
	killRound = 200 * time.Millisecond
)

// Ending configures [Group.End].
type Ending struct {
	Grace time.Duration // between TERM and KILL; 0: KILL at once
	Mark  string        // value of [MarkTask] of the members; empty: no search by mark
	Table *Table        // shared with other callers; nil: a new one

	// First is sent to the group before TERM, as a terminal would send it; TERM follows when
	// the leader has ended, at the latest after another Grace. 0: TERM is first.
	First syscall.Signal
	// ByItself says that the command has ended by itself: its helpers, such as those of process
	// substitutions, get up to 2 s to do the same, and the report names the ended ones.
	ByItself bool
	// Hangup sends HUP in addition to TERM to processes that ignore TERM, as a shell at a
	// terminal does.
	Hangup bool
}

// Sent is a signal and when it was sent, counted from the start of ending.
type Sent struct {
	Signal syscall.Signal
	After  time.Duration
}

// Survivor is a process that could not be ended.
type Survivor struct {
	Identity
	Command string
	Why     string
}

// Ended is a process that was ended because its command had.
type Ended struct {
	PID     int
	Command string
}

// Report is the result of ending. It is empty if there was nothing to end.
type Report struct {
	Sent  []Sent  // each kind of signal once, when it was first sent
	Ended []Ended // with [Ending.ByItself]
	Left  []Survivor
}

// Choice selects processes to end: those for which Root returns true and all their descendants,
// without those for which Spare returns true and everything below them. A nil Spare spares
// none. The search does not pass the keeper of a detached host; see [MarkKeeper]. This process
// itself is never ended.
type Choice struct {
	Root  func(Proc) bool
	Spare func(Proc) bool
}

// End ends the group, processes outside it with the mark, and all their descendants: TERM and
// CONT, with the further signals of [Ending], then KILL to the rest after the grace or when ctx
// ends. It returns when nothing is left, or within 5 s after KILL with the survivors, or within
// 10 s if they keep multiplying: then they are stopped, until no new one is found, before they
// are killed. It may be called before or after [Group.Reap].
func (g *Group) End(ctx context.Context, e Ending) Report {
	w := newWork(e, Choice{Root: func(p Proc) bool {
		switch {
		case p.PID == g.id.PID:
			return p.Start == g.id.Start
		case p.Group == g.id.PID:
			return p.Start >= g.id.Start && g.populated()
		}
		return e.Mark != "" && p.Carries(MarkTask, e.Mark)
	}})
	if e.ByItself {
		return w.finish(ctx, e, g)
	}
	w.group = g
	return w.run(ctx, e)
}

// EndAll ends every process of the choice, as [Group.End] does.
func EndAll(ctx context.Context, c Choice, e Ending) Report {
	return newWork(e, c).run(ctx, e)
}

// work is the state of one ending.
type work struct {
	table  *Table
	choice Choice
	names  bool   // the report names the ended processes
	group  *Group // nil: none
	self   int
	begun  time.Time
	held   map[int]*target
	spared []Proc        // by the latest look
	failed map[int]error // could not be opened at the latest look
	report Report
}

type target struct {
	proc   Proc
	h      *handle
	named  bool // is in the report
	asked  bool // was sent TERM
	hung   bool // was sent HUP
	killed bool // was sent KILL
	frozen bool // was sent STOP
	err    error
}

func newWork(e Ending, c Choice) *work {
	t := e.Table
	if t == nil {
		t = new(Table)
	}
	return &work{table: t, choice: c, self: os.Getpid(), begun: time.Now(), held: map[int]*target{}}
}

func (w *work) run(ctx context.Context, e Ending) Report {
	w.names = e.ByItself
	defer func() {
		for _, t := range w.held {
			t.h.close()
		}
		clear(w.held)
	}()
	if !w.look() {
		return w.report
	}
	if e.Grace > 0 && e.First != 0 && w.group != nil {
		w.begin(ctx, e)
		if !w.look() {
			return w.report
		}
	}
	if e.Grace > 0 {
		patient, done := context.WithTimeout(ctx, e.Grace)
		defer done()
		for first := true; patient.Err() == nil; first = false {
			w.ask(first, e.Hangup)
			w.heed(patient, e.Hangup)
			if patient.Err() == nil && !w.look() {
				return w.report
			}
		}
	}
	deadline, frozen := time.Now().Add(killWait), false
	for first := true; w.look(); first = false {
		if !first && w.freeze(deadline) && !frozen {
			deadline, frozen = time.Now().Add(killWait), true
		}
		w.kill()
		if time.Now().After(deadline) {
			w.left()
			return w.report
		}
		round, done := context.WithTimeout(context.Background(), killRound)
		w.round(round)
		done()
	}
	return w.report
}

// heed is [work.round] after TERM. A shell that waits for a program it has just started
// discards TERM during the start without ignoring it, so the table is read again soon.
func (w *work) heed(ctx context.Context, hangup bool) {
	if hangup {
		var done func()
		ctx, done = context.WithTimeout(ctx, killRound)
		defer done()
	}
	w.round(ctx)
}

// round waits until the held processes end, or for the next look because of those that are not
// held.
func (w *work) round(ctx context.Context) {
	w.wait(ctx)
	if len(w.failed) == 0 {
		return
	}
	pause, done := context.WithTimeout(ctx, killRound)
	defer done()
	<-pause.Done() // they cannot be awaited, only looked up again
}

// look reads the table, opens the new processes of the choice, closes those that have ended,
// and reports whether any is left.
func (w *work) look() bool {
	for pid, t := range w.held {
		if t.h.ended() {
			t.h.close()
			delete(w.held, pid)
		}
	}
	w.failed = nil
	procs, err := w.table.read()
	if err != nil { // a missing process may belong to the choice
		w.failed = map[int]error{0: fmt.Errorf("read the processes: %w", err)}
	}
	for _, p := range w.chosen(procs) {
		if t, ok := w.held[p.PID]; ok {
			t.proc.ignored = p.ignored
			continue
		}
		h, err := open(p.Identity())
		switch {
		case errors.Is(err, ErrGone):
		case err != nil:
			if w.failed == nil {
				w.failed = map[int]error{}
			}
			w.failed[p.PID] = err
		default:
			w.held[p.PID] = &target{proc: p, h: h}
		}
	}
	return len(w.held)+len(w.failed) > 0
}

// chosen searches from the roots and from all held processes: a held process may have lost the
// parent through which it was found.
func (w *work) chosen(procs []Proc) []Proc {
	children := make(map[int][]int, len(procs))
	for i, p := range procs {
		children[p.Parent] = append(children[p.Parent], i)
	}
	seen := make(map[int]bool)
	below := func(todo []int, visit func(Proc) bool) {
		for len(todo) > 0 {
			p := procs[todo[len(todo)-1]]
			todo = todo[:len(todo)-1]
			if seen[p.PID] || !visit(p) {
				continue
			}
			seen[p.PID] = true
			for _, i := range children[p.PID] {
				if !procs[i].detached() {
					todo = append(todo, i)
				}
			}
		}
	}
	w.spared = nil
	spare := func(p Proc) bool {
		if p.ended() || w.choice.Spare == nil || !w.choice.Spare(p) {
			return false
		}
		w.spared = append(w.spared, p)
		return true
	}
	var roots []int
	isRoot := map[int]bool{}
	for i, p := range procs {
		if _, ok := w.held[p.PID]; !ok && !w.choice.Root(p) {
			continue
		}
		if spare(p) {
			below([]int{i}, func(Proc) bool { return true })
			continue
		}
		roots, isRoot[p.PID] = append(roots, i), true
	}
	var out []Proc
	below(roots, func(p Proc) bool {
		if !isRoot[p.PID] && spare(p) {
			return false
		}
		if p.PID != w.self && !p.ended() {
			out = append(out, p)
		}
		return true
	})
	return out
}

// begin sends the first signal to the group, as a terminal does, and waits for the leader: a
// shell waits for its foreground command, and its background commands ignore INT.
func (w *work) begin(ctx context.Context, e Ending) {
	if w.group.signalGroup(e.First) != nil || w.group.signalGroup(syscall.SIGCONT) != nil {
		return
	}
	w.sent(e.First)
	w.sent(syscall.SIGCONT)
	patient, done := context.WithTimeout(ctx, e.Grace)
	defer done()
	_ = w.group.h.wait(patient) // look finds the rest
}

// ask sends TERM to new processes, and CONT, since a stopped process would not receive it. The
// first time it signals the whole group.
func (w *work) ask(first, hangup bool) {
	w.name()
	grouped := false
	if g := w.group; g != nil && first {
		// In one call, so that no member can fork between two signals.
		grouped = g.signalGroup(syscall.SIGTERM) == nil && g.signalGroup(syscall.SIGCONT) == nil
	}
	for _, t := range w.held {
		if !t.asked && (!grouped || t.proc.Group != w.group.id.PID) {
			t.err = t.h.signal(syscall.SIGTERM)
			_ = t.h.signal(syscall.SIGCONT)
		}
		t.asked = true
		if hangup && !t.hung && t.proc.ignores(syscall.SIGTERM) {
			t.hung = true
			_ = t.h.signal(syscall.SIGHUP)
			w.sent(syscall.SIGHUP)
		}
	}
	w.sent(syscall.SIGTERM)
	w.sent(syscall.SIGCONT)
	_ = failpoint.Hit("signal/term")
}

// freeze stops the processes that appeared while others were killed, until no new one is found,
// and reports whether there were any. Where their number is limited, a killed process makes
// room for the next one; a stopped process keeps its slot and cannot fork.
func (w *work) freeze(deadline time.Time) (found bool) {
	for time.Now().Before(deadline) {
		fresh := false
		for _, t := range w.held {
			if t.killed || t.frozen {
				continue
			}
			t.frozen, fresh = true, true
			_ = t.h.signal(syscall.SIGSTOP) // KILL follows in any case
		}
		if !fresh {
			return found
		}
		found = true
		w.sent(syscall.SIGSTOP)
		w.look()
	}
	return found
}

func (w *work) kill() {
	w.name()
	if w.group != nil {
		_ = w.group.signalGroup(syscall.SIGKILL)
	}
	for _, t := range w.held {
		t.killed = true
		if err := t.h.signal(syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			t.err = err
		}
	}
	w.sent(syscall.SIGKILL)
	_ = failpoint.Hit("signal/kill")
}

func (w *work) sent(sig syscall.Signal) {
	for _, s := range w.report.Sent {
		if s.Signal == sig {
			return
		}
	}
	w.report.Sent = append(w.report.Sent, Sent{Signal: sig, After: time.Since(w.begun)})
}

// wait returns when all held processes have ended, or with ctx.
func (w *work) wait(ctx context.Context) {
	for _, t := range w.held {
		if t.h.wait(ctx) != nil {
			return
		}
	}
}

// name adds to the report the processes that are about to be ended.
func (w *work) name() {
	if !w.names {
		return
	}
	for pid, t := range w.held {
		if !t.named && !t.h.ended() {
			t.named = true
			w.report.Ended = append(w.report.Ended, Ended{pid, commandOf(pid)})
		}
	}
}

// left adds what could not be ended.
func (w *work) left() {
	for pid, t := range w.held {
		why := "still there 5 s after SIGKILL"
		if p, err := readProc(pid); err == nil && p.State == 'D' {
			why = "in uninterruptible sleep in the kernel"
		}
		if errors.Is(t.err, unix.EPERM) {
			why = "belongs to another user"
		}
		w.report.Left = append(w.report.Left, survivor(pid, t.proc.Start, why))
	}
	for pid, err := range w.failed {
		var start uint64
		if p, err := readProc(pid); err == nil {
			start = p.Start
		}
		w.report.Left = append(w.report.Left, survivor(pid, start, err.Error()))
	}
}

func survivor(pid int, start uint64, why string) Survivor {
	return Survivor{Identity{PID: pid, Start: start, Boot: Boot()}, commandOf(pid), why}
}

// tidyCommand makes one short line from the NUL-separated words of an untrusted command line.
func tidyCommand(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(bytes.TrimRight(b, "\x00\n")), "?"))
	const most = 200
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}
