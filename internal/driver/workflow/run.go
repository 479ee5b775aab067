package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	flow "github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/task"
)

// run is one run of a workflow. All of it belongs to the goroutine of Run; the
// goroutines of the steps report to it by events.
type run struct {
	steps Steps
	h     task.Host
	saved saved

	resumed bool // this is not the first run

	order  []*state // of the file
	states map[string]*state
	after  map[string][]string
	failed *state // the first step that has failed and was not to continue
	why    error  // what else ends the run, such as a checkpoint that could not be written
	usage  *task.Usage

	events chan event
	at     int // steps at work
}

// state is a step in a run.
type state struct {
	flow.Step
	done  done
	tried int  // tries that are known to have ended, in earlier runs
	ready bool // it waits for a place

	halt   context.CancelCauseFunc // of a step at work
	output *string                 // once it was read
}

// event is a report from the goroutine of a step.
type event struct {
	st    *state
	ended bool
	done  done // as far as it is known
	usage *task.Usage
	waits string // the reason for its wait, for people
}

func ended(s task.StepStatus) bool {
	return s != task.StepPending && s != task.StepRunning
}

// errSibling is the cause of the end of a step when another has failed.
var errSibling = errors.New("another step has failed")

// run goes through the graph.
func (r *run) run(ctx context.Context) (task.Result, error) {
	if err := r.checkpoint(ctx); err != nil {
		return task.Result{}, err
	}
	r.report("")
	var calls sync.WaitGroup // one for each step at work
	over := ctx.Done()
	for {
		r.settle(ctx)
		for ctx.Err() == nil && r.why == nil && r.at < r.saved.Plan.Parallel {
			st := r.next()
			if st == nil {
				break
			}
			r.begin(ctx, &calls, st)
		}
		if r.at == 0 {
			break
		}
		select {
		case e := <-r.events:
			r.take(ctx, e)
		case <-over: // the steps see it too
			over = nil
		}
	}
	calls.Wait()
	return r.conclude(ctx)
}

// conclude says how the run has ended.
func (r *run) conclude(ctx context.Context) (task.Result, error) {
	res := task.Result{Usage: r.usage}
	err := context.Cause(ctx)
	if err == nil {
		err = r.why
	}
	if err != nil {
		r.report("")
		return res, err
	}
	res.Text, err = r.outputs(ctx)
	if err == nil && r.failed != nil {
		err = &task.FailError{Reason: ReasonStep, Err: fmt.Errorf("step %s: %s", r.failed.ID, describe(r.failed.done))}
	}
	r.report("")
	return res, err
}

// settle looks which steps have nothing left to wait for: they are to be done, or
// are skipped, which may free others.
func (r *run) settle(ctx context.Context) {
	for moved := true; moved && ctx.Err() == nil && r.why == nil; {
		moved = false
		for _, st := range r.order {
			if st.done.Status != task.StepPending || st.ready && r.failed == nil || !r.free(st) {
				continue
			}
			wanted, err := st.Wanted(r.scope(ctx))
			switch {
			case err != nil:
				r.end(ctx, st, done{ID: st.ID, Status: task.StepFailed, Error: oneLine(err.Error())}, nil)
			case !wanted:
				r.end(ctx, st, done{ID: st.ID, Status: task.StepSkipped}, nil)
			case st.ready:
				continue
			default:
				st.ready = true
			}
			moved = true
		}
	}
}

// free reports whether all that a step waits for has ended.
func (r *run) free(st *state) bool {
	for _, id := range r.after[st.ID] {
		if !ended(r.states[id].done.Status) {
			return false
		}
	}
	return true
}

// next is the first step of the file that can begin.
func (r *run) next() *state {
	for _, st := range r.order {
		if st.ready && st.done.Status == task.StepPending {
			return st
		}
	}
	return nil
}

// begin starts the goroutine of a step.
func (r *run) begin(ctx context.Context, calls *sync.WaitGroup, st *state) {
	a, err := r.attempt(ctx, st.Step)
	if err != nil {
		r.end(ctx, st, done{ID: st.ID, Status: task.StepFailed, Error: oneLine(err.Error())}, nil)
		return
	}
	work, halt := context.WithCancelCause(ctx)
	st.halt = halt
	st.done = done{ID: st.ID, Status: task.StepRunning, Start: time.Now().UTC()}
	r.at++
	p := &performance{r: r, st: st, a: a, tried: st.tried, done: st.done}
	calls.Go(func() { // joined by run, which takes its events
		defer halt(nil)
		p.perform(ctx, work)
	})
}

