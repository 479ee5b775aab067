package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Approvals returns the open questions.
func (t *Tasks) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	if req.Person {
		defer t.s.Tasks.Attend()()
	}
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := t.s.Tasks.AwaitQuestions(wait, req.After); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Approvals{}, err
		}
	}
	open, version := t.s.Tasks.Questions()
	if req.ID != "" {
		open = []task.Question{}
		if q, there := t.s.Tasks.Question(req.ID); there {
			open = append(open, q)
		}
	}
	return control.Approvals{Questions: open, Version: version}, nil
}

// Decide answers a question.
func (t *Tasks) Decide(ctx context.Context, req control.DecideRequest) error {
	if req.ID == "" || req.Digest == "" {
		return control.Refuse(control.Invalid, "an answer names the question and its digest", "")
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	if req.Always != "" {
		if err := t.allowAlways(ctx, req); err != nil {
			return err
		}
	}
	err := t.s.Tasks.Decide(ctx, req.ID, req.Digest, req.Reply, task.Cause{Actor: req.Actor, Detail: req.Detail})
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

// allowAlways keeps the rule that an open question suggests, and no other, since that one was
// shown. It applies from now on, before the asker continues.
func (t *Tasks) allowAlways(ctx context.Context, req control.DecideRequest) error {
	q, open := t.s.Tasks.Question(req.ID)
	refuse := func(code control.Code, why, fix string) error {
		return control.Refuse(code, fmt.Sprintf("question %.40q: %s", req.ID, why), fix)
	}
	switch {
	case !req.Reply.Allow || len(req.Reply.Input) > 0:
		return refuse(control.Invalid, "a rule is kept only with a call that is allowed as it is", "answer without the rule")
	case !open || q.Digest != req.Digest:
		return nil // the answer is refused with the reason
	case q.Suggest == "" || q.Suggest != req.Always:
		return refuse(control.Conflict, fmt.Sprintf("it does not suggest the rule %.200q", req.Always),
			"see `drover approvals`")
	}
	if err := t.agents.AllowAlways(ctx, req.Always); err != nil {
		return refuse(control.Conflict, err.Error(), "the question is still open: allow it without the rule")
	}
	return nil
}
