package conversation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drover-dev/drover/task"
)

// Phase states whether prompts are accepted and whether a turn is running.
type Phase string

// The phases.
const (
	Idle     Phase = "idle"     // accepts prompts; no turn is running
	Busy     Phase = "busy"     // accepts prompts; a turn is running
	Stopping Phase = "stopping" // the run has ended; its last turn is running
	Stopped  Phase = "stopped"  // the run has ended; the next one accepts prompts again
	Ending   Phase = "ending"   // the session ends; the last turn is running
	Ended    Phase = "ended"    // the session ends; no turn begins any more
)

// Phases returns all phases, in the order of their occurrence.
func Phases() []Phase { return []Phase{Idle, Busy, Stopping, Stopped, Ending, Ended} }

func (p Phase) accepts() bool { return p == Idle || p == Busy }

func (p Phase) running() bool { return p == Busy || p == Stopping || p == Ending }

// Hold is why mail and reminders begin no turn until the next prompt. Of two reasons the later
// one in this order applies.
type Hold int

// The holds.
const (
	NoHold        Hold = iota
	ModelHold          // the model failed: background tasks are still awaited
	FailureHold        // the turn failed otherwise
	CeilingHold        // commands were stopped at the wait ceiling
	InterruptHold      // the user interrupted
)

// Holds returns all holds.
func Holds() []Hold { return []Hold{NoHold, ModelHold, FailureHold, CeilingHold, InterruptHold} }

func (h Hold) String() string {
	return [...]string{"none", "model", "failure", "ceiling", "interrupt"}[h]
}

// Failure classifies how a turn ended.
type Failure int

// The failures.
const (
	NoFailure      Failure = iota
	PassingFailure         // the model failed, and a retry may succeed
	ModelFailure           // the model failed
	OtherFailure
	Interruption // the user interrupted
)

// Prompt is a durable prompt.
type Prompt struct {
	Seq  task.Seq
	Text string
}

// Trigger begins a turn.
type Trigger struct {
	Origin string // empty for a prompt, else [TaskOrigin] or [AutopilotOrigin]
	Prompt Prompt // of a turn without an origin
}

// State is the state of a conversation. The zero value is invalid; see [New].
type State struct {
	Phase   Phase
	Trigger Trigger // of the current turn

	Posting int      // prompts that are being written to the log
	Waiting []Prompt // accepted, without a turn; oldest first
	Passed  task.Seq // the newest prompt that begins no further turn

	Hold     Hold
	Attended bool // a client was attached in this run: background work is awaited after any turn

	Unfinished bool // on autopilot: the work is not marked as complete
	Reminders  int  // reminders of the autopilot sent for this work
	Most       int  // reminders for one prompt; 0: no autopilot

	Turns  int       // number of turns that have ended
	Rested time.Time // when the last turn ended, or the last client detached
}

// Working reports whether there is something to answer other than mail.
func (s State) Working() bool {
	return s.Phase.running() || s.Posting > 0 || len(s.Waiting) > 0 || s.ReminderDue() && s.Hold == NoHold
}

// ReminderDue reports whether the agent is to be reminded as soon as it has nothing else to do.
func (s State) ReminderDue() bool { return s.Unfinished && s.Reminders < s.Most }

// Leaves reports whether the conversation does not wait for background work.
func (s State) Leaves() bool { return s.Hold > ModelHold && !s.Attended }

// Delivers reports whether the current turn may read a prompt as mail: only a prompt that begins no
// turn of its own.
func (s State) Delivers(prompt task.Seq) bool {
	return s.Phase.accepts() && prompt <= s.Passed && prompt != s.Trigger.Prompt.Seq
}

func (s State) equal(o State) bool {
	same := slices.Equal(s.Waiting, o.Waiting)
	return same && s.Phase == o.Phase && s.Trigger == o.Trigger && s.Posting == o.Posting && s.Passed == o.Passed &&
		s.Hold == o.Hold && s.Attended == o.Attended && s.Unfinished == o.Unfinished && s.Reminders == o.Reminders &&
		s.Most == o.Most && s.Turns == o.Turns && s.Rested.Equal(o.Rested)
}

