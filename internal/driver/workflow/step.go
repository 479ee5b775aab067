package workflow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// maxLost bounds how often one run begins a step again that was lost with its host.
const maxLost = 3

// performance is a step at work, on a goroutine of its own.
type performance struct {
	r     *run
	st    *state // not to be read here but by what never changes
	a     Attempt
	done  done
	tried int
	usage *task.Usage
}

// perform does the step and reports its end, whatever happens. ctx is the context of
// the run; work ends earlier when another step fails.
func (p *performance) perform(ctx, work context.Context) {
	defer func() {
		if v := recover(); v != nil {
			p.fail(ctx, fmt.Errorf("panic: %v", v))
		}
		p.r.events <- event{st: p.st, ended: true, done: p.done, usage: p.usage}
	}()
	err := p.r.h.WaitWhilePaused(work)
	switch {
	case err != nil:
	case p.a.Step.Approval != "":
		err = p.approve(ctx, work)
	default:
		err = p.try(ctx, work)
	}
	p.fail(ctx, err)
}

// fail notes an error as the end of the step. nil changes nothing.
func (p *performance) fail(ctx context.Context, err error) {
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, errSibling):
		p.done.Status, p.done.Error = task.StepKilled, oneLine(err.Error())
	default:
		p.done.Status, p.done.Error = task.StepFailed, oneLine(err.Error())
	}
}

// tell reports the state of the step.
func (p *performance) tell(waits string) {
	p.r.events <- event{st: p.st, done: p.done, waits: waits}
}

// approve asks. Who is denied has failed.
func (p *performance) approve(ctx, work context.Context) error {
	wait := p.a.Step.Timeout
	if wait == 0 {
		wait = p.r.steps.Patience()
	}
	if wait <= 0 {
		return errors.New("nobody is there to approve it")
	}
	p.tell("waits for an answer: " + p.a.Text)
	reply, err := p.r.h.Ask(work, question(p.a, time.Now().Add(wait)))
	switch {
	case err != nil:
		return cause(ctx, work, err)
	case !reply.Allow && reply.Reason != "":
		return fmt.Errorf("denied: %s", reply.Reason)
	case !reply.Allow:
		return errors.New("denied")
	}
	p.done.Status, p.done.Text = task.StepCompleted, reply.Text
	return nil
}

// cause is why a wait was broken off: the run's own end, or a sibling's.
func cause(ctx, work context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case work.Err() != nil:
		return context.Cause(work)
	}
	return err
}

// try does the step until it is done, or has no further try.
func (p *performance) try(ctx, work context.Context) error {
	failures, lost := 0, 0
	for n := max(1, p.tried); ; n++ {
		rec, old, err := p.child(ctx, work, n)
		if !old || rec.Status == task.Completed { // a lost try reports no usage, and a failed one was counted
			p.usage = p.usage.And(rec.Usage)
		}
		if err != nil {
			return err
		}
		p.done.Task, p.done.Attempt, p.done.Exit, p.done.Tree = rec.ID, n, exit(rec), checkout(rec)
		switch {
		case rec.Status == task.Completed:
			p.done.Status = task.StepCompleted
			return nil
		case old && rec.Status == task.Failed && n > p.tried:
			failures = min(failures+1, p.a.Step.Retries.Max) // before a crash; the resume is worth one try in any case
			continue
		case old:
			continue
		}
		if gone(rec) && lost < maxLost {
			lost++
			continue
		}
		if rec.Status != task.Failed || failures >= p.a.Step.Retries.Max {
			return p.ends(rec)
		}
		failures++
		if err := p.pause(ctx, work, rec, failures); err != nil {
			return err
		}
	}
}

// ends is why a step has failed whose last try has ended.
func (p *performance) ends(rec task.Record) error {
	if rec.Status == task.Killed {
		why := "it was stopped"
		if rec.Cause != nil {
			why = fmt.Sprintf("it was stopped (by %s: %s)", rec.Cause.Actor, rec.Cause.Reason)
		}
		p.done.Status, p.done.Error = task.StepKilled, why
		return nil
	}
	if rec.Error == "" {
		return errors.New("unknown error")
	}
	return errors.New(rec.Error)
}

// gone reports whether a try was lost with its host, which is not its own failure.
func gone(r task.Record) bool {
	if r.Status != task.Killed || r.Cause == nil {
		return false
	}
	switch r.Cause.Reason {
	case task.ReasonHostLost, task.ReasonLost, task.ReasonReboot:
		return true
	}
	return false
}

// pause waits between two tries.
func (p *performance) pause(ctx, work context.Context, rec task.Record, n int) error {
	wait := p.a.Step.Retries.Wait(n)
	p.tell(fmt.Sprintf("attempt %d failed (%s), the next in %s", p.done.Attempt, oneLine(rec.Error), wait))
	select {
	case <-time.After(wait):
	case <-work.Done():
		return cause(ctx, work, context.Cause(work))
	}
	return cause(ctx, work, p.r.h.WaitWhilePaused(work))
}

// child starts the n-th try, or finds it from an earlier run, and waits for its
// end.
func (p *performance) child(ctx, work context.Context, n int) (rec task.Record, old bool, err error) {
	a := p.a
	a.N, a.Key = n, a.Step.ID+"/"+strconv.Itoa(n)
	rec, err = p.r.steps.Start(work, p.r.h, a)
	old = err == nil && rec.Status != task.Pending
	if old && resumable(rec) {
		rec, err = p.r.steps.Again(work, p.r.h, rec.ID, a)
		old = false
	}
	if err != nil {
		if p.r.steps.Barred(err) { // the end of the run is under way, and must not pass for a failure
			<-ctx.Done()
		}
		return rec, old, cause(ctx, work, err)
	}
	if !old {
		p.done.Task, p.done.Attempt = rec.ID, n
		p.tell("")
	}
	_ = failpoint.Hit("step/begun")
	got, err := p.r.h.Await(work, rec.ID)
	switch {
	case err == nil && got.Status.Terminal():
		return got, old, nil
	case err == nil:
		err = errors.New("it was moved to the background")
	}
	if ctx.Err() != nil { // the runtime stops the tasks below this one
		return got, old, context.Cause(ctx)
	}
	why := cause(ctx, work, err)
	if err := p.r.steps.Stop(ctx, rec.ID, why.Error()); err != nil {
		return got, old, cause(ctx, ctx, fmt.Errorf("%w; and its task %s could not be stopped: %w", why, rec.ID, err))
	}
	if got, err = p.r.h.Await(ctx, rec.ID); err == nil && got.Status == task.Completed { // it was faster than the stop
		return got, old, nil
	}
	return got, old, cause(ctx, ctx, why)
}

// resumable reports whether a step that is a workflow has gone some way in an earlier
// run: it continues, where another step would begin anew.
func resumable(r task.Record) bool {
	return r.Kind == task.LocalWorkflow && (r.Status == task.Killed || r.Status == task.Failed) && len(r.Checkpoint) > 0
}

func exit(r task.Record) string {
	if r.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*r.ExitCode)
}

// checkout is the path of what an isolated agent has left, or empty.
func checkout(r task.Record) string {
	if r.Worktree == nil || r.Worktree.Removed {
		return ""
	}
	return r.Worktree.Path
}
