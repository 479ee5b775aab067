package tasks

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Approvals returns the open questions.
func (s *Session) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	if req.Person {
		defer s.Tree.Tasks.Attend()()
	}
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := s.Tree.Tasks.AwaitQuestions(wait, req.After); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Approvals{}, err
		}
	}
	open, version := s.Tree.Tasks.Questions()
	if req.ID != "" {
		open = []task.Question{}
		if q, there := s.Tree.Tasks.Question(req.ID); there {
			open = append(open, q)
		}
	}
	return control.Approvals{Questions: open, Version: version}, nil
}

// Decide answers a question.
func (s *Session) Decide(ctx context.Context, req control.DecideRequest) error {
	if req.ID == "" || req.Digest == "" {
		return control.Refuse(control.Invalid, "an answer names the question and its digest", "")
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	err := s.Tree.Tasks.Decide(ctx, req.ID, req.Digest, req.Reply, task.Cause{Actor: req.Actor, Detail: req.Detail})
	var stale *supervise.StaleError
	var wrong *task.ReplyError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, supervise.ErrNoQuestion):
		return control.Refuse(control.NotFound, err.Error(), "see `drover approvals`")
	case errors.As(err, &stale):
		return control.Refuse(control.Conflict, err.Error(), "see `drover approvals`")
	case errors.As(err, &wrong):
		return control.Refuse(control.Invalid, err.Error(), "")
	}
	return Refusal(err)
}
