package drover

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Send gives a message to an agent: one at work reads it before its next step, one
// that rests is woken, one that has ended goes on in a further run. The record is
// that of the agent then.
func (rt *Runtime) Send(ctx context.Context, ref, text string) (task.Record, error) {
	return rt.s.Send(ctx, control.SendRequest{Ref: ref, Text: text, Env: rt.env})
}

// OnIdle calls f once for each time that the present run of an agent comes to rest
// after the event with the number after, in order, and returns nil when the run has
// ended. It asks nobody and polls nothing: what happened before the call is in the
// log, 0 is its beginning, and the number of the event that f was given is where a
// later call goes on. f is called on the caller's goroutine. When ctx ends, its
// cause is returned.
func (rt *Runtime) OnIdle(ctx context.Context, ref string, after task.Seq, f func(task.Event)) error {
	r, err := rt.s.Get(ctx, ref)
	if err != nil {
		return err
	}
	for e, err := range rt.s.Events(ctx, after) {
		switch {
		case err != nil:
			return fmt.Errorf("follow %s: %w", r.ID, err)
		case e.Task.ID != r.ID || e.Task.Run != r.Run:
		case e.Verb == task.Rest:
			f(e)
		case e.Task.Status.Terminal():
			return nil
		}
	}
	return errors.New("the runtime was closed")
}
