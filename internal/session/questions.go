package session

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/control"
	"github.com/drover-dev/drover/internal/supervise"
	"github.com/drover-dev/drover/task"
)

// Approvals returns the questions that wait for an answer.
func (s *Session) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := s.sup.AwaitQuestions(wait, req.After); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Approvals{}, err
		}
	}
	open, version := s.sup.Questions()
	if req.ID != "" {
		open = []task.Question{}
		if q, there := s.sup.Question(req.ID); there {
			open = append(open, q)
		}
	}
	return control.Approvals{Questions: open, Version: version}, nil
}

// Decide answers a question.
func (s *Session) Decide(ctx context.Context, req control.DecideRequest) error {
	if req.ID == "" || req.Digest == "" {
		return &control.Error{Code: control.Invalid, Message: "an answer names the question and its digest"}
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	err := s.sup.Decide(ctx, req.ID, req.Digest, req.Reply, task.Cause{Actor: req.Actor, Detail: req.Detail})
	var stale *supervise.StaleError
	var wrong *task.ReplyError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, supervise.ErrNoQuestion):
		return &control.Error{Code: control.NotFound, Message: err.Error(), Mend: "see `drover approvals`"}
	case errors.As(err, &stale):
		return &control.Error{Code: control.Conflict, Message: err.Error(), Mend: "see `drover approvals`"}
	case errors.As(err, &wrong):
		return &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	return refusal(err)
}
