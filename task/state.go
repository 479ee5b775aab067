package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Verb is what happens to a run. Verbs that end a run are bare; the statuses
// they lead to are participles.
type Verb string

// The verbs.
const (
	Create      Verb = "create" // a task is recorded for the first time
	Begin       Verb = "begin"
	Report      Verb = "report" // progress
	Save        Verb = "save"   // a checkpoint
	Rest        Verb = "rest"   // a multi-turn agent waits for mail
	Wake        Verb = "wake"
	Ask         Verb = "ask"
	Answer      Verb = "answer"
	Pause       Verb = "pause"
	Thaw        Verb = "thaw"
	Background  Verb = "background"
	RequestStop Verb = "request_stop"
	Complete    Verb = "complete"
	Fail        Verb = "fail"
	Stop        Verb = "stop"
	Resume      Verb = "resume"   // an ended task gets a new run
	Reparent    Verb = "reparent" // its parent has ended, and left it to another
)

// Verbs returns all verbs that [Apply] accepts, in the order of a life.
func Verbs() []Verb {
	return []Verb{
		Begin,
		Report,
		Save,
		Rest,
		Wake,
		Ask,
		Answer,
		Pause,
		Thaw,
		Background,
		Reparent,
		RequestStop,
		Complete,
		Fail,
		Stop,
		Resume,
	}
}

// Change is a request to move a run: a verb and what goes with it.
type Change struct {
	Verb        Verb
	At          time.Time
	Cause       *Cause   // Fail, Stop; a Complete without one is by itself
	ExitCode    *int     // Complete, Fail, Stop
	Error       string   // Fail
	Process     *Process // Begin: what does the work, if that is a process
	Progress    *Progress
	Summary     string // Report: by the summary service; empty leaves it alone
	Usage       *Usage
	Worktree    *Worktree  // Complete, Fail, Stop; nil leaves it alone
	Survivors   []Survivor // Complete, Fail, Stop: what could not be ended
	OutputBytes int64
	Checkpoint  []byte
	Question    *Question // Ask
	Answered    *Answered // Answer
	Run         RunID     // Resume: the new run
	Background  bool      // Resume: nobody waits for it in the foreground
	ToolUseID   string    // Resume: the call that asked for it
	Owner       ID        // Resume, Reparent: who is told of the end; empty: nobody
	Parent      ID        // Reparent: empty: nobody's, or the main agent's
	Depth       int       // Reparent
	Budget      Budget    // Resume
	Prompt      string    // Resume: what it goes on with
	Priority    Priority  // Resume: of its notice
	Pool        string    // Resume: whose places it takes
}

// MoveError is a change that the state table does not allow.
type MoveError struct {
	ID   ID
	From Status
	Verb Verb
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("task %s: cannot %s while %s", e.ID, e.Verb, e.From)
}

// ErrNoChange is returned by [Apply] for a change that would alter nothing, and
// ErrNotAsked for an answer to a question that is not open.
var (
	ErrNoChange = errors.New("nothing changes")
	ErrNotAsked = errors.New("no such question is open")
)

// transitions is the state table: where a verb leads from a status. A pair that
// is missing is refused.
func transition(from Status, v Verb) (Status, bool) {
	switch v {
	case Begin:
		return Running, from == Pending
	case Save, Rest, Wake, Ask, Answer:
		return Running, from == Running
	case Report, Pause, Thaw, Background, Reparent, RequestStop:
		return from, !from.Terminal()
	case Complete:
		return Completed, from == Running
	case Fail:
		return Failed, !from.Terminal()
	case Stop:
		return Killed, !from.Terminal()
	case Resume:
		return Pending, from.Terminal()
	}
	return from, false
}

