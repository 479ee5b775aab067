package conversation

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

// history is a conversation with what a test knows of it by itself.
type history struct {
	state   State
	posting int
	last    task.Seq
	waiting []task.Seq          // accepted, and nothing has become of them
	fate    map[task.Seq]string // of all others
	turn    task.Seq            // the prompt of the turn that is running
	held    bool                // no turn may begin by itself
	paused  bool                // the turn does not get on
	closed  bool
}

// TestHistory makes random histories of a conversation, and compares what Apply says
// with a small model.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{state: State{Phase: Idle, Most: rapid.IntRange(0, 2).Draw(t, "reminders")}, fate: map[task.Seq]string{}}
		t.Repeat(map[string]func(*rapid.T){
			"offer":  h.offer,
			"accept": h.accept,
			"give-up": func(t *rapid.T) {
				if h.posting == 0 {
					t.Skip()
				}
				h.posting--
				h.do(t, Event{Verb: GiveUp})
			},
			"take-back": h.takeBack,
			"look":      h.look, // more often than the others, as it is
			"look-once": h.look,
			"end-turn":  h.endTurn,
			"pause":     func(*rapid.T) { h.paused = true },
			"resume":    func(*rapid.T) { h.paused = false },
			"interrupt": func(t *rapid.T) {
				running := h.state.Phase.running()
				h.held, h.paused = true, false
				if cancelled := has[CancelTurn](h.do(t, Event{Verb: Interrupt})); cancelled != running {
					t.Fatalf("a turn is running: %v, and is broken off: %v", running, cancelled)
				}
			},
			"ceiling":   func(t *rapid.T) { h.held = true; h.do(t, Event{Verb: Ceiling}) },
			"complete":  func(t *rapid.T) { h.do(t, Event{Verb: Complete}) },
			"attach":    func(t *rapid.T) { h.do(t, Event{Verb: Attach}) },
			"detach":    func(t *rapid.T) { h.do(t, Event{Verb: Detach, At: time.Unix(int64(h.last)+1, 0)}) },
			"begin-run": func(t *rapid.T) { h.do(t, Event{Verb: BeginRun}) },
			"retire":    h.retire,
			"end-run":   h.endRun,
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip()
				}
				h.closed = true
				h.do(t, Event{Verb: Close})
			},
			"": h.check,
		})
		// Whatever has happened, each prompt comes to something.
		for h.posting > 0 {
			h.accept(t)
		}
		h.endRun(t)
		if len(h.waiting) > 0 {
			t.Fatalf("prompts %v are lost", h.waiting)
		}
	})
}

// do applies an event that no phase refuses.
func (h *history) do(t *rapid.T, e Event) []Effect {
	effects, err := h.try(t, e)
	if err != nil {
		t.Fatalf("%s while %s: %v", e.Verb, h.state.Phase, err)
	}
	return effects
}

// try applies an event: whoever waits is woken if that changed anything, and a refused
// event changes nothing.
func (h *history) try(t *rapid.T, e Event) ([]Effect, error) {
	given, kept := h.state, slices.Clone(h.state.Waiting)
	next, effects, err := Apply(h.state, e)
	if !slices.Equal(given.Waiting, kept) {
		t.Fatal("the state that was given is altered")
	}
	same := reflect.DeepEqual(given, next) || given.equal(next)
	if err != nil && (!same || len(effects) > 0) {
		t.Fatalf("%s was refused and changed %+v to %+v, %v", e.Verb, given, next, effects)
	}
	if woken := has[Wake](effects); woken == same {
		t.Fatalf("%s: everybody is woken: %v, but the state is the same: %v", e.Verb, woken, same)
	}
	h.state = next
	return effects, err
}

func has[E Effect](effects []Effect) bool {
	return slices.ContainsFunc(effects, func(e Effect) bool { _, ok := e.(E); return ok })
}

func (h *history) offer(t *rapid.T) {
	accepts := h.state.Phase == Idle || h.state.Phase == Busy
	_, err := h.try(t, Event{Verb: Offer})
	if (err == nil) != accepts {
		t.Fatalf("while %s: %v", h.state.Phase, err)
	}
	if err == nil {
		h.posting++
	}
}

