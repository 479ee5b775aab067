package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

var (
	errPlain   = errors.New("disk on fire")
	userStop   = &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped, Detail: "enough"}}
	limitStop  = &task.StopError{Cause: task.Cause{Actor: task.ByRuntime, Reason: task.ReasonParentEnded}}
	hostLost   = &task.StopError{Cause: task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost}}
	exitError  = &task.FailError{Reason: task.ReasonExit, Err: errors.New("exit code 2")}
	overQuota  = &task.FailError{Reason: task.ReasonOutputQuota, Err: errors.New("too much of all output")}
	selfReader = &task.FailError{Reason: task.ReasonOutputLoop, Err: errors.New("it reads what it writes")}
	crowded    = &task.FailError{Reason: task.ReasonProcessLimit, Err: errors.New("too many processes"), Detail: "too many processes"}
	starved    = &task.FailError{Reason: task.ReasonOutOfMemory, Err: errors.New("ended by SIGKILL: for want of memory"), Detail: "for want of memory"}
	overLimit  = &task.FailError{Reason: task.ReasonOutputLimit, Err: errors.New("too much output")}
	panicked   = &task.PanicError{Value: "index out of range"}
)

// endings are the rows of the contract of drivers, and
// what lies between them. docs/states.md shows them.
var endings = []struct {
	name   string
	cause  error
	err    error
	status task.Status // empty: nothing is recorded
	actor  task.Actor
	reason task.Reason
}{
	{"good", nil, nil, task.Completed, task.ByItself, task.ReasonDone},
	{"good-while-stopping", userStop, nil, task.Completed, task.ByItself, task.ReasonDone},
	{"good-while-closing", task.ErrClosing, nil, task.Completed, task.ByItself, task.ReasonDone},
	{"good-too-late", task.ErrTimeout, nil, task.Completed, task.ByItself, task.ReasonDone},

	{"stop", userStop, errPlain, task.Killed, task.ByUser, task.ReasonStopped},
	{"stop-cause-returned", userStop, userStop, task.Killed, task.ByUser, task.ReasonStopped},
	{"stop-by-runtime", limitStop, errPlain, task.Killed, task.ByRuntime, task.ReasonParentEnded},
	{"stop-with-exit-code", userStop, exitError, task.Killed, task.ByUser, task.ReasonStopped},
	{"stop-detached", userStop, task.ErrDetached, task.Killed, task.ByUser, task.ReasonStopped},
	{"stop-unnamed", task.ErrStopRequested, errPlain, task.Killed, task.ByUnknown, task.ReasonStopped},
	{"stop-unnamed-exit-code", task.ErrStopRequested, exitError, task.Killed, task.ByUnknown, task.ReasonStopped},

	{"closing-detached", task.ErrClosing, task.ErrDetached, "", "", ""},
	{"closing", task.ErrClosing, errPlain, task.Killed, task.ByRuntime, task.ReasonClosing},
	{"closing-exit-code", task.ErrClosing, exitError, task.Killed, task.ByRuntime, task.ReasonClosing},

	{"lost", nil, task.ErrLost, task.Killed, task.ByUnknown, task.ReasonLost},
	{"lost-while-stopping", userStop, task.ErrLost, task.Killed, task.ByUnknown, task.ReasonLost},
	{"lost-while-closing", task.ErrClosing, task.ErrLost, task.Killed, task.ByUnknown, task.ReasonLost},
	{"lost-with-host", nil, errors.Join(task.ErrLost, hostLost), task.Killed, task.ByKeeper, task.ReasonHostLost},

	{"error", nil, errPlain, task.Failed, task.ByItself, task.ReasonError},
	{"error-with-reason", nil, exitError, task.Failed, task.ByItself, task.ReasonExit},
	{"output-limit", nil, overLimit, task.Failed, task.ByRuntime, task.ReasonOutputLimit},
	{"output-quota", nil, overQuota, task.Failed, task.ByRuntime, task.ReasonOutputQuota},
	{"output-loop", nil, selfReader, task.Failed, task.ByRuntime, task.ReasonOutputLoop},
	{"process-limit", nil, crowded, task.Failed, task.ByRuntime, task.ReasonProcessLimit},
	{"out-of-memory", nil, starved, task.Failed, task.ByItself, task.ReasonOutOfMemory},
	{"detached-for-no-reason", nil, task.ErrDetached, task.Failed, task.ByItself, task.ReasonError},
	{"timeout", task.ErrTimeout, errPlain, task.Failed, task.ByRuntime, task.ReasonTimeout},
	{"timeout-exit-code", task.ErrTimeout, exitError, task.Failed, task.ByRuntime, task.ReasonTimeout},
	{"context-ended-unnamed", context.Canceled, context.Canceled, task.Killed, task.ByUnknown, task.ReasonStopped},

	{"panic", nil, panicked, task.Failed, task.ByItself, task.ReasonPanic},
	{"panic-while-stopping", userStop, panicked, task.Failed, task.ByItself, task.ReasonPanic},
	{"panic-while-closing", task.ErrClosing, panicked, task.Failed, task.ByItself, task.ReasonPanic},
}