// Apply is the only rule by which a task changes. It returns the record after
// the change, a [*MoveError] for a change that is not allowed, [ErrNoChange] or
// [ErrNotAsked].
// The record that was given is never altered.
func Apply(r Record, c Change) (Record, error) {
	to, ok := transition(r.Status, c.Verb)
	if !ok {
		return r, &MoveError{ID: r.ID, From: r.Status, Verb: c.Verb}
	}
	next := r
	next.Status = to
	switch c.Verb {
	case Begin:
		at := c.At
		next.StartTime, next.Process = &at, c.Process
	case Report:
		next = report(next, c)
	case Save:
		next.Checkpoint = c.Checkpoint
	case Rest:
		next.Idle = true
	case Wake:
		next.Idle = false
	case Ask:
		next = ask(next, c)
	case Answer:
		if next, ok = answer(next, c); !ok {
			return r, ErrNotAsked
		}
	case Pause:
		next.Paused = true
	case Thaw:
		next.Paused = false
	case Background:
		next.Backgrounded = true
	case Reparent:
		next = reparent(next, c)
	case RequestStop:
		next.Stopping = true
		next.Questions, next.AwaitingApproval = nil, false // an answer that comes now is late
	case Complete, Fail, Stop:
		next = end(next, c)
	case Resume:
		next.Run = c.Run
		next.StartTime, next.EndTime = nil, nil
		next.Cause, next.ExitCode, next.Error = nil, nil, ""
		next.Earlier, next.Resumes, next.Budget = r.Earlier.And(r.used()), r.Resumes+1, c.Budget
		next.Process, next.Progress, next.Usage, next.Survivors = nil, nil, nil, nil
		next.Notified, next.LastAnswer = false, nil
		next.Priority, next.Pool = c.Priority, c.Pool
		next.CreateTime = c.At
		next.Backgrounded, next.ToolUseID, next.Owner = c.Background, c.ToolUseID, c.Owner
		if c.Prompt != "" {
			next.Prompt = ShortPrompt(c.Prompt)
		}
	}
	switch c.Verb {
	case Rest, Wake, Ask, Answer, Pause, Thaw, Background, RequestStop:
		// Flags only: equal flags mean that nothing changes.
		if next.Idle == r.Idle && next.AwaitingApproval == r.AwaitingApproval && next.Paused == r.Paused &&
			next.Backgrounded == r.Backgrounded && next.Stopping == r.Stopping && len(next.Questions) == len(r.Questions) {
			return r, ErrNoChange
		}
	case Report: // what is told again as it was
		if next.OutputBytes == r.OutputBytes && reflect.DeepEqual(next.Progress, r.Progress) {
			return r, ErrNoChange
		}
	}
	return next, nil
}

// Reparents is the OnEnd of a task whose children go to its own parent when it
// ends by itself.
const Reparents = "reparent"

// reparent gives a run to another parent. Whoever waited for it in the foreground
// has gone, so its end is told. One that stands deeper in the tree keeps its
// parent and its owner, and only its depth changes.
func reparent(r Record, c Change) Record {
	if r.Parent != c.Parent {
		r.Parent, r.Owner, r.Backgrounded, r.Key = c.Parent, c.Owner, true, "" // the key means something to the old one only
	}
	r.Depth = c.Depth
	return r
}

// report takes progress in. The summary has another writer and is kept.
func report(r Record, c Change) Record {
	if c.Progress != nil {
		p := c.Progress.short()
		if r.Progress != nil {
			p.Summary = r.Progress.Summary
		}
		r.Progress = &p
	}
	if c.Summary != "" {
		p := Progress{}
		if r.Progress != nil {
			p = *r.Progress
		}
		p.Summary = Shortened(c.Summary, MaxRecordText)
		r.Progress = &p
	}
	r.OutputBytes = max(r.OutputBytes, c.OutputBytes)
	return r
}

// end closes a run. Every end takes the flags of life away, carries a cause,
// and is notified in the same step, so that no end can go without its notice.
func end(r Record, c Change) Record {
	r = report(r, c)
	at := c.At
	r.EndTime = &at
	r.Idle, r.AwaitingApproval, r.Paused, r.Stopping, r.Questions = false, false, false, false, nil
	r.Notified = true
	r.Cause = c.Cause.short()
	if r.Cause == nil {
		r.Cause = &Cause{Actor: ByItself, Reason: ReasonDone}
	}
	r.ExitCode = c.ExitCode
	r.Error = Shortened(c.Error, MaxRecordError)
	if c.Usage != nil {
		r.Usage = c.Usage
	}
	if c.Worktree != nil {
		r.Worktree = c.Worktree
	}
	r.Survivors = c.Survivors[:min(len(c.Survivors), MaxRecordSurvivors)]
	return r
}

