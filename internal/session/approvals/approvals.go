// Package approvals lists the questions of agents and accepts their answers.
//
// [Approvals] owns the rules that the user has allowed permanently while the session lives; the
// supervisor owns the questions. A rule is kept only if the open question that was answered has
// suggested it.
//
// The package does not decide what is asked; the gate of an agent does.
package approvals

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

// Approvals are those of a session. Its methods may be called by several goroutines.
type Approvals struct {
	tasks *supervise.Supervisor
	keep  func(ctx context.Context, rule string) error

	mu    sync.Mutex
	rules []string // guarded by mu: rules allowed permanently
}

// New returns the approvals of a session. keep stores a rule for later sessions; nil: rules are
// not stored.
func New(tasks *supervise.Supervisor, keep func(ctx context.Context, rule string) error) *Approvals {
	return &Approvals{tasks: tasks, keep: keep}
}

// Rules returns the rules that the user has allowed permanently.
func (a *Approvals) Rules() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rules)
}

// Open returns the open questions.
func (a *Approvals) Open(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	if req.Person {
		defer a.tasks.Attend()()
	}
	if req.Wait > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
		defer cancel()
		if err := a.tasks.AwaitQuestions(wait, req.After); err != nil && !errors.Is(err, supervise.ErrTimeout) {
			return control.Approvals{}, err
		}
	}
	open, version := a.tasks.Questions()
	if req.ID != "" {
		open = []task.Question{}
		if q, there := a.tasks.Question(req.ID); there {
			open = append(open, q)
		}
	}
	return control.Approvals{Questions: open, Version: version}, nil
}

// Decide answers a question.
func (a *Approvals) Decide(ctx context.Context, req control.DecideRequest) error {
	if req.ID == "" || req.Digest == "" {
		return &control.Error{Code: control.Invalid, Message: "an answer names the question and its digest"}
	}
	if req.Actor == "" {
		req.Actor = task.ByUser
	}
	if req.Always != "" {
		if err := a.allowAlways(ctx, req); err != nil {
			return err
		}
	}
	err := a.tasks.Decide(ctx, req.ID, req.Digest, req.Reply, task.Cause{Actor: req.Actor, Detail: req.Detail})
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
	return err
}

// allowAlways keeps the rule that an open question suggests, and no other, since that one was
// shown. It applies from now on, before the asker continues.
func (a *Approvals) allowAlways(ctx context.Context, req control.DecideRequest) error {
	q, open := a.tasks.Question(req.ID)
	refuse := func(code control.Code, why, fix string) error {
		return &control.Error{Code: code, Message: fmt.Sprintf("question %.40q: %s", req.ID, why), Fix: fix}
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
	case a.keep == nil:
		return refuse(control.Conflict, "this session keeps no rules", "allow it without the rule")
	}
	if err := a.keep(ctx, req.Always); err != nil {
		return refuse(control.Conflict, err.Error(), "the question is still open: allow it without the rule")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.rules, req.Always) {
		a.rules = append(a.rules, req.Always)
	}
	return nil
}