// Verb is a change of a conversation.
type Verb string

// The verbs.
const (
	Offer     Verb = "offer"     // a client sends a prompt
	Accept    Verb = "accept"    // the prompt is durable
	GiveUp    Verb = "give_up"   // the prompt could not be written
	TakeBack  Verb = "take_back" // an accepted prompt was withdrawn
	Look      Verb = "look"      // the runner looks for the start of a turn
	EndTurn   Verb = "end_turn"  // the turn has ended
	MoveTurn  Verb = "move_turn" // the turn continues without the conversation
	Complete  Verb = "complete"  // on autopilot: the agent has marked its work as complete
	SetMode   Verb = "set_mode"  // of the session, by the user
	Interrupt Verb = "interrupt" // by the user
	Attach    Verb = "attach"    // a client is attached
	Detach    Verb = "detach"    // the last client has detached
	Ceiling   Verb = "ceiling"   // commands are stopped at the wait ceiling
	BeginRun  Verb = "begin_run" // of the task of the conversation
	Retire    Verb = "retire"    // the run has nothing left to do
	EndRun    Verb = "end_run"   // the run ends, whatever is left to do
	Close     Verb = "close"     // the session ends
)

// Event is a verb with its data.
type Event struct {
	Verb     Verb
	At       time.Time // EndTurn, MoveTurn, Detach
	Prompt   Prompt    // Accept, TakeBack
	Mail     bool      // Look: there is mail that begins a turn
	Alone    bool      // Look: no task is running whose end would begin a turn
	Failure  Failure   // EndTurn
	Finished bool      // EndTurn: a tool or a hook ended the turn, and with it the work
	Most     int       // SetMode: reminders for one prompt from the next one on; 0: no autopilot
}

// Effect is an action that an event requires.
type Effect interface{ effect() }

// The effects.
type (
	// BeginTurn begins a turn.
	BeginTurn struct{ Trigger }
	// CancelTurn cancels the current turn.
	CancelTurn struct{}
	// Withdraw withdraws a durable prompt; its sender gets the reason.
	Withdraw struct {
		Prompt Prompt
		Why    error
	}
	// Keep tells the user of prompts that are sent with the next one.
	Keep struct{ Prompts []Prompt }
	// Wake wakes everything that waits for a change of the state.
	Wake struct{}
)

func (BeginTurn) effect()  {}
func (CancelTurn) effect() {}
func (Withdraw) effect()   {}
func (Keep) effect()       {}
func (Wake) effect()       {}

// Errors of [Apply].
var (
	// ErrStopped refuses a prompt: the run has ended.
	ErrStopped = errors.New("the conversation has ended")
	// ErrEnded refuses a prompt: the session ends.
	ErrEnded = errors.New("the session is closing")
	// ErrNothing means that no turn begins now.
	ErrNothing = errors.New("nothing begins a turn")
	// ErrWorking refuses to retire: something is left to do.
	ErrWorking = errors.New("something is left to do")
)

// MoveError is an event that a phase does not allow.
type MoveError struct {
	From Phase
	Verb Verb
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("conversation: cannot %s while %s", e.Verb, e.From)
}

// Apply is the only function that changes the state of a conversation. It returns the state
// after the event and the required effects. After an error nothing changes; it never modifies
// the given state.
func Apply(s State, e Event) (State, []Effect, error) {
	next, effects, err := apply(s, e)
	if err != nil {
		return s, nil, err
	}
	if !next.equal(s) {
		effects = append(effects, Wake{})
	}
	return next, effects, nil
}

