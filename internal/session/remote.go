package session

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/session/services"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// remotePool is the pool of remote work, and remoteLive its places.
const (
	remotePool = "remote"
	remoteLive = 200
)

// elsewhere is the isolation of an agent that works at a service.
const elsewhere = "remote"

// useRemote makes the driver of remote work.
func (s *Session) useRemote() {
	cfg := s.cfg.Agents.Remote
	s.services = services.New(cfg)
	checkers := &remoteapi.Checkers{}
	for t, line := range cfg.Checkers {
		cmd := &remoteapi.Command{Line: line, Dir: s.cfg.Info.Project, Env: shell.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers.Register(t, cmd)
	}
	s.kinds.UseRemote(
		driver.Config{Open: s.services.Open(nil), Sidecar: s.cfg.Place.RemoteFile, Checkers: checkers, Offline: cfg.Offline},
	)
}

// goesOn reports whether the work of a task is not that of its host, so that the
// next host has it.
func (s *Session) goesOn(r task.Record) bool {
	return r.Traits().Elsewhere == task.AlwaysAway && r.Status == task.Running && r.Away()
}

// remoteWork is remote work that is going to be.
func (s *Session) remoteWork(r control.RemoteRequest, spec task.Spec, env []string) (task.Driver, task.Spec, error) {
	job, open, err := s.services.Job(r, env)
	if err != nil {
		return nil, spec, err
	}
	w := s.kinds.Remote(open, job)
	spec.Input, spec.Pool = w.Input, remotePool
	spec.AgentType, spec.Model, spec.Prompt = r.AgentType, r.Model, r.Prompt
	if spec.Description == "" {
		spec.Description = firstLine(r.Prompt, 60)
	}
	return w.Driver, spec, nil
}

// startRemote starts remote work for a client.
func (s *Session) startRemote(
	ctx context.Context,
	r control.StartRequest,
	spec task.Spec,
) (task.Record, func(), error) {
	if r.Keep {
		return task.Record{}, nil, &control.Error{
			Code:    control.Invalid,
			Message: "remote work goes on without its host anyway",
			Fix:     "leave --keep out",
		}
	}
	d, spec, err := s.remoteWork(*r.Remote, spec, r.Env)
	if err != nil {
		return task.Record{}, nil, err
	}
	return s.sup.Record(ctx, d, spec)
}

// remote starts an agent elsewhere for the model. It goes on in the background,
// unless nothing that this agent starts may.
func (rt *runtime) remote(ctx context.Context, r tasktools.AgentRequest) (tasktools.AgentOutcome, error) {
	s := rt.s
	out := tasktools.AgentOutcome{
		Backgrounded: !s.cfg.Limits.NoBackground && (rt.host == nil || s.cfg.Limits.NestedBackground),
	}
	switch {
	case r.Resume != "":
		return out, &toolkit.Refusal{Text: "a remote agent cannot be resumed: start another with what it needs to know"}
	case r.Team != "":
		return out, &toolkit.Refusal{Text: "a teammate cannot be remote"}
	}
	spec := rt.spec(r.ToolUseID, out.Backgrounded)
	spec.Name, spec.Description = r.Name, r.Description
	d, spec, err := s.remoteWork(control.RemoteRequest{Prompt: r.Prompt, AgentType: r.Type, Model: r.Model}, spec, nil)
	if err != nil {
		return out, agentRefusal(err)
	}
	if out.Task, err = s.sup.Start(ctx, d, spec); err != nil {
		return out, agentRefusal(err)
	}
	if out.Backgrounded {
		rt.know(out.Task.ID)
		return out, nil
	}
	await := s.sup.Await
	if rt.host != nil {
		await = rt.host.Await
	}
	if out.Task, err = await(ctx, out.Task.ID); err != nil {
		return out, errors.Join(rt.interrupt(ctx, out.Task.ID), context.Cause(ctx))
	}
	if out.Backgrounded = out.Task.Backgrounded; out.Backgrounded {
		return out, nil
	}
	out.Text, err = s.log.AnswerExcerpt(ctx, out.Task.Run)
	return out, err
}
