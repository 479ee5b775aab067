package requests

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/task"
)

// kinds is the work that clients of a session of agents can start.
type kinds struct {
	*agents.Set
	t *Tasks
}

var _ tasks.Kinds = kinds{}

// Other is work that is no command, before its start. An agent and a dream have begun already.
func (k kinds) Other(
	ctx context.Context, r control.StartRequest, spec task.Spec,
) (start supervise.Starting, rec task.Record, err error) {
	switch {
	case r.Monitor != nil:
		start, err = k.ClientMonitor(r, spec)
	case r.Workflow != nil:
		start, err = k.ClientWorkflow(r, spec)
	case r.Remote != nil:
		start, err = k.ClientRemote(r, spec)
	case r.Agent != nil:
		rec, err = k.StartForClient(ctx, r, spec)
	default:
		rec, err = k.t.requestDream(ctx, r, spec)
	}
	return start, rec, known(err)
}

// Start starts tasks for a client.
func (t *Tasks) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	out, err := t.StartAll(ctx, kinds{t.agents, t}, reqs)
	for i, r := range reqs {
		if err == nil && r.Monitor != nil && out[i].Error == nil {
			agents.AwaitWatch(ctx, t.s.Tasks, t.s.Log, out[i].Task.ID)
		}
	}
	return out, err
}

// RunCommand runs a command in the foreground and returns when it has ended.
// When ctx ends, the command is stopped; with [conversation.ErrInterrupted] as its cause, by INT
// first.
func (t *Tasks) RunCommand(ctx context.Context, r control.StartRequest, client shell.Client) (task.Record, error) {
	client.Env = t.agents.ChildEnv(r.Env)
	rec, err := t.StartForeground(ctx, kinds{t.agents, t}, r, client)
	if err != nil {
		return rec, Refusal(err)
	}
	if _, err := t.s.Tasks.Wait(ctx, []task.ID{rec.ID}, false); err != nil {
		last, why := context.WithoutCancel(ctx), task.Cause{
			Actor:  task.ByUser,
			Reason: task.ReasonStopped,
			Detail: context.Cause(ctx).Error(),
		}
		if errors.Is(context.Cause(ctx), conversation.ErrInterrupted) {
			why.Reason, why.Detail = task.ReasonInterrupt, ""
		}
		if _, err := t.s.Tasks.Stop(last, []task.ID{rec.ID}, supervise.StopRequest{Cause: why}); err != nil {
			return rec, err
		}
	}
	rec, _ = t.s.Tasks.Get(rec.ID)
	return t.s.Log.Whole(context.WithoutCancel(ctx), rec)
}

// requestDream starts a dream for a client.
func (t *Tasks) requestDream(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, error) {
	switch {
	case r.Keep:
		return task.Record{}, control.Refuse(control.Invalid, "a dream cannot be kept past its host",
			"start another one later")
	case r.Lease != "":
		return task.Record{}, control.Refuse(control.Invalid, "a dream belongs to no client, and takes no lease", "")
	}
	return t.dreams.Start(ctx, dream.Manual,
		task.Spec{Name: spec.Name, Description: spec.Description, Timeout: spec.Timeout})
}
