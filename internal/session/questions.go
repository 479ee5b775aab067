package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
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
	if req.Always != "" {
		if err := s.allowAlways(ctx, req); err != nil {
			return err
		}
	}
	err := s.sup.Decide(ctx, req.ID, req.Digest, req.Reply, task.Cause{Actor: req.Actor, Detail: req.Detail})
	var stale *supervise.StaleError
	var wrong *task.ReplyError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, supervise.ErrNoQuestion):
		return &control.Error{Code: control.NotFound, Message: err.Error(), Fix: "see `drover approvals`"}
	case errors.As(err, &stale):
		return &control.Error{Code: control.Conflict, Message: err.Error(), Fix: "see `drover approvals`"}
	case errors.As(err, &wrong):
		return &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	return refusal(err)
}

// always are the rules that the user has allowed for good while the session lives.
type always struct {
	mu    sync.Mutex
	rules []string
}

func (a *always) add(rule string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.rules, rule) {
		a.rules = append(a.rules, rule)
	}
}

func (a *always) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rules)
}

// allowAlways keeps the rule that an open question suggests, and no other: that is
// the one that was shown. It holds from here on, before whoever asked goes on.
func (s *Session) allowAlways(ctx context.Context, req control.DecideRequest) error {
	q, open := s.sup.Question(req.ID)
	refuse := func(code control.Code, why, mend string) error {
		return &control.Error{Code: code, Message: fmt.Sprintf("question %.40q: %s", req.ID, why), Fix: mend}
	}
	switch {
	case !req.Reply.Allow || len(req.Reply.Input) > 0:
		return refuse(control.Invalid, "a rule is kept only with a call that is allowed as it is", "answer without the rule")
	case !open || q.Digest != req.Digest:
		return nil // the answer is refused with the reason
	case q.Suggest == "" || q.Suggest != req.Always:
		return refuse(
			control.Conflict,
			fmt.Sprintf("it does not suggest the rule %.200q", req.Always),
			"see `drover approvals`",
		)
	case s.cfg.Agents.KeepRule == nil:
		return refuse(control.Conflict, "this session keeps no rules", "allow it without the rule")
	}
	if err := s.cfg.Agents.KeepRule(ctx, req.Always); err != nil {
		return refuse(control.Conflict, err.Error(), "the question is still open: allow it without the rule")
	}
	s.always.add(req.Always)
	return nil
}