// take notes the event of a step.
func (r *run) take(ctx context.Context, e event) {
	if e.ended {
		r.at--
		r.end(ctx, e.st, e.done, e.usage)
		return
	}
	e.st.done = e.done
	switch {
	case e.waits != "":
		r.report("%s: %s", e.st.ID, e.waits)
	case e.done.Attempt > 1:
		r.report("%s: running as %s, attempt %d", e.st.ID, e.done.Task, e.done.Attempt)
	default:
		r.report("%s: running as %s", e.st.ID, e.done.Task)
	}
}

// end notes that a step has ended, and makes it durable. The first failure stops
// the running steps.
func (r *run) end(ctx context.Context, st *state, d done, usage *task.Usage) {
	r.usage = r.usage.And(usage)
	if d.End = time.Now().UTC(); d.Start.IsZero() {
		d.Start = d.End
	}
	st.done = d
	took := ""
	if d.Status == task.StepCompleted {
		took = fmt.Sprintf(" in %s", d.End.Sub(d.Start).Round(time.Millisecond))
	}
	r.report("%s: %s%s", st.ID, describe(d), took)
	r.saved.Done = append(r.saved.Done, d)
	_ = failpoint.Hit("step/ended")
	if ctx.Err() == nil && d.Status != task.StepSkipped { // who is skipped is so by the others
		if err := r.checkpoint(ctx); err != nil && r.why == nil {
			r.why = err
			r.halt()
		}
	}
	if bad := d.Status == task.StepFailed ||
		d.Status == task.StepKilled; bad && !st.Continue && r.failed == nil &&
		ctx.Err() == nil {
		r.failed = st
		r.halt()
	}
}

// halt stops the steps at work that are not to go on after a failure.
func (r *run) halt() {
	for _, st := range r.order {
		if st.done.Status == task.StepRunning && (r.why != nil || !st.Handles()) {
			st.halt(errSibling)
		}
	}
}

// report shows how far the run has come, and prints a line if there is one.
func (r *run) report(format string, args ...any) {
	list := make([]task.Step, len(r.order))
	over := 0
	for i, st := range r.order {
		d := st.done
		list[i] = task.Step{
			ID:      d.ID,
			Needs:   st.Needs,
			Status:  d.Status,
			Task:    d.Task,
			Attempt: d.Attempt,
			Error:   d.Error,
			Start:   d.Start,
			End:     d.End,
		}
		if ended(d.Status) {
			over++
		}
	}
	text := fmt.Sprintf("%d of %d steps", over, len(list))
	if now := r.running(); len(now) > 0 {
		text += ", at " + strings.Join(now[:min(len(now), 5)], ", ")
	}
	p := task.Progress{Message: text, Steps: list}
	if r.usage != nil {
		p.TokenCount, p.ToolUseCount = r.usage.TotalTokens, r.usage.ToolUses
	}
	r.h.Progress(p)
	if format != "" {
		_, _ = fmt.Fprintln(r.h.Output(), oneLine(fmt.Sprintf(format, args...))) // the steps continue without their log
	}
}

// output returns the output of a step, read when it is first asked for.
func (r *run) output(ctx context.Context, st *state) (string, error) {
	if st.output != nil {
		return *st.output, nil
	}
	text := st.done.Text
	if st.done.Task != "" {
		var err error
		if text, err = r.steps.Text(ctx, st.done.Task); err != nil {
			return "", fmt.Errorf("read output of step %s: %w", st.ID, err)
		}
	}
	text = strings.TrimSpace(tail(strings.ToValidUTF8(text, "\uFFFD"), flow.MaxOutput))
	st.output = &text
	return text, nil
}

// tail is the end of a text, begun at a letter.
func tail(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// question is what an approval puts to people.
func question(a Attempt, until time.Time) task.Question {
	input, err := json.Marshal(map[string]string{"workflow": a.Workflow, "step": a.Step.ID, "message": a.Text})
	if err != nil {
		panic(err) // texts only
	}
	return task.Question{Kind: task.Permission, Tool: "workflow", Input: input, Reason: a.Text, Until: until.UTC()}
}

// oneLine makes a text fit for a listing.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 300 {
		return string(r[:299]) + "…"
	}
	return text
}