func (h *history) accept(t *rapid.T) {
	if h.posting == 0 {
		t.Skip()
	}
	h.posting--
	h.last++
	accepts := h.state.Phase == Idle || h.state.Phase == Busy
	effects := h.do(t, Event{Verb: Accept, Prompt: Prompt{Seq: h.last}})
	switch {
	case has[Withdraw](effects) == accepts:
		t.Fatalf("while %s: %v", h.state.Phase, effects)
	case accepts:
		h.waiting, h.held = append(h.waiting, h.last), false
	default:
		h.fate[h.last] = "withdrawn"
	}
}

func (h *history) takeBack(t *rapid.T) {
	if len(h.waiting) == 0 {
		t.Skip()
	}
	seq := rapid.SampledFrom(h.waiting).Draw(t, "prompt")
	h.do(t, Event{Verb: TakeBack, Prompt: Prompt{Seq: seq}})
	h.fate[seq] = "withdrawn"
	h.waiting = slices.DeleteFunc(h.waiting, func(s task.Seq) bool { return s == seq })
}

func (h *history) look(t *rapid.T) {
	e := Event{Verb: Look, Mail: rapid.Bool().Draw(t, "mail"), Alone: rapid.Bool().Draw(t, "alone")}
	before := h.state
	effects, err := h.try(t, e)
	idle := before.Phase == Idle
	if err != nil {
		if idle && (len(h.waiting) > 0 || e.Mail && !h.held) {
			t.Fatalf("no turn begins although there is something to answer: %+v", before)
		}
		return
	}
	begun := effects[0].(BeginTurn)
	switch {
	case !idle || h.closed:
		t.Fatalf("a turn begins while %s", before.Phase)
	case begun.Origin == "" && (len(h.waiting) == 0 || begun.Prompt.Seq != h.waiting[0]):
		t.Fatalf("a turn begins with prompt %d, and the oldest of %v waits", begun.Prompt.Seq, h.waiting)
	case begun.Origin == "":
		h.turn, h.waiting = h.waiting[0], h.waiting[1:]
		h.fate[h.turn] += "begun"
	case h.held:
		t.Fatalf("a turn begins by itself (%s) before the user has spoken", begun.Origin)
	case len(h.waiting) > 0:
		t.Fatalf("a turn of origin %q begins while prompts wait", begun.Origin)
	case begun.Origin == TaskOrigin && !e.Mail, begun.Origin == AutopilotOrigin && (!e.Alone || !before.ReminderDue()):
		t.Fatalf("a turn of origin %q begins for nothing", begun.Origin)
	}
}

func (h *history) endTurn(t *rapid.T) {
	e := Event{Verb: EndTurn, At: time.Unix(int64(h.state.Turns)+1, 0), Failure: Failure(rapid.IntRange(0, int(OtherFailure)).Draw(t, "failure")), Finished: rapid.Bool().Draw(t, "finished")}
	if h.held && h.state.Hold == InterruptHold && rapid.Bool().Draw(t, "interrupted") {
		e.Failure = Interruption
	}
	switch {
	case h.state.Phase.running() && h.paused:
		t.Skip()
	case !h.state.Phase.running():
		if _, err := h.try(t, e); err == nil {
			t.Fatal("a turn ended that was not running")
		}
		return
	case e.Failure == ModelFailure || e.Failure == OtherFailure || e.Failure == PassingFailure && !h.state.ReminderDue():
		h.held = true
	}
	h.turn = 0
	h.do(t, e)
}

func (h *history) retire(t *rapid.T) {
	working := h.state.Phase.running() || h.posting > 0 || len(h.waiting) > 0
	_, err := h.try(t, Event{Verb: Retire})
	if err == nil && (working || h.state.Phase != Stopped && h.state.Phase != Ended) {
		t.Fatalf("retired while something is left to do, and is %s", h.state.Phase)
	}
	if err != nil && !errors.Is(err, ErrWorking) {
		t.Fatal(err)
	}
}

