package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	flow "github.com/drover-dev/drover/internal/agentenv/workflowfile"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/internal/tool/workflowtool"
	"github.com/drover-dev/drover/task"
)

// judged is a step of a workflow as rules see it.
type judged struct {
	step  flow.Step
	where string // the step, for people: outermost first
	cwd   string // absolute
}

// each calls f for every step of a workflow and of those within it.
func each(p *flow.Plan, cwd, above string, f func(judged) error) error {
	for _, s := range p.Steps {
		j := judged{s, above + s.ID, s.Cwd}
		if !filepath.IsAbs(s.Cwd) {
			j.cwd = filepath.Join(cwd, s.Cwd)
		}
		if err := f(j); err != nil {
			return err
		}
		if s.Workflow != nil {
			if err := each(s.Workflow.Plan, j.cwd, j.where+"/", f); err != nil {
				return err
			}
		}
	}
	return nil
}

// line is what a shell step comes to: where it runs and what it sets are a part of
// it. A value that is not known yet is one that the line does not know either.
func (j judged) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cd %s\n", shell.Quote(j.cwd))
	for _, v := range j.step.Env {
		value := shell.Quote(v.Text)
		if strings.Contains(v.Text, "${{") {
			value = `"$DROVER_COMPUTED"`
		}
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, value)
	}
	b.WriteString(j.step.Shell)
	return b.String()
}

// call is the call that does the same as the step; ok is false for a step that does
// nothing by itself.
func (j judged) call(id string) (c agent.Call, ok bool) {
	in := map[string]any{"description": "step " + j.where}
	switch g := j.step.Agent; {
	case j.step.Shell != "":
		c.Name, in["command"] = "Bash", j.line()
	case g != nil:
		c.Name, in["subagent_type"], in["prompt"] = "Agent", g.Type, g.Prompt
		if g.Isolation != "" {
			in["isolation"] = g.Isolation
		}
	default:
		return c, false
	}
	raw, err := json.Marshal(in)
	if err != nil {
		panic(err) // texts only
	}
	c.ID, c.Input = id, raw
	return c, true
}

// workflows are those that an agent starts.
type workflows struct {
	rt *runtime
	k  *agentEnvironment
}

var _ workflowtool.Workflows = (*workflows)(nil)

// workflowTool is the tool Workflow of the agent.
func (k *agentEnvironment) workflowTool(rt *runtime) agent.Tool {
	return workflowtool.New(workflowtool.Config{Workflows: &workflows{rt, k}, Root: k.me.cwd, OutputLimit: k.me.s.cfg.Limits.OutputChars})
}

// Start implements [workflowtool.Workflows].
func (w *workflows) Start(ctx context.Context, r workflowtool.Request) (workflowtool.Outcome, error) {
	s, rt := w.rt.s, w.rt
	background := !s.cfg.Limits.NoBackground && (rt.host == nil || s.cfg.Limits.NestedBackground)
	spec := rt.spec(r.ToolUseID, background)
	f := &flows{s: s, me: rt.caller, patience: approvalWait}
	if s.cfg.Agents.AskWait <= 0 {
		f.patience = 0
	}
	rec, err := w.begin(ctx, f, r, spec)
	if err != nil {
		return workflowtool.Outcome{}, workflowRefusal(err)
	}
	if background {
		rt.know(rec.ID)
		return workflowtool.Outcome{Task: rec, Backgrounded: true}, nil
	}
	await := s.sup.Await
	if rt.host != nil {
		await = rt.host.Await
	}
	got, err := await(ctx, rec.ID)
	if err != nil {
		if stop := rt.interrupt(ctx, rec.ID); stop != nil {
			return workflowtool.Outcome{}, stop
		}
		return workflowtool.Outcome{}, context.Cause(ctx)
	}
	text, err := s.log.AnswerExcerpt(ctx, got.Run)
	return workflowtool.Outcome{Task: got, Backgrounded: got.Backgrounded, Text: text}, err
}

// begin starts a workflow, or goes on with one, whose steps are all allowed.
func (w *workflows) begin(ctx context.Context, f *flows, r workflowtool.Request, spec task.Spec) (task.Record, error) {
	s := w.rt.s
	if r.Resume == "" {
		plan, err := compile(r.File, w.read)
		if err != nil {
			return task.Record{}, err
		}
		start, err := s.newWorkflow(f, plan, r.Params, w.rt.cwd, spec)
		if err != nil {
			return task.Record{}, err
		}
		if err := w.judge(ctx, plan, w.rt.cwd, r.ToolUseID); err != nil {
			return task.Record{}, err
		}
		return s.sup.Start(ctx, start.Driver, start.Spec)
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
	if v := w.k.rule().Decide(agent.Call{Name: "Read", Input: raw}); v.Decision != permission.Allow {
		return nil, fmt.Errorf("it may not be read here: %s", v.Reason)
	}
	return WorkflowFile(path)
}

// judge asks of every step what would be asked if the agent did it by a call of its
// own: it is refused, allowed, or a question, before any of them begins.
func (w *workflows) judge(ctx context.Context, p *flow.Plan, cwd, toolUse string) error {
	return each(p, cwd, "", func(j judged) error {
		c, ok := j.call(toolUse)
		if !ok {
			return nil
		}
		refuse := func(why string) error {
			return &toolkit.Refusal{Text: fmt.Sprintf("step %s was not allowed, and nothing was started: %s", j.where, why)}
		}
		tools, only := w.k.me.tools, error(nil)
		if j.step.Agent != nil {
			only = w.rt.peopleOnly(j.step.Agent.Type)
		}
		switch {
		case tools != nil && !slices.Contains(tools, c.Name):
			return refuse("you have no tool " + c.Name)
		case c.Name == "Agent" && j.cwd != w.rt.cwd: // its folder is what it may work in
			return refuse("an agent cannot work in another folder than you")
		case c.Name == "Agent" && w.k.me.depth >= w.rt.s.cfg.Limits.Depth:
			return refuse("no agent can be started from here")
		case only != nil:
			return refuse(only.Error())
		}
		d, err := w.k.cfg.Gate.Check(ctx, c)
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

// workflowRefusal tells a model what it may mend.
func workflowRefusal(err error) error {
	var refused *toolkit.Refusal
	var shown *control.Error
	var move *task.MoveError
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, tasktools.ErrUnknown):
		return &toolkit.Refusal{Text: "unknown task_id"}
	case errors.As(err, &shown), errors.As(err, &move), errors.Is(err, supervise.ErrFrozen),
		errors.Is(err, supervise.ErrClosing), errors.Is(err, task.ErrLost):
		return &toolkit.Refusal{Text: err.Error()}
	}
	return err
}
