// Package archive is the read-only [control.API] over the files of a session without
// a host, or whose host is suspended.
//
// States are accurate: a task that the log shows as running is shown as running only
// if its process is alive now, and otherwise as the next host will record it. The
// package writes nothing. Calls that would start or change something are refused
// with an error that says how to do it.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Archive is the log and files of a session without a host. Its methods may be called by
// several goroutines.
type Archive struct {
	control.Refusing
	info  control.Info
	place home.Session
	log   *journal.Journal
	all   func() ([]journal.State, error) // newest first; read once, when all are needed
}

var _ control.API = (*Archive)(nil)

// Open opens the files of a session. It reads little of a long session in advance.
func Open(_ context.Context, place home.Session, info control.Info) (*Archive, error) {
	log, err := journal.Open(place.DB(), journal.Options{ReadOnly: true})
	if err != nil && !journal.Damaged(err) {
		err = cmp.Or(stored.Gone(place), err)
	}
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", place.ID(), stored.Explain(place, err))
	}
	if err := stored.Lost(place, log); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("read session %s: %w", place.ID(), stored.Explain(place, err))
	}
	a := &Archive{info: info, place: place, log: log}
	a.all, a.Refusing = sync.OnceValues(a.read), a.refuse
	return a, nil
}

// read reads all tasks. The result is shared, so the context of one caller does not end it.
func (a *Archive) read() ([]journal.State, error) {
	states, err := a.log.Tasks(context.Background())
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", a.place.ID(), stored.Explain(a.place, err))
	}
	slices.Reverse(states)
	a.correct(states)
	return states, nil
}

func (a *Archive) correct(states []journal.State) {
	if a.info.Stopped {
		for i := range states {
			states[i].Task.HostStopped = !states[i].Task.Status.Terminal()
		}
		return
	}
	until := time.Now().Add(noteWait)
	begun := Begun(states, a.place.ExitFile)
	for i, s := range states {
		if p, ok := begun[s.Task.ID]; ok {
			if next, err := lifecycle.Apply(s.Task, lifecycle.Change{Verb: task.Begin, At: time.Now().UTC(),
				Process: &p}); err == nil {
				s.Task = next
			}
		}
		if a.goesOn(s.Task) {
			continue
		}
		states[i].Task = truth(s.Task, a.place.ExitFile(s.Task.ID), until)
	}
}

// noteWait is how long the parent of kept commands may take to write how they ended, and
// noteTick the polling interval.
const (
	noteWait = 500 * time.Millisecond
	noteTick = 5 * time.Millisecond
)

// note reads how a kept command ended. The file may be written slightly after the end: the
// command must not be reported as lost meanwhile.
func note(exitFile string, id process.Identity, until time.Time) (process.Departure, error) {
	for {
		d, err := process.ReadDeparture(exitFile, id)
		if !errors.Is(err, fs.ErrNotExist) || !time.Now().Before(until) {
			return d, err
		}
		time.Sleep(noteTick) // the writer cannot wake this process
	}
}

// truth returns the record of a task as the next host will find it, without writing it.
func truth(r task.Record, exitFile string, until time.Time) task.Record {
	if r.Status.Terminal() {
		return r
	}
	c := lifecycle.Change{Verb: task.Stop, At: time.Now().UTC(), Cause: task.Lost(r, process.Boot())}
	if r.ContinuesElsewhere() {
		r.Questions, r.AwaitingApproval = nil, false
		return r // its work runs elsewhere, and the next host adopts it
	}
	if p := r.Process; p != nil {
		id := process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}
		if process.Alive(id) {
			r.Questions, r.AwaitingApproval = nil, false // the asker has died
			return r
		}
		if r.Keep {
			if d, err := note(exitFile, id, until); err == nil {
				c = departed(d)
				if r.Stopping && c.Verb != task.Complete { // as the next host will show it
					why := lifecycle.Unfinished()
					why.Signal = d.Signal
					c.Verb, c.Cause, c.Error = task.Stop, &why, ""
				}
			} else if p.Boot == process.Boot() {
				c.Cause = &task.Cause{Actor: task.ByUnknown, Reason: task.ReasonLost, Detail: "nobody noted how the command ended"}
			}
		}
	}
	next, err := lifecycle.Apply(r, c)
	if err != nil {
		return r
	}
	return next
}

