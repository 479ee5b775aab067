package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// Change is a request to move a run: a verb and what goes with it.
type Change struct {
	Verb        task.Verb
	At          time.Time
	Cause       *task.Cause   // Fail, Stop; a Complete without one is by itself
	ExitCode    *int          // Complete, Fail, Stop
	Error       string        // Fail
	Process     *task.Process // Begin: what does the work, if that is a process
	Progress    *task.Progress
	Summary     string // Report: by the summary service; empty leaves it alone
	Usage       *task.Usage
	Worktree    *task.Worktree  // Complete, Fail, Stop; nil leaves it alone
	Survivors   []task.Survivor // Complete, Fail, Stop: processes that could not be ended
	LeftTasks   []task.LeftTask // Complete, Fail, Stop
	WaitsFor    string          // Rest
	Notes       []string        // Complete, Fail, Stop
	Made        []string        // Complete, Fail, Stop
	OutputBytes int64
	Checkpoint  []byte
	Question    *task.Question // Ask
	Answered    *task.Answered // Answer
	Run         task.RunID     // Resume: the new run
	Background  bool           // Resume: no caller waits for it in the foreground
	ToolUseID   string         // Resume: the call that asked for it
	Owner       task.ID        // Resume, Reparent: gets the notification of the end; empty: no task does
	Parent      task.ID        // Reparent: empty: the main agent, or none
	Depth       int            // Reparent
	Budget      task.Budget    // Resume
	Prompt      string         // Resume: of the new run
	Priority    task.Priority  // Resume: of its notification
	Pool        string         // Resume: limits how many such tasks run at once
	Parked      *task.Parked   // Park: the limit that holds it
	Attempt     *task.Attempt  // Retry: the failed one
	Worker      string         // Begin: does the work on another machine; the Checkpoint then begins with it
}

// ErrNoChange is returned by [Apply] for a change that would alter nothing, and
// ErrNotAsked for an answer to a question that is not open.
var (
	ErrNoChange = errors.New("nothing changes")
	ErrNotAsked = errors.New("no such question is open")
)

// transitions is the state table: where a verb leads from a status. A pair that
// is missing is refused.
func transition(from task.Status, v task.Verb) (task.Status, bool) {
	switch v {
	case task.Begin:
		return task.Running, from == task.Pending
	case task.Save, task.Rest, task.Wake, task.Ask, task.Answer, task.Park, task.Unpark:
		return task.Running, from == task.Running
	case task.Retry:
		return task.Pending, from == task.Running
	case task.Report, task.Pause, task.Thaw, task.Background, task.Reparent, task.RequestStop:
		return from, !from.Terminal()
	case task.Complete:
		return task.Completed, from == task.Running
	case task.Fail:
		return task.Failed, !from.Terminal()
	case task.Stop:
		return task.Killed, !from.Terminal()
	case task.Resume:
		return task.Pending, from.Terminal()
	case task.MarkSeen:
		return from, from.Terminal()
	}
	return from, false
}

// Apply is the only rule by which a task changes. It returns the record after
// the change, a [*MoveError] for a change that is not allowed, [ErrNoChange] or
// [ErrNotAsked].
// The record that was given is never altered.
func Apply(r task.Record, c Change) (task.Record, error) {
	to, ok := transition(r.Status, c.Verb)
	if !ok {
		return r, &task.MoveError{ID: r.ID, From: r.Status, Verb: c.Verb}
	}
	next := r
	next.Status = to
	switch c.Verb {
	case task.Begin:
		if next.Process = c.Process; len(r.Attempts) == 0 {
			at := c.At
			next.StartTime = &at
		}
		if c.Worker != "" {
			next.Worker, next.Checkpoint = c.Worker, c.Checkpoint
		}
	case task.Report:
		next = report(next, c)
	case task.Save:
		next.Checkpoint = c.Checkpoint
	case task.Rest:
		next.Idle, next.WaitsFor = true, c.WaitsFor
	case task.Wake:
		next.Idle, next.WaitsFor = false, ""
	case task.Ask:
		next = ask(next, c)
	case task.Answer:
		if next, ok = answer(next, c); !ok {
			return r, ErrNotAsked
		}
	case task.Pause:
		next.Paused = true
	case task.Thaw:
		next.Paused = false
	case task.Park:
		next.Parked = shortParked(c.Parked)
	case task.Unpark:
		next.Parked = nil
	case task.Retry:
		next.Process, next.Worker = nil, ""
		next.Attempts = append(slices.Clip(r.Attempts), *c.Attempt)
	case task.Background:
		next.Backgrounded = true
	case task.Reparent:
		next = reparent(next, c)
	case task.RequestStop:
		next.Stopping = true
		next.Questions, next.AwaitingApproval = nil, false // an answer that comes now is late
	case task.Complete, task.Fail, task.Stop:
		next = end(next, c)
	case task.Resume:
		next.Run = c.Run
		next.StartTime, next.EndTime = nil, nil
		next.Cause, next.ExitCode, next.Error = nil, nil, ""
		next.Earlier, next.Resumes, next.Budget = r.Earlier.And(r.Used()), r.Resumes+1, c.Budget
		next.Process, next.Progress, next.Usage = nil, nil, nil
		next.Survivors, next.Notes, next.Made, next.LeftTasks = nil, nil, nil, nil
		next.Worker = ""
		next.Notified, next.Seen, next.LastAnswer, next.Attempts = false, false, nil, nil
		next.Priority, next.Pool = c.Priority, c.Pool
		next.CreateTime = c.At
		next.Backgrounded, next.ToolUseID, next.Owner = c.Background, c.ToolUseID, c.Owner
		if c.Prompt != "" {
			next.Prompt = ShortPrompt(c.Prompt)
		}
	case task.MarkSeen:
		if r.Seen {
			return r, ErrNoChange
		}
		next.Seen = true
	}
	switch c.Verb {
	case task.Park, task.Unpark:
		if reflect.DeepEqual(next.Parked, r.Parked) {
			return r, ErrNoChange
		}
	case task.Rest, task.Wake, task.Ask, task.Answer, task.Pause, task.Thaw, task.Background, task.RequestStop:
		// Flags only: equal flags mean that nothing changes.
		if next.Idle == r.Idle && next.WaitsFor == r.WaitsFor &&
			next.AwaitingApproval == r.AwaitingApproval && next.Paused == r.Paused &&
			next.Backgrounded == r.Backgrounded && next.Stopping == r.Stopping && len(next.Questions) == len(r.Questions) {
			return r, ErrNoChange
		}
	case task.Report: // the same report again
		if next.OutputBytes == r.OutputBytes && reflect.DeepEqual(next.Progress, r.Progress) {
			return r, ErrNoChange
		}
	}
	return next, nil
}

