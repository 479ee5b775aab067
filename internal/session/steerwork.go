package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// steerWork gives a message to work that is no agent, if its driver takes some.
func (s *Session) steerWork(ctx context.Context, r task.Record, text string) error {
	err := s.sup.Steer(ctx, r.ID, text)
	switch {
	case errors.Is(err, supervise.ErrNotSteerable):
		return noReader(r)
	case err != nil:
		return refusal(err)
	}
	return nil
}

// steerWork is the same for a model: taken is false where the message is for an
// agent, or for nobody that this one may write to.
func (rt *runtime) steerWork(ctx context.Context, m tasktools.SendRequest) (_ tasktools.Sent, taken bool, err error) {
	r, err := rt.Find(ctx, m.To)
	if err == nil && r.TTY && !r.Status.Terminal() && m.Plan == nil {
		return rt.typeInto(ctx, r, m.Text)
	}
	if err != nil || r.Kind.IsAgent() || r.Traits().Work == task.ByCommand || r.Status != task.Running || m.Plan != nil ||
		strings.TrimSpace(m.Text) == "" {
		return tasktools.Sent{}, false, nil
	}
	if err := rt.s.traffic.pass(rt.id, r.ID, time.Now()); err != nil {
		return tasktools.Sent{}, true, err
	}
	switch err := rt.s.sup.Steer(ctx, r.ID, m.Text); {
	case errors.Is(err, supervise.ErrNotSteerable):
		return tasktools.Sent{}, false, nil
	case err != nil && ctx.Err() == nil:
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: err.Error()}
	case err != nil:
		return tasktools.Sent{}, true, context.Cause(ctx)
	}
	return tasktools.Sent{To: r}, true, nil
}
