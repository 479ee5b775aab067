package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/memory"
	"github.com/drover-dev/drover/internal/api/control"
)

// Dreams says when a session consolidates memory by itself.
type Dreams struct {
	Memory *memory.Store
	Idle   time.Duration // that the session must have been
	Rule   memory.Rule   // says that a dream is due

	State  func(context.Context, control.StateRequest) (control.State, error) // of the session
	Worked func(since time.Time) (conversations int, err error)
	Start  func(context.Context) error
}

// stateWait is how long a session that waits for something to happen waits at once.
const stateWait = time.Hour

// run starts a dream when the session has been idle for long enough and one is due. It
// is looked at once for each time that the session comes to rest.
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

// StartIfDue starts a dream if one is due and nobody else dreams. It is given when this
// session tried last, and returns that: a dream that came to nothing leaves memory as old
// as it was, and its end is a rest again, so without that it would be tried for ever.
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
