package acpclient

import (
	"cmp"
	"context"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
)

// permission answers session/request_permission. To allow a call it chooses only an option for one time.
func (c *conn) permission(ctx context.Context, r permissionRequest) (any, error) {
	answer := func(o acp.RequestPermissionOutcome) (any, error) {
		return acp.RequestPermissionResponse{Outcome: o}, nil
	}
	cancelled := acp.NewRequestPermissionOutcomeCancelled()
	t := c.turn.Load()
	if t == nil || r.SessionID != c.session { // no turn could want it
		return answer(cancelled)
	}
	t.mu.Lock()
	o := t.merge(r.ToolCall.toolCall, blocks(r.ToolCall.Content))
	if o == nil {
		o = &tool{toolCall: r.ToolCall.toolCall, content: blocks(r.ToolCall.Content)}
	}
	w := o.wants(c.a.o.Dir)
	t.mu.Unlock()
	ask, done := context.WithCancelCause(ctx)
	defer done(nil)
	stop := context.AfterFunc(t.ctx, func() { done(context.Cause(t.ctx)) })
	defer stop()
	d, err := c.a.o.Permit(ask, w)
	if err != nil || ask.Err() != nil {
		return answer(cancelled) // the answer of the protocol to a failed question
	}
	if d.Allow {
		if id := option(r.Options, acp.PermissionOptionKindAllowOnce); id != "" {
			return answer(acp.NewRequestPermissionOutcomeSelected(id))
		}
		d.Reason = "it was allowed once, and the agent offers only to allow it always"
	}
	denied := w.Shown.Name + " was not allowed: " + line(d.Reason, 500)
	c.a.say("%s", denied)
	t.mu.Lock()
	t.did("[" + denied + "]")
	t.denied = denied
	t.mu.Unlock()
	id := cmp.Or(option(r.Options, acp.PermissionOptionKindRejectOnce),
		option(r.Options, acp.PermissionOptionKindRejectAlways))
	if id == "" {
		return answer(cancelled)
	}
	return answer(acp.NewRequestPermissionOutcomeSelected(id))
}

// option returns the ID of the first option of a kind.
func option(of []acp.PermissionOption, kind acp.PermissionOptionKind) acp.PermissionOptionId {
	for _, o := range of {
		if o.Kind == kind && o.OptionId != "" {
			return o.OptionId
		}
	}
	return ""
}

// denied returns an error for the agent if a call is not allowed.
func (c *conn) denied(w Wanted) error {
	ctx := c.life
	if t := c.turn.Load(); t != nil {
		ctx = t.ctx
	}
	d, err := c.a.o.Permit(ctx, w)
	if err != nil {
		return err
	}
	if !d.Allow {
		return &refusal{d.Reason}
	}
	return nil
}

type refusal struct{ text string }

func (e *refusal) Error() string { return "denied: " + e.text }

// one is a single call that is understood.
func one(call agent.Call) Wanted {
	return Wanted{Calls: []agent.Call{call}, Understood: true, Shown: call}
}
