package tasks

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
	"github.com/drover-dev/drover/task"
)

// List returns tasks, newest first.
func (s *Session) List(ctx context.Context, req control.ListRequest) (control.Page, error) {
	page := control.Page{Tasks: []task.Record{}}
	page.Problem, _ = s.Space.Problem()
	root := s.Tree.Tasks.Born(req.Under)
	take := func(born task.Seq, r task.Record) bool {
		if req.Under != "" && born < root {
			return false // descendants of a task were started after it
		}
		if !req.All && r.Status.Terminal() || req.Under != "" && !s.Tree.Below(r, req.Under) {
			return true
		}
		if req.Limit > 0 && len(page.Tasks) == req.Limit {
			page.Next = born + 1
			return false
		}
		page.Tasks = append(page.Tasks, s.more.Mark(r))
		return true
	}
	if req.All {
		return page, s.Tree.Tasks.Listing(ctx, req.Before, take)
	}
	s.Tree.Tasks.List(req.Before)(take)
	return page, nil
}

// Get returns one task, with its complete command.
func (s *Session) Get(ctx context.Context, ref string) (task.Record, error) {
	r, err := s.Tree.Find(ref)
	if err == nil {
		r, err = s.Tree.Log.Whole(ctx, r)
	}
	if err != nil {
		return r, Refusal(err)
	}
	return s.more.Mark(r), nil
}

func (s *Session) find(refs []string) ([]task.ID, error) {
	if len(refs) == 0 {
		return nil, control.Refuse(control.Invalid, "no task is named", "")
	}
	ids := make([]task.ID, len(refs))
	for i, ref := range refs {
		r, err := s.Tree.Find(ref)
		if err != nil {
			return nil, Refusal(err)
		}
		ids[i] = r.ID
	}
	return ids, nil
}

// Wait waits for the end of tasks.
func (s *Session) Wait(ctx context.Context, req control.WaitRequest) (control.WaitReply, error) {
	ids, err := s.find(req.Refs)
	if err != nil {
		return control.WaitReply{}, err
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Timeout > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Timeout, supervise.ErrTimeout)
	}
	defer cancel()
	recs, problem, err := s.waitHeeding(wait, ids, req)
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
func (s *Session) waitHeeding(
	ctx context.Context,
	ids []task.ID,
	req control.WaitRequest,
) ([]task.Record, *string, error) {
	if req.KnownProblem == nil {
		recs, err := s.Tree.Tasks.Wait(ctx, ids, req.Any)
		return recs, nil, err
	}
	for {
		now, changed := s.Space.Problem()
		heeding, stop := context.WithCancelCause(ctx)
		if now != *req.KnownProblem {
			stop(errTold)
		}
		deaf := context.AfterFunc(changed, func() { stop(errTold) })
		recs, err := s.Tree.Tasks.Wait(heeding, ids, req.Any)
		deaf()
		stop(nil)
		if !errors.Is(err, errTold) {
			return recs, nil, err
		}
		if now, _ = s.Space.Problem(); now != *req.KnownProblem {
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
func (s *Session) Stop(ctx context.Context, req control.StopRequest) (task.Receipt, error) {
	ids, err := s.find(req.Refs)
	if err != nil {
		return task.Receipt{}, err
	}
	if req.Grace != nil && *req.Grace < 0 {
		return task.Receipt{}, control.Refuse(control.Invalid, fmt.Sprintf("the grace %s is negative", *req.Grace), "")
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	receipt, err := s.Tree.Tasks.Stop(ctx, ids, supervise.StopRequest{
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
		if r, ok := s.Tree.Tasks.Get(line.ID); ok {
			child.EndSurvivors(ctx, r, req.Grace, &receipt)
		}
	}
	return receipt, err
}

// Promote moves a foreground task to the background.
func (s *Session) Promote(ctx context.Context, ref string) (task.Record, error) {
	r, err := s.Tree.Find(ref)
	if err != nil {
		return r, Refusal(err)
	}
	if s.Tree.Info.Role == control.RoleRun && r.Parent == "" {
		return r, control.Refuse(control.Unavailable, "a foreground `drover run` belongs to its terminal",
			"start it with `drover run -d`")
	}
	if s.Tree.Options.Tasks.DisableBackground {
		return r, control.Refuse(control.Unavailable, "background work is turned off", "")
	}
	if p, ok := s.Tree.Tasks.Get(r.Parent); ok && p.Traits().Work == task.BySteps {
		return r, control.Refuse(control.Conflict,
			fmt.Sprintf("task %s is a step of workflow %s, which waits for it", r.ID, p.ID), "")
	}
	r, err = s.Tree.Tasks.Promote(ctx, r.ID)
	if err != nil {
		return r, Refusal(err)
	}
	return r, nil
}

// Output reads the output of a task.
func (s *Session) Output(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	r, err := s.Tree.Find(req.Ref)
	if err != nil {
		return control.Chunk{}, Refusal(err)
	}
	now := func() task.Record { got, _ := s.Tree.Tasks.Get(r.ID); return got }
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := s.awaitOutput(wait, r, req.Offset); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Chunk{}, err
		}
	}
	return stored.Output(now(), req)
}

// awaitOutput waits until there is something to read, or no more can come.
func (s *Session) awaitOutput(ctx context.Context, r task.Record, offset int64) error {
	for {
		committed := s.Tree.Log.NextCommit()
		err := spool.Follow(ctx, r.OutputFile, offset, s.ended(r.ID))
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case s.Tree.Latest(r.ID).Status.Terminal(): // it has never begun, or in the meantime
			return nil
		}
		select { // it has not begun yet
		case <-committed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ended returns a channel that is closed when the task has ended.
func (s *Session) ended(id task.ID) <-chan struct{} {
	done := s.Tree.Tasks.Done(id)
	if now, _ := s.Tree.Tasks.Get(id); now.Status.Terminal() {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return done
}

// Result returns a part of the final answer of an ended task.
func (s *Session) Result(ctx context.Context, req control.ResultRequest) (control.Answer, error) {
	r, err := s.Tree.Find(req.Ref)
	if err != nil {
		return control.Answer{}, Refusal(err)
	}
	return stored.Answer(ctx, s.Tree.Log, r, req)
}

// Events yields events after a number and waits for more.
func (s *Session) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return s.Tree.Log.Events(ctx, after)
}

// Answer returns the final answer of the run of a record, or the beginning and end of a very
// long one. The caller passes the record, since an event has the end of a run before the
// registry shows it.
func (s *Session) Answer(ctx context.Context, r task.Record) (string, error) {
	return s.Tree.Log.AnswerExcerpt(ctx, r.Run)
}
