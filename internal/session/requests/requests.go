// Package requests answers requests of clients about the tasks of a session.
//
// [Tasks] is the part of [control.API] about tasks: it starts them, lists them, waits for them,
// stops them, writes to them and answers their questions. It owns the leases of clients: no task of a
// lease is left running when the client has released it, or has not held it within [LeaseWait]. A refusal
// is a [control.Error] that says what to do instead.
//
// The package is not a server; package control has one.
package requests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/internal/session/activity"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/task"
)

// Tasks answers requests. Its methods may be called by several goroutines.
type Tasks struct {
	s        *tree.Tree
	mail     *messages.Mailboxes
	idle     *idle.Watch
	activity *activity.Watch
	space    *upkeep.Space
	agents   *agents.Set
	dreams   *dreams.Dreams
	trees    *worktree.Store // nil: no agent is isolated
	leases   leases
}

// New returns the Tasks of a session. trees may be nil.
func New(
	s *tree.Tree, mail *messages.Mailboxes, idle *idle.Watch, activity *activity.Watch, space *upkeep.Space,
	set *agents.Set, dreams *dreams.Dreams, trees *worktree.Store,
) *Tasks {
	return &Tasks{s: s, mail: mail, idle: idle, activity: activity, space: space, agents: set, dreams: dreams,
		trees: trees, leases: leases{tasks: s.Tasks, named: map[string]*lease{}}}
}

// Close ends all leases, whose tasks are left to the supervisor.
func (t *Tasks) Close() { t.leases.close() }

// List returns tasks, newest first.
func (t *Tasks) List(ctx context.Context, req control.ListRequest) (control.Page, error) {
	page := control.Page{Tasks: []task.Record{}}
	page.Problem, _ = t.space.Problem()
	root := t.s.Tasks.Born(req.Under)
	take := func(born task.Seq, r task.Record) bool {
		if req.Under != "" && born < root {
			return false // descendants of a task were started after it
		}
		if !req.All && r.Status.Terminal() || req.Under != "" && !t.s.Below(r, req.Under) {
			return true
		}
		if req.Limit > 0 && len(page.Tasks) == req.Limit {
			page.Next = born + 1
			return false
		}
		page.Tasks = append(page.Tasks, t.activity.Mark(r))
		return true
	}
	if req.All {
		return page, t.s.Tasks.Listing(ctx, req.Before, take)
	}
	t.s.Tasks.List(req.Before)(take)
	return page, nil
}

// Get returns one task, with its complete command.
func (t *Tasks) Get(ctx context.Context, ref string) (task.Record, error) {
	r, err := t.s.Find(ref)
	if err == nil {
		r, err = t.s.Log.Whole(ctx, r)
	}
	if err != nil {
		return r, Refusal(err)
	}
	return t.activity.Mark(r), nil
}

func (t *Tasks) find(refs []string) ([]task.ID, error) {
	if len(refs) == 0 {
		return nil, control.Refuse(control.Invalid, "no task is named", "")
	}
	ids := make([]task.ID, len(refs))
	for i, ref := range refs {
		r, err := t.s.Find(ref)
		if err != nil {
			return nil, Refusal(err)
		}
		ids[i] = r.ID
	}
	return ids, nil
}

// Wait waits for the end of tasks.
func (t *Tasks) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	ids, err := t.find(req.Refs)
	if err != nil {
		return control.WaitReply{}, err
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Timeout > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Timeout, supervise.ErrTimeout)
	}
	defer cancel()
	recs, problem, err := t.waitHeeding(wait, ids, req)
	reply := control.WaitReply{Tasks: recs, TimedOut: errors.Is(err, supervise.ErrTimeout), Problem: problem}
	if err != nil && !reply.TimedOut {
		return reply, err
	}
	if req.Any {
		slices.SortStableFunc(reply.Tasks, byEnd)
	}
	return reply, nil
}

// errTold ends a wait whose client must be told of another problem.
var errTold = errors.New("the problem is another")

// waitHeeding waits for tasks, or until the problem differs from the client's knowledge of it.
func (t *Tasks) waitHeeding(
	ctx context.Context, ids []task.ID, req control.WaitRequest,
) ([]task.Record, *string, error) {
	if req.KnownProblem == nil {
		recs, err := t.s.Tasks.Wait(ctx, ids, req.Any)
		return recs, nil, err
	}
	for {
		now, changed := t.space.Problem()
		heeding, stop := context.WithCancelCause(ctx)
		if now != *req.KnownProblem {
			stop(errTold)
		}
		deaf := context.AfterFunc(changed, func() { stop(errTold) })
		recs, err := t.s.Tasks.Wait(heeding, ids, req.Any)
		deaf()
		stop(nil)
		if !errors.Is(err, errTold) {
			return recs, nil, err
		}
		if now, _ = t.space.Problem(); now != *req.KnownProblem {
			return recs, &now, nil
		}
	}
}

// byEnd sorts tasks by their end, those that have not ended last.
func byEnd(a, b task.Record) int {
	switch {
	case a.EndTime != nil && b.EndTime != nil:
		return a.EndTime.Compare(*b.EndTime)
	case a.EndTime != nil:
		return -1
	case b.EndTime != nil:
		return 1
	}
	return 0
}