func apply(s State, e Event) (State, []Effect, error) {
	var effects []Effect
	switch e.Verb {
	case Offer:
		if why := s.refuses(); why != nil {
			return s, nil, why
		}
		s.Posting++
	case Accept:
		s.Posting--
		if why := s.refuses(); why != nil {
			effects = append(effects, Withdraw{e.Prompt, why})
			break
		}
		s.Waiting, s.Hold = append(slices.Clip(s.Waiting), e.Prompt), NoHold
	case GiveUp:
		s.Posting--
	case TakeBack:
		s.Waiting = slices.DeleteFunc(slices.Clone(s.Waiting), func(p Prompt) bool { return p.Seq == e.Prompt.Seq })
	case Look:
		begun, ok := s.look(e)
		if !ok {
			return s, nil, ErrNothing
		}
		s, effects = begun, append(effects, BeginTurn{begun.Trigger})
	case EndTurn:
		if !s.Phase.running() {
			return s, nil, &MoveError{s.Phase, e.Verb}
		}
		s = s.endTurn(e)
	case MoveTurn:
		if !s.Phase.running() {
			return s, nil, &MoveError{s.Phase, e.Verb}
		}
		s.Phase = move(s.Phase, Busy, Idle, Stopping, Stopped, Ending, Ended)
		s.Trigger, s.Rested, s.Unfinished = Trigger{}, e.At, false
		s.Turns++
	case Complete:
		s.Unfinished = false
	case SetMode:
		s.Most = e.Most
		s.Unfinished = s.Unfinished && e.Most > 0
	case Interrupt:
		s.Hold, s.Unfinished = InterruptHold, false
		if s.Phase.running() {
			effects = append(effects, CancelTurn{})
		}
	case Attach:
		s.Attended = true
	case Detach:
		s.Rested = e.At // the wait ceiling counts from here
	case Ceiling:
		s.Hold = max(s.Hold, CeilingHold)
	case BeginRun:
		s.Phase, s.Attended = move(s.Phase, Stopped, Idle, Stopping, Busy), false
	case Retire:
		if s.Working() {
			return s, nil, ErrWorking
		}
		s.Phase = move(s.Phase, Idle, Stopped)
	case EndRun:
		s.Phase = move(s.Phase, Idle, Stopped, Busy, Stopping)
		if n := len(s.Waiting); n > 0 {
			effects = append(effects, Keep{s.Waiting})
			s.Passed, s.Waiting = s.Waiting[n-1].Seq, nil
		}
	case Close:
		s.Phase = move(s.Phase, Idle, Ended, Stopped, Ended, Busy, Ending, Stopping, Ending)
	default:
		return s, nil, &MoveError{s.Phase, e.Verb}
	}
	return s, effects, nil
}

// move finds the next phase in pairs of phases; a phase that is in none stays.
func move(from Phase, pairs ...Phase) Phase {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == from {
			return pairs[i+1]
		}
	}
	return from
}

// refuses returns why no prompt is accepted.
func (s State) refuses() error {
	switch s.Phase {
	case Stopping, Stopped:
		return ErrStopped
	case Ending, Ended:
		return ErrEnded
	}
	return nil
}

// look begins a turn with the oldest prompt, else with mail, else with a reminder.
func (s State) look(e Event) (State, bool) {
	switch {
	case s.Phase != Idle:
		return s, false
	case len(s.Waiting) > 0:
		s.Trigger = Trigger{Prompt: s.Waiting[0]}
		s.Waiting, s.Passed = s.Waiting[1:], s.Waiting[0].Seq
		s.Unfinished, s.Reminders = s.Most > 0, 0
	case s.Hold != NoHold:
		return s, false
	case e.Mail:
		s.Trigger = Trigger{Origin: TaskOrigin}
	case e.Alone && s.ReminderDue():
		s.Trigger = Trigger{Origin: AutopilotOrigin}
		s.Reminders++
	default:
		return s, false
	}
	s.Phase = Busy
	return s, true
}

// endTurn holds mail back after a failure, unless the autopilot retries. An interruption was
// applied when it came, since the user may have sent a prompt since.
func (s State) endTurn(e Event) State {
	s.Phase = move(s.Phase, Busy, Idle, Stopping, Stopped, Ending, Ended)
	s.Trigger, s.Rested = Trigger{}, e.At
	s.Turns++
	switch {
	case e.Failure == NoFailure:
		s.Unfinished = s.Unfinished && !e.Finished
		return s
	case e.Failure == PassingFailure && s.ReminderDue():
		return s
	}
	s.Unfinished = false
	switch e.Failure {
	case PassingFailure, ModelFailure:
		s.Hold = max(s.Hold, ModelHold)
	case OtherFailure:
		s.Hold = max(s.Hold, FailureHold)
	}
	return s
}