// departed returns the end that the parent of a kept command wrote.
func departed(d process.Departure) lifecycle.Change {
	c := lifecycle.Change{At: d.At.UTC(), ExitCode: &d.ExitCode, Verb: task.Complete}
	switch {
	case d.Signal != "":
		c.Verb, c.Cause = task.Fail, &task.Cause{Actor: task.ByItself, Reason: task.ReasonSignal, Signal: d.Signal}
	case d.ExitCode != 0:
		c.Verb, c.Cause = task.Fail, &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
		c.Error = fmt.Sprintf("exit code %d", d.ExitCode)
	}
	return c
}

// goesOn reports whether the next host takes up a parked agent.
func (a *Archive) goesOn(r task.Record) bool {
	return a.info.Role == control.RoleBackground && r.GoesOnParked()
}

// Kept reports whether a command, a parked agent or remote work of the session still lives without a host.
func (a *Archive) Kept() bool {
	tasks, _ := a.all() // what cannot be read cannot be adopted either
	return slices.ContainsFunc(tasks, func(s journal.State) bool {
		return a.goesOn(s.Task) || (s.Task.Keep || s.Task.Traits().Elsewhere == task.AlwaysAway) && !s.Task.Status.Terminal()
	})
}

// Unacknowledged returns the number of undelivered notifications.
func (a *Archive) Unacknowledged(ctx context.Context) (n int, err error) {
	notifications, err := a.log.Notifications(ctx)
	for _, one := range notifications {
		if !one.Acked {
			n++
		}
	}
	return n, err
}

// Close closes the files.
func (a *Archive) Close() error { return a.log.Close() }

// Info returns the description of this session.
func (a *Archive) Info(context.Context) (control.Info, error) {
	tasks, err := a.all()
	info := a.info
	if !info.Stopped {
		info.Live, info.PID = false, 0
	}
	info.DiskBytes, _ = stored.DiskBytes(a.place)
	info.Tasks = control.Counts{Total: len(tasks)}
	for _, s := range tasks {
		if !s.Task.Status.Terminal() {
			info.Tasks.Live++
		}
	}
	return info, err
}

// List returns tasks, newest first. For a page of all tasks it does not read the others.
func (a *Archive) List(ctx context.Context, req control.ListRequest) (control.Page, error) {
	page := control.Page{Tasks: []task.Record{}}
	var tasks []journal.State
	var err error
	if req.All && req.Under == "" && req.Limit > 0 {
		if tasks, err = a.log.Page(ctx, req.Before, req.Limit+1); err != nil {
			return page, fmt.Errorf("read session %s: %w", a.place.ID(), stored.Explain(a.place, err))
		}
		a.correct(tasks)
	} else if tasks, err = a.all(); err != nil {
		return page, err
	}
	meant := func(task.ID) bool { return true }
	if req.Under != "" {
		meant = under(tasks, req.Under)
	}
	for _, s := range tasks {
		r := s.Task
		if req.Before > 0 && s.Born >= req.Before || !req.All && r.Status.Terminal() || !meant(r.ID) {
			continue
		}
		if req.Limit > 0 && len(page.Tasks) == req.Limit {
			page.Next = s.Born + 1
			break
		}
		if r, err = a.log.Whole(ctx, r); err != nil {
			return page, fmt.Errorf("read session %s: %w", a.place.ID(), stored.Explain(a.place, err))
		}
		page.Tasks = append(page.Tasks, r)
	}
	return page, nil
}

// under returns the tasks in the subtree of root.
func under(tasks []journal.State, root task.ID) func(task.ID) bool {
	parents := make(map[task.ID]task.ID, len(tasks))
	for _, s := range tasks {
		parents[s.Task.ID] = s.Task.Parent
	}
	known := map[task.ID]bool{"": false, root: true}
	var is func(task.ID) bool
	is = func(id task.ID) bool {
		if _, ok := known[id]; !ok {
			known[id] = false // a damaged record may be its own ancestor
			known[id] = is(parents[id])
		}
		return known[id]
	}
	return is
}