// reparent gives a run to another parent. The caller that waited for it in the foreground
// has gone, so the new owner is notified of its end. A run deeper in the tree keeps its
// parent and its owner, and only its depth changes.
func reparent(r task.Record, c Change) task.Record {
	if r.Parent != c.Parent {
		r.Parent, r.Owner, r.Backgrounded, r.Key = c.Parent, c.Owner, true, "" // the key means something to the old one only
	}
	r.Depth = c.Depth
	return r
}

// report takes progress in. The summary has another writer and is kept.
func report(r task.Record, c Change) task.Record {
	if c.Progress != nil {
		p := shortProgress(*c.Progress)
		if r.Progress != nil {
			p.Summary = r.Progress.Summary
		}
		r.Progress = &p
	}
	if c.Summary != "" {
		p := task.Progress{}
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
// and is notified in the same step, so that no end can go without its notification.
func end(r task.Record, c Change) task.Record {
	r = report(r, c)
	at := c.At
	r.EndTime = &at
	r.Idle, r.AwaitingApproval, r.Paused, r.Stopping, r.Questions = false, false, false, false, nil
	r.WaitsFor, r.Parked = "", nil
	r.Notified = true
	r.Cause = shortCause(c.Cause)
	if r.Cause == nil {
		r.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}
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
	r.LeftTasks = c.LeftTasks[:min(len(c.LeftTasks), MaxRecordLeft)]
	r.Notes, r.Made = shortNotes(c.Notes), shortNotes(c.Made)
	return r
}

// Unfinished is the cause of a stop that an earlier host was asked for and did not
// live to finish. Who had asked is not known any more.
func Unfinished() task.Cause {
	return task.Cause{Actor: task.ByUnknown, Reason: task.ReasonStopped,
		Detail: "the stop was asked for under an earlier host"}
}

// Ending decides how a run is recorded, from two things only: the cause of its
// context and the result of Run. ok is false for work that continues without
// this host: its end is not recorded.
func Ending(cause error, res task.Result, err error) (c Change, ok bool) {
	c = Change{ExitCode: res.ExitCode, Survivors: res.Left, Notes: res.Notes, Made: res.Made, Usage: res.Usage}
	closing := errors.Is(cause, task.ErrClosing)
	var stop *task.StopError
	var fail *task.FailError
	var broken *task.PanicError
	switch {
	case err == nil:
		c.Verb = task.Complete
		c.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}
	case closing && errors.Is(err, task.ErrDetached):
		return Change{}, false
	case errors.Is(err, task.ErrLost):
		c.Verb = task.Stop
		c.Cause = &task.Cause{Actor: task.ByUnknown, Reason: task.ReasonLost, Detail: strings.ReplaceAll(err.Error(),
			"\n", ": ")}
		errors.As(err, &stop)
		if stop != nil { // the driver knows the loss: host, keeper, reboot
			c.Cause = &stop.Cause
		}
	case errors.As(err, &broken):
		c.Verb = task.Fail
		c.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonPanic}
		c.Error = fmt.Sprintf("panic: %v", broken.Value)
	case errors.As(cause, &stop):
		c.Verb = task.Stop
		why := stop.Cause
		why.Signal = res.Signal
		c.Cause = &why
	case errors.Is(cause, task.ErrStopRequested): // by an unknown actor
		c.Verb = task.Stop
		c.Cause = &task.Cause{Actor: task.ByUnknown, Reason: task.ReasonStopped, Signal: res.Signal}
	case closing:
		c.Verb = task.Stop
		c.Cause = &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Signal: res.Signal}
	case errors.Is(cause, task.ErrTimeout):
		c.Verb = task.Fail
		c.Cause = &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonTimeout, Signal: res.Signal}
		c.Error = "the task's time limit passed"
	case errors.As(err, &fail):
		c.Verb = task.Fail
		c.Cause = &task.Cause{Actor: task.ByItself, Reason: fail.Reason, Signal: res.Signal, Detail: fail.Detail}
		switch fail.Reason {
		case task.ReasonOutputLimit, task.ReasonOutputQuota, task.ReasonOutputLoop, task.ReasonProcessLimit:
			c.Cause.Actor = task.ByRuntime
		}
		c.Error = err.Error()
	case errors.Is(cause, context.Canceled):
		c.Verb = task.Stop
		c.Cause = &task.Cause{Actor: task.ByUnknown, Reason: task.ReasonStopped, Signal: res.Signal}
	default:
		c.Verb = task.Fail
		c.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonError, Signal: res.Signal}
		c.Error = err.Error()
	}
	return c, true
}
