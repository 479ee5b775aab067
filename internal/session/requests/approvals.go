package requests

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
)

// Decide answers a question, and keeps the rule that its answer names.
func (t *Tasks) Decide(ctx context.Context, req control.DecideRequest) error {
	if req.Always != "" && req.ID != "" && req.Digest != "" {
		if err := t.allowAlways(ctx, req); err != nil {
			return err
		}
	}
	return t.Session.Decide(ctx, req)
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