func (h *history) endRun(t *rapid.T) {
	var kept []task.Seq
	for _, e := range h.do(t, Event{Verb: EndRun}) {
		if e, ok := e.(Keep); ok {
			for _, p := range e.Prompts {
				kept = append(kept, p.Seq)
			}
		}
	}
	if !slices.Equal(kept, h.waiting) {
		t.Fatalf("of %v the user is told that %v go with the next prompt", h.waiting, kept)
	}
	for _, seq := range kept {
		h.fate[seq] += "kept"
	}
	h.waiting = nil
}

// check compares what can be seen.
func (h *history) check(t *rapid.T) {
	s := h.state
	var waiting []task.Seq
	for _, p := range s.Waiting {
		waiting = append(waiting, p.Seq)
	}
	if !slices.Equal(waiting, h.waiting) || s.Posting != h.posting {
		t.Fatalf("%v wait and %d are written, want %v and %d", waiting, s.Posting, h.waiting, h.posting)
	}
	if (s.Hold != NoHold) != h.held {
		t.Fatalf("hold %s, want any: %v", s.Hold, h.held)
	}
	if h.closed && s.Phase != Ending && s.Phase != Ended {
		t.Fatalf("%s after the end", s.Phase)
	}
	for seq := task.Seq(1); seq <= h.last; seq++ {
		was := h.fate[seq]
		if was == "" && !slices.Contains(h.waiting, seq) || was != "" && was != "begun" && was != "kept" && was != "withdrawn" {
			t.Fatalf("prompt %d: %q", seq, was)
		}
		if s.Delivers(seq) && (slices.Contains(h.waiting, seq) || seq == h.turn) {
			t.Fatalf("prompt %d has a turn of its own, and is mail too", seq)
		}
		if was == "kept" && s.Phase.accepts() && !s.Delivers(seq) {
			t.Fatalf("prompt %d goes with no prompt", seq)
		}
	}
}

// What the state says to those who ask it.
func TestState(t *testing.T) {
	for _, h := range Holds() {
		s := State{Phase: Idle, Hold: h}
		if leaves := h != NoHold && h != ModelHold; s.Leaves() != leaves {
			t.Errorf("hold %s: background work is left to itself: %v", h, s.Leaves())
		}
		if s.Attended = true; s.Leaves() {
			t.Errorf("hold %s: somebody is attached, and it is left to itself", h)
		}
	}
	at := time.Unix(7, 0)
	s, _, err := Apply(State{Phase: Busy, Trigger: Trigger{Prompt: Prompt{Seq: 3}}, Passed: 3}, Event{Verb: EndTurn, At: at})
	if err != nil || s.Turns != 1 || !s.Rested.Equal(at) || s.Trigger != (Trigger{}) || s.Working() {
		t.Errorf("after a turn: %+v, %v", s, err)
	}
	// The user has spoken while the turn that was interrupted ended.
	s = State{Phase: Busy}
	for _, e := range []Event{{Verb: Interrupt}, {Verb: Offer}, {Verb: Accept, Prompt: Prompt{Seq: 1}}, {Verb: EndTurn, Failure: Interruption}} {
		if s, _, err = Apply(s, e); err != nil {
			t.Fatal(err)
		}
	}
	if s.Hold != NoHold {
		t.Errorf("hold %s after the user has spoken", s.Hold)
	}
	// The autopilot tries again, as often as it reminds.
	s = State{Phase: Busy, Unfinished: true, Reminders: 1, Most: 2}
	if s, _, _ = Apply(s, Event{Verb: EndTurn, Failure: PassingFailure}); s.Hold != NoHold || !s.Working() {
		t.Errorf("a failure that may pass: %+v", s)
	}
	s.Phase, s.Reminders = Busy, 2
	if s, _, _ = Apply(s, Event{Verb: EndTurn, Failure: PassingFailure}); s.Hold != ModelHold || s.Working() || s.Unfinished {
		t.Errorf("a failure behind the last reminder: %+v", s)
	}
}
