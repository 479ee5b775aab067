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
	"github.com/drover-dev/drover/task"
)

// Start starts tasks for a client.
func (t *Tasks) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	out := make([]control.Started, len(reqs))
	begins := make([]func(), 0, len(reqs))
	var batch []supervise.Starting
	var places []int
	for i, r := range reqs {
		if r.Check() == nil && r.Shell != nil && r.Lease == "" { // commands become durable together
			w, err := t.agents.Command(
				r,
				task.Spec{
					Name:         r.Name,
					Description:  r.Description,
					Backgrounded: true,
					Keep:         r.Keep,
					Timeout:      r.Timeout,
					Cwd:          r.Cwd,
					Schedule:     r.Schedule,
				},
				shell.Client{Env: t.agents.ChildEnv(r.Env)},
			)
			if err != nil {
				out[i].Error = Refusal(err)
				continue
			}
			batch, places = append(batch, w), append(places, i)
			continue
		}
		rec, begin, err := t.start(ctx, r, shell.Client{Env: t.agents.ChildEnv(r.Env)}, true)
		if begin != nil {
			begins = append(begins, begin)
		}
		if err != nil {
			out[i].Error = NotStarted(err)
			continue
		}
		out[i].Task = &rec
	}
	for k, r := range t.s.Tasks.RecordAll(ctx, batch) {
		if r.Err != nil {
			out[places[k]].Error = NotStarted(r.Err)
			continue
		}
		out[places[k]].Task, begins = &r.Task, append(begins, r.Begin)
	}
	for _, begin := range begins {
		begin()
	}
	for i, r := range reqs {
		if r.Monitor != nil && out[i].Error == nil {
			agents.AwaitWatch(ctx, t.s.Tasks, t.s.Log, out[i].Task.ID)
		}
	}
	return out, nil
}

// start records a task, which waits for begin. An agent or a dream has begun already: then
// begin is nil, as with an error.
func (t *Tasks) start(
	ctx context.Context, r control.StartRequest, client shell.Client, background bool,
) (rec task.Record, begin func(), err error) {
	if err := r.Check(); err != nil {
		return task.Record{}, nil, err
	}
	spec := task.Spec{
		Name:         r.Name,
		Description:  r.Description,
		Backgrounded: background,
		Keep:         r.Keep,
		Timeout:      r.Timeout,
		Cwd:          r.Cwd,
		Schedule:     r.Schedule,
	}
	lease, err := t.leases.open(r.Lease)
	if err != nil {
		return task.Record{}, nil, err
	}
	var start supervise.Starting
	switch {
	case r.Shell != nil:
		start, err = t.agents.Command(r, spec, client)
	case r.Monitor != nil:
		start, err = t.agents.ClientMonitor(r, spec)
	case r.Workflow != nil:
		start, err = t.agents.ClientWorkflow(r, spec)
	case r.Remote != nil:
		start, err = t.agents.ClientRemote(r, spec)
	case r.Agent != nil:
		rec, err = t.agents.StartForClient(ctx, r, spec)
	default:
		rec, err = t.requestDream(ctx, r, spec)
	}
	if err == nil && start.Driver != nil {
		rec, begin, err = t.s.Tasks.Record(ctx, start.Driver, start.Spec)
	}
	if err == nil && begin != nil { // a task that has not begun cannot be awaited
		start := begin
		begin = func() {
			start()
			lease.add(ctx, rec.ID)
		}
	} else if err == nil {
		lease.add(ctx, rec.ID)
	}
	return rec, begin, err
}

// RunCommand runs a command in the foreground and returns when it has ended.
// When ctx ends, the command is stopped; with [conversation.ErrInterrupted] as its cause, by INT
// first.
func (t *Tasks) RunCommand(ctx context.Context, r control.StartRequest, client shell.Client) (task.Record, error) {
	client.Env = t.agents.ChildEnv(r.Env)
	rec, begin, err := t.start(ctx, r, client, false)
	if begin != nil {
		begin()
	}
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