func TestEnding(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			code := 2
			res := task.Result{ExitCode: &code, Usage: &task.Usage{Turns: 4}}
			// Drivers wrap what they return; the wrapping must not matter.
			for _, err := range []error{e.err, wrap(e.err)} {
				c, ok := lifecycle.Ending(e.cause, res, err)
				if ok != (e.status != "") {
					t.Fatalf("recorded: %v", ok)
				}
				if !ok {
					continue
				}
				got := apply(t, record(t, task.Running), c)
				if got.Status != e.status || got.Cause.Actor != e.actor || got.Cause.Reason != e.reason {
					t.Errorf("%v: got %s by %s (%s), want %s by %s (%s)", err,
						got.Status, got.Cause.Actor, got.Cause.Reason, e.status, e.actor, e.reason)
				}
				if got.ExitCode == nil || *got.ExitCode != 2 || got.Usage.Turns != 4 {
					t.Errorf("exit code and usage are lost: %+v", got)
				}
				if (got.Error != "") != (got.Status == task.Failed) {
					t.Errorf("%s with error %q", got.Status, got.Error)
				}
			}
		})
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("run: %w", err)
}

// A task that never began can end only badly, and then too it has a cause.
func TestEndingPending(t *testing.T) {
	start := &task.FailError{Reason: task.ReasonStart, Err: errors.New("no such program")}
	c, ok := lifecycle.Ending(nil, task.Result{}, start)
	if !ok {
		t.Fatal("not recorded")
	}
	got := apply(t, record(t, task.Pending), c)
	if got.Status != task.Failed || got.Cause.Reason != task.ReasonStart || got.StartTime != nil || got.ExitCode != nil {
		t.Errorf("got %+v", got)
	}
}

func TestEndingSignal(t *testing.T) {
	res := task.Result{Signal: "SIGKILL"}
	for _, cause := range []error{userStop, task.ErrClosing, task.ErrTimeout, nil} {
		c, ok := lifecycle.Ending(cause, res, exitError)
		if !ok || c.Cause.Signal != "SIGKILL" {
			t.Errorf("%v: the signal is lost: %+v", cause, c.Cause)
		}
	}
	if userStop.Cause.Signal != "" {
		t.Error("the cause that others hold was altered")
	}
}

func TestEndingTexts(t *testing.T) {
	c, _ := lifecycle.Ending(nil, task.Result{}, panicked)
	if !strings.Contains(c.Error, "index out of range") {
		t.Errorf("the value of the panic is lost: %q", c.Error)
	}
	c, _ = lifecycle.Ending(userStop, task.Result{}, errPlain)
	if c.Cause.Detail != "enough" {
		t.Errorf("why it was stopped is lost: %+v", c.Cause)
	}
	if c, _ = lifecycle.Ending(nil, task.Result{}, wrap(starved)); c.Cause.Detail != "for want of memory" {
		t.Errorf("what the driver knows of it is lost: %+v", c.Cause)
	}
	c, _ = lifecycle.Ending(nil, task.Result{}, fmt.Errorf("adopt: %w", task.ErrLost))
	if !strings.HasPrefix(c.Cause.Detail, "adopt: ") {
		t.Errorf("what was lost is not told: %+v", c.Cause)
	}
}

func TestStopError(t *testing.T) {
	err := fmt.Errorf("turn: %w", userStop)
	if !errors.Is(err, task.ErrStopRequested) {
		t.Error("a *StopError is not ErrStopRequested")
	}
	if errors.Is(err, task.ErrClosing) {
		t.Error("a *StopError is ErrClosing")
	}
}