// Stop ends subtrees.
func (t *Tasks) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	ids, err := t.find(req.Refs)
	if err != nil {
		return task.Receipt{}, err
	}
	if req.Grace != nil && *req.Grace < 0 {
		return task.Receipt{}, control.Refuse(control.Invalid, fmt.Sprintf("the grace %s is negative", *req.Grace), "")
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	receipt, err := t.s.Tasks.Stop(ctx, ids, supervise.StopRequest{
		Grace: req.Grace,
		Cause: task.Cause{Actor: req.Actor, Reason: task.ReasonStopped, Detail: req.Detail},
	})
	if receipt.Survivors == nil {
		receipt.Survivors = []task.Survivor{}
	}
	for _, line := range receipt.Stopped {
		if slices.ContainsFunc(receipt.Survivors, func(left task.Survivor) bool { return left.Task == line.ID }) {
			continue // it ended just now, and a stop was attempted
		}
		if r, ok := t.s.Tasks.Get(line.ID); ok {
			child.EndSurvivors(ctx, r, req.Grace, &receipt)
		}
	}
	return receipt, err
}

// Promote moves a foreground task to the background.
func (t *Tasks) Promote(ctx context.Context, ref string) (task.Record, error) {
	r, err := t.s.Find(ref)
	if err != nil {
		return r, Refusal(err)
	}
	if t.s.Info.Role == control.RoleRun && r.Parent == "" {
		return r, control.Refuse(control.Unavailable, "a foreground `drover run` belongs to its terminal",
			"start it with `drover run -d`")
	}
	if t.s.Options.Tasks.DisableBackground {
		return r, control.Refuse(control.Unavailable, "background work is turned off", "")
	}
	if p, ok := t.s.Tasks.Get(r.Parent); ok && p.Traits().Work == task.BySteps {
		return r, control.Refuse(control.Conflict,
			fmt.Sprintf("task %s is a step of workflow %s, which waits for it", r.ID, p.ID), "")
	}
	r, err = t.s.Tasks.Promote(ctx, r.ID)
	if err != nil {
		return r, Refusal(err)
	}
	return r, nil
}

// Output reads the output of a task.
func (t *Tasks) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	r, err := t.s.Find(req.Ref)
	if err != nil {
		return control.Chunk{}, Refusal(err)
	}
	now := func() task.Record { got, _ := t.s.Tasks.Get(r.ID); return got }
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := t.awaitOutput(wait, r, req.Offset); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Chunk{}, err
		}
	}
	return stored.Output(now(), req)
}

// awaitOutput waits until there is something to read, or no more can come.
func (t *Tasks) awaitOutput(ctx context.Context, r task.Record, offset int64) error {
	for {
		grown := t.s.Log.Grown()
		err := spool.Follow(ctx, r.OutputFile, offset, t.ended(r.ID))
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case t.s.Latest(r.ID).Status.Terminal(): // it has never begun, or in the meantime
			return nil
		}
		select { // it has not begun yet
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ended returns a channel that is closed when the task has ended.
func (t *Tasks) ended(id task.ID) <-chan struct{} {
	done := t.s.Tasks.Done(id)
	if now, _ := t.s.Tasks.Get(id); now.Status.Terminal() {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return done
}

// Result returns a part of the final answer of an ended task.
func (t *Tasks) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	r, err := t.s.Find(req.Ref)
	if err != nil {
		return control.Answer{}, Refusal(err)
	}
	return stored.Answer(ctx, t.s.Log, r, req)
}

// Events yields events after a number and waits for more.
func (t *Tasks) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return t.s.Log.Events(ctx, after)
}

// Prompt sends a prompt to the main agent.
func (t *Tasks) Prompt(ctx context.Context, req control.PromptRequest) error {
	m := t.idle.Conversation()
	if m == nil {
		return control.Refuse(control.Unavailable, "this session has no main agent", "start one with `drover -p`")
	}
	text, err := t.withImages(m, req)
	if err != nil {
		return err
	}
	return m.Submit(ctx, text)
}

// withImages keeps the images of a prompt, and returns the prompt with their names.
func (t *Tasks) withImages(m *conversation.Conversation, req control.PromptRequest) (string, error) {
	if len(req.Images) == 0 {
		return req.Text, nil
	}
	refused := func(format string, args ...any) error {
		return control.Refuse(control.Invalid, "images of a prompt: "+fmt.Sprintf(format, args...), "")
	}
	if model := m.ModelSettings().Name; !choose.Sees(model) {
		return "", control.Refuse(control.Invalid, fmt.Sprintf("model %s does not see images", model),
			"choose another model with `drover configure --model`, or describe them")
	}
	if len(req.Images) > picture.Max {
		return "", refused("there are %d, and there may be %d", len(req.Images), picture.Max)
	}
	total := 0
	for i, image := range req.Images {
		kind, err := picture.Check(image.Data)
		if err == nil && image.MediaType != "" && image.MediaType != kind {
			err = fmt.Errorf("it is %s, and %.60q was said", kind, image.MediaType)
		}
		if err != nil {
			return "", refused("image %d: %v", i+1, err)
		}
		if total += len(image.Data); total > picture.MaxTotal {
			return "", refused("together they have more than %d MiB: send less at once", picture.MaxTotal>>20)
		}
	}
	refs := make([]picture.Ref, len(req.Images))
	for i, image := range req.Images {
		refs[i] = picture.Ref{Label: picture.Label(i+1, image.Name), Sum: picture.Sum(image.Data)}
		if err := t.s.Place.KeepImage(refs[i].Sum, image.Data); err != nil {
			return "", err
		}
	}
	return picture.Add(req.Text, refs), nil
}

// Answer returns the final answer of the run of a record, or the beginning and end of a very
// long one. The caller passes the record, since an event has the end of a run before the
// registry shows it.
func (t *Tasks) Answer(ctx context.Context, r task.Record) (string, error) {
	return t.s.Log.AnswerExcerpt(ctx, r.Run)
}