// Get returns one task, with its complete command.
func (a *Archive) Get(ctx context.Context, ref string) (task.Record, error) {
	r, err := a.find(ctx, ref)
	if err != nil {
		return r, err
	}
	return a.log.Whole(ctx, r)
}

// find returns one task. For a complete ID it reads nothing else.
func (a *Archive) find(ctx context.Context, ref string) (task.Record, error) {
	one, err := a.log.Some(ctx, []task.ID{task.ID(ref)})
	if err != nil {
		return task.Record{}, fmt.Errorf("read session %s: %w", a.place.ID(), stored.Explain(a.place, err))
	}
	if len(one) == 1 {
		a.correct(one)
		return one[0].Task, nil
	}
	tasks, err := a.all()
	if err != nil {
		return task.Record{}, err
	}
	var matches, elsewhere, named []task.Record
	for _, s := range tasks {
		if s.Task.Name != "" && s.Task.Name == ref {
			named = append(named, s.Task)
		}
		if len(ref) >= 2 && strings.HasPrefix(string(s.Task.ID), ref) {
			matches = append(matches, s.Task)
		}
		if s.Task.WorksIn(ref) {
			elsewhere = append(elsewhere, s.Task)
		}
	}
	if len(named) > 0 {
		return lifecycle.Meant(named), nil
	}
	if len(matches) == 0 {
		matches = elsewhere
	}
	switch len(matches) {
	case 0:
		return task.Record{}, control.NotFoundError(ref)
	case 1:
		return matches[0], nil
	}
	e := control.Refuse(control.Ambiguous, fmt.Sprintf("%q fits %d tasks", ref, len(matches)), "give more of the ID")
	for _, m := range matches {
		e.Matches = append(e.Matches, string(m.ID))
	}
	return task.Record{}, e
}

// Wait returns at once, since nothing changes without a host. A live task needs a host first.
func (a *Archive) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	reply := control.WaitReply{}
	var lives []string
	for _, ref := range req.Refs {
		r, err := a.find(ctx, ref)
		if err != nil {
			return reply, err
		}
		if reply.Tasks = append(reply.Tasks, r); !r.Status.Terminal() {
			lives = append(lives, ref)
		}
	}
	if len(lives) > 0 && !(req.Any && len(lives) < len(req.Refs)) {
		return reply, a.refuse("wait for " + strings.Join(lives, ", "))
	}
	return reply, nil
}

// Stop returns how tasks have ended, and ends the survivors of earlier stops. A live task needs
// a host first.
func (a *Archive) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	receipt := task.Receipt{Survivors: []task.Survivor{}}
	for _, ref := range req.Refs {
		r, err := a.find(ctx, ref)
		if err != nil {
			return receipt, err
		}
		if !r.Status.Terminal() {
			return receipt, a.refuse("stop " + ref)
		}
		receipt.Stopped = append(receipt.Stopped,
			task.Stopped{ID: r.ID, Status: r.Status, Cause: r.Cause, Signals: []task.SignalSent{}})
		child.EndSurvivors(ctx, r, req.Grace, &receipt)
	}
	return receipt, nil
}

// Output reads the output of a task.
func (a *Archive) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	r, err := a.find(ctx, req.Ref)
	if err != nil {
		return control.Chunk{}, err
	}
	c, err := stored.Output(r, req)
	if err == nil && req.Wait > 0 && len(c.Data) == 0 {
		c.Ended = true // no more output can come
	}
	return c, err
}

// Result returns a part of the final answer of a task.
func (a *Archive) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	r, err := a.find(ctx, req.Ref)
	if err != nil {
		return control.Answer{}, err
	}
	return stored.Answer(ctx, a.log, r, req)
}

// Events yields the existing events and ends.
func (a *Archive) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return a.log.Events(ctx, after)
}

// Approvals returns none: the askers have died.
func (a *Archive) Approvals(context.Context, control.ApprovalsRequest) (control.Approvals, error) {
	return control.Approvals{Questions: []task.Question{}}, nil
}

