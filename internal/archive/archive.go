// Package archive is a session that has no host: the read-only [control.API]
// over what it left in its folder.
//
// It promises true states: a task that the log shows as running is shown as
// running only if its process lives now, and otherwise as the next host will
// record it. It writes nothing, and everything that would start or change
// something is refused with the way to do it.
package archive

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/control"
	"github.com/drover-dev/drover/internal/home"
	"github.com/drover-dev/drover/internal/journal"
	"github.com/drover-dev/drover/internal/process"
	"github.com/drover-dev/drover/task"
)

// Archive is what a session left. Its methods may be called by several
// goroutines.
type Archive struct {
	info  control.Info
	log   *journal.Journal
	tasks []journal.State // newest first
}

var _ control.API = (*Archive)(nil)

// Open reads what the session left.
func Open(ctx context.Context, place home.Session, info control.Info) (*Archive, error) {
	log, err := journal.Open(place.DB(), journal.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", place.ID(), err)
	}
	states, err := log.Tasks(ctx)
	if err != nil {
		_ = log.Close() // the first failure is the one to tell
		return nil, fmt.Errorf("read session %s: %w", place.ID(), err)
	}
	slices.Reverse(states)
	a := &Archive{info: info, log: log, tasks: states}
	a.info.Live, a.info.PID = false, 0
	a.info.Tasks = control.Counts{Total: len(states)}
	for i := range a.tasks {
		a.tasks[i].Task = truth(a.tasks[i].Task, place.ExitFile(a.tasks[i].Task.ID))
		if !a.tasks[i].Task.Status.Terminal() {
			a.info.Tasks.Live++
		}
	}
	return a, nil
}

// truth is what the next host will find of a task, without recording it.
func truth(r task.Record, exitFile string) task.Record {
	if r.Status.Terminal() {
		return r
	}
	c := task.Change{Verb: task.Stop, At: time.Now().UTC(), Cause: &task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost, Detail: "its host ended without closing"}}
	if p := r.Process; p != nil {
		id := process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}
		if process.Alive(id) {
			return r
		}
		if d, err := process.ReadDeparture(exitFile, id); err == nil && r.Keep {
			c = departed(d)
		}
	}
	next, err := task.Apply(r, c)
	if err != nil {
		return r
	}
	return next
}

// departed is the end that the parent of a kept command wrote down.
func departed(d process.Departure) task.Change {
	c := task.Change{At: d.At.UTC(), ExitCode: &d.ExitCode, Verb: task.Complete}
	switch {
	case d.Signal != "":
		c.Verb, c.Cause = task.Fail, &task.Cause{Actor: task.ByItself, Reason: task.ReasonSignal, Signal: d.Signal}
	case d.ExitCode != 0:
		c.Verb, c.Cause = task.Fail, &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
		c.Error = fmt.Sprintf("exit code %d", d.ExitCode)
	}
	return c
}

// Kept reports whether a command of the session still lives without a host.
func (a *Archive) Kept() bool {
	return slices.ContainsFunc(a.tasks, func(s journal.State) bool { return s.Task.Keep && !s.Task.Status.Terminal() })
}

// Close lets go of the files.
func (a *Archive) Close() error { return a.log.Close() }

// Info says which session this is.
func (a *Archive) Info(context.Context) (control.Info, error) { return a.info, nil }

// List returns tasks, newest first.
func (a *Archive) List(_ context.Context, req control.ListRequest) (control.Page, error) {
	page := control.Page{Tasks: []task.Record{}}
	for _, s := range a.tasks {
		r := s.Task
		if req.Before > 0 && s.Born >= req.Before || !req.All && r.Status.Terminal() || req.Under != "" && !a.under(r, req.Under) {
			continue
		}
		if req.Limit > 0 && len(page.Tasks) == req.Limit {
			page.Next = s.Born + 1
			break
		}
		page.Tasks = append(page.Tasks, r)
	}
	return page, nil
}

