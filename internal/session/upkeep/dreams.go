package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/project/memory"
)

// Dreams decides when a session consolidates memory by itself.
type Dreams struct {
	Memory *memory.Store
	Idle   time.Duration // how long the session must have been idle
	Rule   memory.Rule   // reports whether a dream is due

	State  func(context.Context, control.StateRequest) (control.State, error) // of the session
	Worked func(since time.Time) (conversations int, err error)
	Start  func(context.Context) error
}

// stateWait is the maximum duration of one wait for a change of the session.
const stateWait = time.Hour

// run starts a dream when the session has been idle for long enough and one is due. It checks
// once each time that the session becomes idle.
func (d *Dreams) run(ctx context.Context, report func(text string)) {
	var tried time.Time
	state, err := d.State(ctx, control.StateRequest{})
	for err == nil && ctx.Err() == nil {
		if state.Idle {
			before := state.Version
			if state, err = d.State(
				ctx,
				control.StateRequest{After: before, Wait: d.Idle},
			); err != nil ||
				state.Version != before {
				continue
			}
			var failed error
			if tried, failed = d.StartIfDue(ctx, tried); failed != nil && ctx.Err() == nil {
				report(fmt.Sprintf("memory is not consolidated: %v", failed))
			}
		}
		state, err = d.State(ctx, control.StateRequest{After: state.Version, Wait: stateWait})
	}
}

// StartIfDue starts a dream if one is due and no other process dreams. It takes and returns the
// time of this session's last attempt: a failed dream leaves memory unchanged and the session
// idle again, so it would be repeated forever.
func (d *Dreams) StartIfDue(ctx context.Context, tried time.Time) (time.Time, error) {
	now, err := d.Memory.State()
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
	if !d.Rule.Due(time.Now(), last, since) {
		return tried, nil
	}
	return time.Now(), d.Start(ctx)
}