// seenLimit is the number of newest tasks that are checked for unseen failures.
const seenLimit = 500

// Attention returns the unseen failures, since the askers of questions have died. It does not
// change, so a waiting caller waits for the whole time.
func (a *Archive) Attention(ctx context.Context, req control.AttentionRequest) (control.Attention, error) {
	page, err := a.List(ctx, control.ListRequest{All: true, Limit: seenLimit})
	if err != nil {
		return control.Attention{}, err
	}
	now, err := control.NewAttention(attention.Facts{Session: a.info.Session, Tasks: page.Tasks}, time.Now())
	if err != nil || req.Wait <= 0 || now.Version != req.After {
		return now, err
	}
	select {
	case <-time.After(req.Wait):
		return now, nil
	case <-ctx.Done():
		return now, context.Cause(ctx)
	}
}

// State returns the state of an idle session.
func (a *Archive) State(context.Context, control.StateRequest) (control.State, error) {
	return control.State{Idle: true, IdleCount: 1, Version: 1, Seq: a.log.Last()}, nil
}

// Send is refused: a host would have to open the session first.
func (a *Archive) Send(_ context.Context, req control.SendRequest) (task.Record, error) {
	return task.Record{}, a.goOn("send to " + req.Ref)
}

// Resume is refused, as Send is.
func (a *Archive) Resume(_ context.Context, req control.ResumeRequest) (task.Record, error) {
	return task.Record{}, a.goOn("resume " + req.Ref)
}

// goOn refuses a call that needs a further run.
func (a *Archive) goOn(what string) error {
	if a.info.Stopped {
		return a.refuse(what)
	}
	e := control.Refuse(control.Unavailable, fmt.Sprintf("cannot %s: session %s has ended", what, a.info.Session), "")
	e.Fix = fmt.Sprintf("go on with it by `drover -p --resume %s \"…\"`, and ask for the agent there", a.info.Session)
	if a.info.Role == "background" { // the session has no main agent
		e.Fix = "`drover resume` and `drover send` start a host for it"
	}
	return e
}

// What changes an ended session, or asks for its host, is refused.

func (a *Archive) Start(context.Context, []control.StartRequest) ([]control.Started, error) {
	return nil, a.refuse("start")
}

func (a *Archive) Decide(_ context.Context, req control.DecideRequest) error {
	return a.refuse("answer question " + req.ID)
}

func (a *Archive) Promote(_ context.Context, ref string) (task.Record, error) {
	return task.Record{}, a.refuse("promote " + ref)
}

func (a *Archive) Pause(_ context.Context, refs []string) ([]task.Record, error) {
	return nil, a.refuse("pause " + strings.Join(refs, ", "))
}

func (a *Archive) Interrupt(_ context.Context, ref string) (task.Record, error) {
	return task.Record{}, a.refuse("interrupt " + ref)
}

func (a *Archive) HoldLease(context.Context, string) error { return a.refuse("hold") }

// MarkSeen is refused: nothing is written here.
func (a *Archive) MarkSeen(_ context.Context, refs []string) ([]task.Record, error) {
	return nil, a.refuse("mark " + strings.Join(refs, ", ") + " as seen")
}

func (a *Archive) refuse(what string) error {
	if a.info.Stopped {
		return control.Refuse(control.Conflict,
			fmt.Sprintf("cannot %s: the host of session %s stands still, as after Ctrl-Z", what, a.info.Session),
			fmt.Sprintf("continue it by `fg` in its terminal, or by `kill -CONT %d`", a.info.PID))
	}
	if a.Kept() {
		fix := fmt.Sprintf("`drover attach %s` starts one", a.info.Session)
		if a.info.Role == "background" {
			fix = fmt.Sprintf("`drover run -d true` in %s starts one", a.info.Project)
		}
		return control.Refuse(control.Unavailable, fmt.Sprintf("cannot %s: session %s has no host", what, a.info.Session),
			fix+", or says why it cannot")
	}
	return control.Refuse(control.Unavailable, fmt.Sprintf("cannot %s: session %s has ended", what, a.info.Session),
		"start something new with `drover run -d` or `drover -p`")
}