// Lost is why a task ended whose host went without closing; boot is of the
// machine as it runs now, and empty if that is not known.
func Lost(r Record, boot string) *Cause {
	if p := r.Process; p != nil && boot != "" && p.Boot != boot {
		return &Cause{Actor: ByUnknown, Reason: ReasonReboot, Detail: "interrupted by a restart of the machine"}
	}
	return &Cause{Actor: ByKeeper, Reason: ReasonHostLost, Detail: "its host ended without closing"}
}

// Unfinished is the cause of a stop that an earlier host was asked for and did not
// live to finish. Who had asked is not known any more.
func Unfinished() Cause {
	return Cause{Actor: ByUnknown, Reason: ReasonStopped, Detail: "the stop was asked for under an earlier host"}
}

// Ending decides how a run is recorded, from two things only: the cause of its
// context and what Run returned. ok is false for work that goes on without
// this host: nothing is recorded then.
func Ending(cause error, res Result, err error) (c Change, ok bool) {
	c = Change{ExitCode: res.ExitCode, Survivors: res.Left, Usage: res.Usage}
	closing := errors.Is(cause, ErrClosing)
	var stop *StopError
	var fail *FailError
	var broken *PanicError
	switch {
	case err == nil:
		c.Verb = Complete
		c.Cause = &Cause{Actor: ByItself, Reason: ReasonDone}
	case closing && errors.Is(err, ErrDetached):
		return Change{}, false
	case errors.Is(err, ErrLost):
		c.Verb = Stop
		c.Cause = &Cause{Actor: ByUnknown, Reason: ReasonLost, Detail: strings.ReplaceAll(err.Error(), "\n", ": ")}
		errors.As(err, &stop)
		if stop != nil { // the driver knows what was lost: host, keeper, reboot
			c.Cause = &stop.Cause
		}
	case errors.As(err, &broken):
		c.Verb = Fail
		c.Cause = &Cause{Actor: ByItself, Reason: ReasonPanic}
		c.Error = fmt.Sprintf("panic: %v", broken.Value)
	case errors.As(cause, &stop):
		c.Verb = Stop
		why := stop.Cause
		why.Signal = res.Signal
		c.Cause = &why
	case errors.Is(cause, ErrStopRequested): // nobody said who
		c.Verb = Stop
		c.Cause = &Cause{Actor: ByUnknown, Reason: ReasonStopped, Signal: res.Signal}
	case closing:
		c.Verb = Stop
		c.Cause = &Cause{Actor: ByRuntime, Reason: ReasonClosing, Signal: res.Signal}
	case errors.Is(cause, ErrTimeout):
		c.Verb = Fail
		c.Cause = &Cause{Actor: ByRuntime, Reason: ReasonTimeout, Signal: res.Signal}
		c.Error = "the task's time limit passed"
	case errors.As(err, &fail):
		c.Verb = Fail
		c.Cause = &Cause{Actor: ByItself, Reason: fail.Reason, Signal: res.Signal, Detail: fail.Detail}
		switch fail.Reason {
		case ReasonOutputLimit, ReasonOutputQuota, ReasonOutputLoop, ReasonProcessLimit:
			c.Cause.Actor = ByRuntime
		}
		c.Error = err.Error()
	case errors.Is(cause, context.Canceled):
		c.Verb = Stop
		c.Cause = &Cause{Actor: ByUnknown, Reason: ReasonStopped, Signal: res.Signal}
	default:
		c.Verb = Fail
		c.Cause = &Cause{Actor: ByItself, Reason: ReasonError, Signal: res.Signal}
		c.Error = err.Error()
	}
	return c, true
}
