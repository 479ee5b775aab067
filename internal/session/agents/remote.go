package agents

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// elsewhere is the isolation of an agent that runs on a remote service.
const elsewhere = "remote"

// remote starts a remote agent for the model. It runs in the background, unless this agent may
// not start background tasks.
func (rt *Runtime) remote(ctx context.Context, r tasktools.AgentRequest) (tasktools.AgentOutcome, error) {
	s := rt.s
	out := tasktools.AgentOutcome{
		Unless:       rt.unless(false),
		Backgrounded: !s.Options.Tasks.DisableBackground && (rt.Host == nil || s.Options.Agents.NestedBackground),
	}
	switch {
	case r.Resume != "":
		return out, &toolkit.Refusal{Text: "a remote agent cannot be resumed: start another with what it needs to know"}
	case r.Team != "":
		return out, &toolkit.Refusal{Text: "a teammate cannot be remote"}
	}
	spec := rt.spec(r.ToolUseID, out.Backgrounded)
	spec.Name, spec.Description = r.Name, r.Description
	start, err := s.remoteWork(control.RemoteRequest{Prompt: r.Prompt, AgentType: r.Type, Model: r.Model}, spec, nil)
	if err != nil {
		return out, agentRefusal(err)
	}
	if out.Task, err = s.Tasks.Start(ctx, start.Driver, start.Spec); err != nil {
		return out, agentRefusal(err)
	}
	if out.Backgrounded {
		rt.know(out.Task.ID)
		return out, nil
	}
	if out.Task, err = rt.await(ctx, out.Task.ID); err != nil {
		return out, err
	}
	if out.Backgrounded = out.Task.Backgrounded; out.Backgrounded {
		return out, nil
	}
	out.Text, err = s.Log.AnswerExcerpt(ctx, out.Task.Run)
	return out, err
}
