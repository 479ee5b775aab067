package drover

import (
	"context"

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
// ended gets a further run.
func (rt *Runtime) Resume(ctx context.Context, id task.ID) (task.Record, error) {
	return rt.s.Resume(ctx, control.ResumeRequest{Ref: string(id), Env: rt.env})
}

// Send gives a message to a task whose driver is a [task.Steerer]. A working agent reads
// it before its next step, an idle one is woken, and an ended one continues in a further
// run. Send returns the record of the task after that.
func (rt *Runtime) Send(ctx context.Context, ref, text string) (task.Record, error) {
	return rt.s.Send(ctx, control.SendRequest{Ref: ref, Text: text, Env: rt.env})
}
