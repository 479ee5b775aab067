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

	"github.com/drover-dev/drover/internal/failpoint"
)

// killWait is how long a process may take to go after KILL before it is named
// as a survivor. killRound is how often the table is read again meanwhile.
const (
	killWait  = 5 * time.Second
	killRound = 200 * time.Millisecond
)

// Ending says how to end.
type Ending struct {
	Grace time.Duration // between TERM and KILL; 0: KILL at once
	Mark  string        // value of [MarkTask] that members carry; empty: not looked for
	Table *Table        // shared with others who end; nil: an own one
}

// Sent is one signal that was sent, with the time since ending began.
type Sent struct {
	Signal syscall.Signal
	After  time.Duration
}

// Survivor is a process that could not be ended.
type Survivor struct {
	PID     int
	Command string
	Why     string
}

// Report is what ending did. It is empty when nothing was there to end.
type Report struct {
	Sent []Sent // each kind of signal once, when it was first sent
	Left []Survivor
}

// Choice selects processes to end: those for which Root says yes and all their
// descendants, but none that Spare selects and nothing below it. A nil Spare
// spares nobody. This process itself is never ended.
type Choice struct {
	Root  func(Proc) bool
	Spare func(Proc) bool
}

// End ends the group, what has left it but carries the mark, and all their
// descendants: TERM and CONT, then KILL to what is left after the grace or when
// ctx ends. It returns when nothing is left, or within 5 s after KILL with the
// survivors named. It may be called before or after [Group.Reap].
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
	w.group = g
	return w.run(ctx, e.Grace)
}

// EndAll ends every process of the choice, as [Group.End] does.
func EndAll(ctx context.Context, c Choice, e Ending) Report {
	return newWork(e, c).run(ctx, e.Grace)
}

// work is one ending.
type work struct {
	table  *Table
	choice Choice
	group  *Group // nil: none
	self   int
	begun  time.Time
	held   map[int]*target
	failed map[int]error // could not be held, in the latest look
	report Report
}

type target struct {
	proc  Proc
	h     *handle
	asked bool // was sent TERM
	err   error
}

func newWork(e Ending, c Choice) *work {
	t := e.Table
	if t == nil {
		t = new(Table)
	}
	return &work{table: t, choice: c, self: os.Getpid(), begun: time.Now(), held: map[int]*target{}}
}

func (w *work) run(ctx context.Context, grace time.Duration) Report {
	defer func() {
		for _, t := range w.held {
			t.h.close()
		}
	}()
	if !w.look() {
		return w.report
	}
	if grace > 0 {
		patient, done := context.WithTimeout(ctx, grace)
		defer done()
		for patient.Err() == nil {
			w.ask()
			w.round(patient)
			if patient.Err() == nil && !w.look() {
				return w.report
			}
		}
	}
	for deadline := time.Now().Add(killWait); w.look(); {
		w.kill()
		if time.Now().After(deadline) {
			w.name()
			return w.report
		}
		round, done := context.WithTimeout(context.Background(), killRound)
		w.round(round)
		done()
	}
	return w.report
}

// round waits for all that is held, and for the next look at what is not.
func (w *work) round(ctx context.Context) {
	w.wait(ctx)
	if len(w.failed) == 0 {
		return
	}
	pause, done := context.WithTimeout(ctx, killRound)
	defer done()
	<-pause.Done() // they cannot be waited for, only looked at again
}

// look reads the table, holds what is new in the choice, lets go of what has
// ended, and reports whether anything is left.
func (w *work) look() bool {
	for pid, t := range w.held {
		if t.h.ended() {
			t.h.close()
			delete(w.held, pid)
		}
	}
	w.failed = nil
	procs, err := w.table.read()
	if err != nil { // who is missing may be one of ours
		w.failed = map[int]error{0: fmt.Errorf("read the processes: %w", err)}
	}
	for _, p := range w.chosen(procs) {
		if _, ok := w.held[p.PID]; ok {
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

// chosen walks down from the roots and from all that is held already: a held
// process may have lost the parent by which it was found.
func (w *work) chosen(procs []Proc) []Proc {
	children := make(map[int][]int, len(procs))
	var todo []int
	for i, p := range procs {
		children[p.Parent] = append(children[p.Parent], i)
		if _, ok := w.held[p.PID]; ok || w.choice.Root(p) {
			todo = append(todo, i)
		}
	}
	var out []Proc
	seen := make(map[int]bool)
	for len(todo) > 0 {
		p := procs[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		if seen[p.PID] || (w.choice.Spare != nil && w.choice.Spare(p)) {
			continue
		}
		seen[p.PID] = true
		todo = append(todo, children[p.PID]...)
		if p.PID != w.self && !p.ended() {
			out = append(out, p)
		}
	}
	return out
}

// ask sends TERM to what was not asked yet, and CONT, since a stopped process
// would not see it.
func (w *work) ask() {
	grouped := false
	if g := w.group; g != nil && len(w.report.Sent) == 0 {
		// In one step, so that no member can fork away between two signals.
		grouped = g.signalGroup(syscall.SIGTERM) == nil && g.signalGroup(syscall.SIGCONT) == nil
	}
	for _, t := range w.held {
		if t.asked {
			continue
		}
		t.asked = true
		if grouped && t.proc.Group == w.group.id.PID {
			continue
		}
		t.err = t.h.signal(syscall.SIGTERM)
		_ = t.h.signal(syscall.SIGCONT)
	}
	w.sent(syscall.SIGTERM)
	w.sent(syscall.SIGCONT)
	_ = failpoint.Hit("signal/term")
}

func (w *work) kill() {
	if w.group != nil {
		_ = w.group.signalGroup(syscall.SIGKILL)
	}
	for _, t := range w.held {
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

// wait returns when all that is held has ended, or with ctx.
func (w *work) wait(ctx context.Context) {
	for _, t := range w.held {
		if t.h.wait(ctx) != nil {
			return
		}
	}
}

func (w *work) name() {
	for pid, t := range w.held {
		why := "still there 5 s after SIGKILL"
		if p, err := readProc(pid); err == nil && p.State == 'D' {
			why = "in uninterruptible sleep in the kernel"
		}
		if errors.Is(t.err, unix.EPERM) {
			why = "belongs to another user"
		}
		w.report.Left = append(w.report.Left, Survivor{PID: pid, Command: commandOf(pid), Why: why})
	}
	for pid, err := range w.failed {
		w.report.Left = append(w.report.Left, Survivor{PID: pid, Command: commandOf(pid), Why: err.Error()})
	}
}

// tidyCommand makes one short line of the NUL-separated words of a command,
// which are anything but trustworthy.
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