func (a *Archive) under(r task.Record, root task.ID) bool {
	for r.ID != root {
		i := slices.IndexFunc(a.tasks, func(s journal.State) bool { return s.Task.ID == r.Parent })
		if i < 0 {
			return false
		}
		r = a.tasks[i].Task
	}
	return true
}

// Get returns one task.
func (a *Archive) Get(_ context.Context, ref string) (task.Record, error) {
	var matches []task.Record
	for _, s := range a.tasks {
		if string(s.Task.ID) == ref || s.Task.Name != "" && s.Task.Name == ref {
			return s.Task, nil
		}
		if len(ref) >= 2 && strings.HasPrefix(string(s.Task.ID), ref) {
			matches = append(matches, s.Task)
		}
	}
	switch len(matches) {
	case 0:
		return task.Record{}, control.NotFoundError(ref)
	case 1:
		return matches[0], nil
	}
	e := &control.Error{Code: control.Ambiguous, Message: fmt.Sprintf("%q fits %d tasks", ref, len(matches)), Mend: "give more of the ID"}
	for _, m := range matches {
		e.Matches = append(e.Matches, string(m.ID))
	}
	return task.Record{}, e
}

// Wait returns at once: nothing here changes by itself.
func (a *Archive) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	reply := control.WaitReply{}
	for _, ref := range req.Refs {
		r, err := a.Get(ctx, ref)
		if err != nil {
			return reply, err
		}
		reply.Tasks = append(reply.Tasks, r)
		reply.TimedOut = reply.TimedOut || !r.Status.Terminal()
	}
	return reply, nil
}

// Stop tells how tasks have ended. One that still lives needs a host first.
func (a *Archive) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	receipt := task.Receipt{Survivors: []task.Survivor{}}
	for _, ref := range req.Refs {
		r, err := a.Get(ctx, ref)
		if err != nil {
			return receipt, err
		}
		if !r.Status.Terminal() {
			return receipt, a.refuse("stop " + ref)
		}
		receipt.Stopped = append(receipt.Stopped, task.Stopped{ID: r.ID, Status: r.Status, Cause: r.Cause, Signals: []task.SignalSent{}})
	}
	return receipt, nil
}

// Output reads the output of a task.
func (a *Archive) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	r, err := a.Get(ctx, req.Ref)
	if err != nil {
		return control.Chunk{}, err
	}
	c, err := Output(r, req)
	if err == nil && req.Wait > 0 && len(c.Data) == 0 {
		c.Ended = true // nobody is here to tell of more
	}
	return c, err
}

// Result is the final answer of a task.
func (a *Archive) Result(ctx context.Context, ref string) (control.Answer, error) {
	r, err := a.Get(ctx, ref)
	if err != nil {
		return control.Answer{}, err
	}
	text, err := a.log.Answer(ctx, r.Run)
	if err != nil {
		return control.Answer{}, err
	}
	return Answer(r, text)
}

// Events yields what is there and ends.
func (a *Archive) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return a.log.Events(ctx, after)
}

// Start is refused.
func (a *Archive) Start(context.Context, []control.StartRequest) ([]control.Started, error) {
	return nil, a.refuse("start")
}

// Promote is refused.
func (a *Archive) Promote(_ context.Context, ref string) (task.Record, error) {
	return task.Record{}, a.refuse("promote " + ref)
}

// Prompt is refused.
func (a *Archive) Prompt(context.Context, control.PromptRequest) error { return a.refuse("prompt") }

// Hold is refused.
func (a *Archive) Hold(context.Context, string) error { return a.refuse("hold") }

func (a *Archive) refuse(what string) error {
	return &control.Error{Code: control.Unavailable, Message: fmt.Sprintf("cannot %s: session %s has ended", what, a.info.Session), Mend: "start something new with `drover run -d` or `drover -p`"}
}
