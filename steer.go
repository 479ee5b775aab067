package drover

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Wait waits for the end of a task and returns it as it ended.
func (rt *Runtime) Wait(ctx context.Context, id task.ID) (task.Record, error) {
	reply, err := rt.s.Wait(ctx, control.WaitRequest{Refs: []string{string(id)}})
	if err != nil {
		return task.Record{}, err
	}
	return reply.Tasks[0], nil
}

// Stop ends a task and all tasks that it started, and reports the end of each.
func (rt *Runtime) Stop(ctx context.Context, id task.ID) (task.Receipt, error) {
	return rt.s.Stop(ctx, control.StopRequest{Refs: []string{string(id)}, Actor: task.ByClient})
}

// Pause pauses a task with all below it, and returns their records, the task first, when
// that is durable. An agent that is paused begins no call of its model or of a tool and
// keeps its work; commands stand still.
func (rt *Runtime) Pause(ctx context.Context, id task.ID) ([]task.Record, error) {
	return rt.s.Pause(ctx, []string{string(id)})
}

// Resume lets a paused task go on with all below it. An agent or a workflow that has
// ended gets a further run: an agent with prompt, if it is not empty.
func (rt *Runtime) Resume(ctx context.Context, id task.ID, prompt string) (task.Record, error) {
	return rt.s.Resume(ctx, control.ResumeRequest{Ref: string(id), Prompt: prompt, Env: rt.env})
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

// Send gives a message to an agent: a working agent reads it before its next step, an
// idle one is woken, and an ended one continues in a further run. Send returns the
// record of the agent after that.
func (rt *Runtime) Send(ctx context.Context, ref, text string) (task.Record, error) {
	return rt.s.Send(ctx, control.SendRequest{Ref: ref, Text: text, Env: rt.env})
}

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
