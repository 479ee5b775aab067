package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	flow "github.com/drover-dev/drover/internal/project/workflowfile"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/internal/tool/workflowtool"
	"github.com/drover-dev/drover/task"
)

// workflows starts workflows for an agent.
type workflows struct {
	rt *Runtime
	k  *Environment
}

var _ workflowtool.Workflows = (*workflows)(nil)

// workflowTool is the tool Workflow of the agent.
func (k *Environment) workflowTool(rt *Runtime) agent.Tool {
	return workflowtool.New(&workflows{rt, k}, k.Me.Cwd, k.s.Options.Tasks.OutputLength)
}

// Start implements [workflowtool.Workflows].
func (w *workflows) Start(ctx context.Context, r workflowtool.Request) (workflowtool.Outcome, error) {
	s, rt := w.rt.s, w.rt
	background := !s.Options.Tasks.DisableBackground && (rt.Host == nil || s.Options.Agents.NestedBackground)
	spec := rt.spec(r.ToolUseID, background)
	f := &flows{s: s, me: rt.Caller, patience: approvalWait}
	if s.cfg.AskWait <= 0 {
		f.patience = 0
	}
	rec, err := w.begin(ctx, f, r, spec)
	if err != nil {
		return workflowtool.Outcome{}, workflowRefusal(err)
	}
	if background {
		rt.know(rec.ID)
		return workflowtool.Outcome{Task: rec, Backgrounded: true, Unless: rt.unless(false)}, nil
	}
	got, err := rt.await(ctx, rec.ID)
	if err != nil {
		return workflowtool.Outcome{}, err
	}
	text, err := s.Log.AnswerExcerpt(ctx, got.Run)
	return workflowtool.Outcome{Task: got, Backgrounded: got.Backgrounded, Unless: rt.unless(false), Text: text}, err
}

// begin starts a workflow, or continues one, whose steps are all allowed.
func (w *workflows) begin(ctx context.Context, f *flows, r workflowtool.Request, spec task.Spec) (task.Record, error) {
	s := w.rt.s
	if r.Resume == "" {
		plan, err := compile(r.File, w.read)
		if err != nil {
			return task.Record{}, err
		}
		start, err := s.newWorkflow(f, plan, r.Params, w.rt.Cwd, spec)
		if err != nil {
			return task.Record{}, err
		}
		if err := w.judge(ctx, plan, w.rt.Cwd, r.ToolUseID); err != nil {
			return task.Record{}, err
		}
		return s.Tasks.Start(ctx, start.Driver, start.Spec)
	}
	old, err := w.rt.Find(ctx, r.Resume)
	switch {
	case err != nil:
		return old, err
	case old.Traits().Work != task.BySteps:
		return old, &toolkit.Refusal{Text: fmt.Sprintf("task %s is no workflow and cannot be resumed by this tool", old.ID)}
	}
	plan, err := resumable(s, old)
	if err != nil {
		return old, err
	}
	if err := w.judge(ctx, plan, old.Cwd, r.ToolUseID); err != nil {
		return old, err
	}
	return s.relaunchWorkflow(ctx, f, old, spec)
}

// read reads a file of a workflow if the agent may read it.
func (w *workflows) read(path string) ([]byte, error) {
	raw, err := json.Marshal(map[string]string{"file_path": path})
	if err != nil {
		return nil, err
	}
	if v := w.k.Gate().Decide(agent.Call{Name: "Read", Input: raw}); v.Decision != policy.Allow {
		return nil, fmt.Errorf("it may not be read here: %s", v.Reason)
	}
	return flow.Read(path)
}

// judge applies the permission rules to every step as to the equivalent call of the agent: each
// is refused, allowed, or asked about, before any of them begins.
func (w *workflows) judge(ctx context.Context, p *flow.Plan, cwd, toolUse string) error {
	return eachStep(p, cwd, func(j judgedStep) error {
		c, ok := j.call(toolUse)
		if !ok {
			return nil
		}
		refuse := func(why string) error {
			return &toolkit.Refusal{Text: fmt.Sprintf("step %s was not allowed, and nothing was started: %s", j.Where, why)}
		}
		tools, only := w.k.Me.Tools, error(nil)
		if j.Agent != nil {
			only = w.rt.peopleOnly(j.Agent.Type)
		}
		switch {
		case tools != nil && !slices.Contains(tools, c.Name):
			return refuse("you have no tool " + c.Name)
		case c.Name == "Agent" && j.Dir != w.rt.Cwd: // it may work only in its own folder
			return refuse("an agent cannot work in another folder than you")
		case c.Name == "Agent" && w.k.Me.Depth >= w.rt.s.Options.Limits.Depth:
			return refuse("no agent can be started from here")
		case only != nil:
			return refuse(only.Error())
		}
		d, err := w.k.Config.Gate.Check(ctx, c)
		switch {
		case err != nil:
			return err
		case !d.Allow:
			return refuse(d.Reason)
		case len(d.Input) > 0 && string(d.Input) != string(c.Input):
			return refuse("it was allowed with changes, which a step cannot have; change the file")
		}
		return nil
	})
}

// workflowRefusal makes a refusal of an error that a model can correct.
func workflowRefusal(err error) error {
	switch {
	case errors.Is(err, tasktools.ErrUnknown):
		return &toolkit.Refusal{Text: "unknown task_id"}
	case errors.Is(err, task.ErrLost):
		return toolkit.Refuse(err)
	}
	return refused(err)
}
