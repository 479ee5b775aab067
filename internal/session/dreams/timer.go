package dreams

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/task"
)

// stateWait is the maximum duration of one wait for a change of the session.
const stateWait = time.Hour

// Run starts a dream when the session has been idle for long enough and one is due, until ctx ends. It
// checks once each time that the session becomes idle.
func (d *Dreams) Run(ctx context.Context, session *idle.Watch) {
	var tried time.Time
	state, err := session.State(ctx, control.StateRequest{})
	for err == nil && ctx.Err() == nil {
		if state.Idle {
			before := state.Version
			state, err = session.State(ctx, control.StateRequest{After: before, Wait: d.s.Options.Memory.IdleAfter})
			if err != nil || state.Version != before {
				continue
			}
			var failed error
			if tried, failed = d.StartIfDue(ctx, tried); failed != nil && ctx.Err() == nil {
				d.s.Say(fmt.Sprintf("memory is not consolidated: %v", failed))
			}
		}
		state, err = session.State(ctx, control.StateRequest{After: state.Version, Wait: stateWait})
	}
}

// StartIfDue starts a dream if one is due and no other process dreams. It takes and returns the
// time of this session's last attempt: a failed dream leaves memory unchanged and the session
// idle again, so it would be repeated forever.
func (d *Dreams) StartIfDue(ctx context.Context, tried time.Time) (time.Time, error) {
	now, err := d.cfg.Memory.State()
	if err != nil || now.PID != 0 {
		return tried, err
	}
	since, err := d.Worked(now.Last)
	if err != nil {
		return tried, err
	}
	last := now.Last
	if tried.After(last) {
		last = tried
	}
	opt := d.s.Options.Memory
	if !(memory.Rule{Every: opt.Every, Sessions: opt.Sessions}).Due(time.Now(), last, since) {
		return tried, nil
	}
	_, err = d.Start(ctx, dream.Idle, task.Spec{})
	return time.Now(), err
}
