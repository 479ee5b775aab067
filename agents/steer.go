package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Wait waits for the end of a task and returns it as it ended. In a tool of an agent, called with its ctx, it waits for
// what the tool has started below the agent without the agent's place among those at work.
func (rt *Runtime) Wait(ctx context.Context, id task.ID) (task.Record, error) {
	if caller := subagent.Caller(ctx); caller != nil {
		if r, err := rt.Get(ctx, string(id)); err == nil && r.Parent == caller.Record().ID {
			return caller.Await(ctx, id)
		}
	}
	return rt.Runtime.Wait(ctx, id)
}

// Interrupt ends the turn of an agent and not its task: the agent is idle then and waits
// for a message. An agent that is in no turn is an error.
func (rt *Runtime) Interrupt(ctx context.Context, id task.ID) (task.Record, error) {
	return rt.s.Interrupt(ctx, string(id))
}

// Promote moves a task that an agent waits for to the background: the agent continues, and
// is notified of the end.
func (rt *Runtime) Promote(ctx context.Context, id task.ID) (task.Record, error) {
	return rt.s.Promote(ctx, string(id))
}

// Cost is what the models have cost so far in US dollars; priced is false where the price of some calls is not known.
func (rt *Runtime) Cost() (usd float64, priced bool) { return rt.s.Cost() }

// OnIdle calls f once for each time that the present run of an agent becomes idle after
// the event with the number after, in order, and returns nil when the run has ended. It
// follows the log and does not poll: 0 is the beginning of the log, and a later call
// continues after the number of the last event that f got. f runs on the caller's
// goroutine. When ctx ends, OnIdle returns its cause.
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
