package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/driver/workflow"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	flow "github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// approvalWait is how long an approval without a time limit waits.
const approvalWait = 24 * time.Hour

// flows executes the steps of a workflow for its starter: its agents get no more than me has,
// and its commands get the environment of me.
type flows struct {
	s        *Set
	me       Caller
	patience time.Duration
}

var _ workflow.Steps = (*flows)(nil)

// Start implements [workflow.Steps].
func (f *flows) Start(ctx context.Context, h task.Host, a workflow.Attempt) (task.Record, error) {
	parent := h.Record().ID
	if a.Resumed {
		r, ok, err := f.s.Child(ctx, parent, a.Key)
		if err != nil {
			return task.Record{}, err
		}
		if ok {
			return r, nil
		}
	}
	spec := task.Spec{
		Key:         a.Key,
		Cwd:         a.Cwd,
		Timeout:     a.Step.Timeout,
		Description: fmt.Sprintf("step %s of %s", a.Step.ID, a.Workflow),
	}
	if g := a.Step.Agent; g != nil {
		spec.Parent = parent
		me := f.me
		me.Cwd = a.Cwd
		rec, _, err := f.s.Launch(
			ctx,
			subagent.Input{Type: g.Type, Prompt: a.Text, Model: g.Model, MaxTurns: g.MaxTurns, Isolation: g.Isolation,
				On: a.Step.On},
			spec,
			me,
		)
		return rec, err
	}
	var w builtin.Work
	switch {
	case a.Step.Workflow != nil:
		w = f.s.kinds.Workflow(f, a.Input())
		spec.Command, spec.Timeout = a.Step.Workflow.Plan.File, limitOf(a.Step)
	case a.Step.On != "":
		w = f.s.kinds.CommandAt(
			placement.Want{
				Job:    fleetwire.Job{Description: spec.Description, Line: a.Step.Shell, Env: a.Vars, Sandbox: true},
				Folder: a.Cwd,
			},
			shell.Command{Line: a.Step.Shell, Cwd: a.Cwd},
		)
		spec.On, spec.Command, spec.Pool = a.Step.On, a.Step.Shell, WorkerPool
	default:
		bounded, err := f.s.sandboxes.Command(sandboxes.Wish{
			Folders: append(f.me.folders(), a.Cwd), Line: a.Step.Shell, Mode: f.me.sandbox,
		})
		if err != nil {
			return task.Record{}, err
		}
		spec.Sandbox = bounded.Held
		w = f.s.kinds.Command(
			shell.Client{Env: bounded.Environ(without(f.me.Env, a.Vars)), Own: a.Vars, Fork: bounded.Fork, Made: bounded.Made},
			shell.Command{Line: a.Step.Shell, Cwd: a.Cwd},
		)
		spec.Command, spec.Pool = a.Step.Shell, tasks.ShellPool
	}
	spec.Input = w.Input
	return h.Spawn(ctx, w.Driver, spec)
}

// without returns an environment without the names that own sets.
func without(env, own []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
}

// Again implements [workflow.Steps].
func (f *flows) Again(ctx context.Context, _ task.Host, id task.ID, a workflow.Attempt) (task.Record, error) {
	w := f.s.kinds.Workflow(f, workflow.Input{Resume: true})
	return f.s.Tasks.Resume(ctx, id, w.Driver, task.Spec{Input: w.Input, Cwd: a.Cwd, Timeout: limitOf(a.Step)})
}

// limitOf returns the time limit of a step that is a workflow: the smaller of its own and that
// of the file.
func limitOf(s flow.Step) time.Duration { return budget.Tighter(s.Timeout, s.Workflow.Plan.Timeout) }

// Stop implements [workflow.Steps].
func (f *flows) Stop(ctx context.Context, id task.ID, why string) error {
	_, err := f.s.Tasks.Stop(ctx, []task.ID{id},
		supervise.StopRequest{Cause: task.Cause{Actor: task.ByParent, Reason: task.ReasonStopped, Detail: why}})
	return err
}

// Text implements [workflow.Steps].
func (f *flows) Text(ctx context.Context, id task.ID) (string, error) {
	r, ok := f.s.Tasks.Get(id)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: %s", supervise.ErrUnknown, id)
	case r.Traits().Work != task.ByCommand:
		return f.s.Log.AnswerExcerpt(ctx, r.Run)
	}
	data, _, err := spool.Tail(r.OutputFile, 0, flow.MaxOutput)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(data), err
}

// Barred implements [workflow.Steps].
func (f *flows) Barred(err error) bool {
	return errors.Is(err, supervise.ErrFrozen) || errors.Is(err, supervise.ErrClosing)
}

// Patience implements [workflow.Steps].
func (f *flows) Patience() time.Duration { return f.patience }

// newWorkflow is a workflow before its start.
func (s *Set) newWorkflow(
	f *flows, plan *flow.Plan, params map[string]string, cwd string, spec task.Spec,
) (supervise.Starting, error) {
	all, err := plan.Values(params)
	if err != nil {
		return supervise.Starting{}, control.Refuse(control.Invalid, err.Error(), "see `drover workflow check`")
	}
	if err := s.fewWorkflows(); err != nil {
		return supervise.Starting{}, err
	}
	w := s.kinds.Workflow(f, workflow.Input{Plan: plan, Params: all, Cwd: cwd})
	spec.Input, spec.Command, spec.Cwd = w.Input, plan.File, cwd
	spec.Name = cmp.Or(spec.Name, subagent.Normalize(plan.Name))
	spec.Description = cmp.Or(spec.Description, excerpt.Line(plan.Description, 80), "workflow "+plan.Name)
	spec.Timeout = cmp.Or(spec.Timeout, plan.Timeout)
	return supervise.Starting{Driver: w.Driver, Spec: spec}, nil
}

// fewWorkflows refuses a workflow beyond the limit.
func (s *Set) fewWorkflows() error {
	live := 0
	for _, r := range s.Tasks.Living() {
		if r.Traits().Work == task.BySteps {
			live++
		}
	}
	if live < s.Options.Limits.Workflows {
		return nil
	}
	return control.Refuse(control.Unavailable,
		fmt.Sprintf("%d workflows are at work, which is the most that may be", live),
		"wait for some of them, or set limits.workflows")
}

// ClientWorkflow prepares a workflow for a client.
func (s *Set) ClientWorkflow(r control.StartRequest, spec task.Spec) (start supervise.Starting, err error) {
	if r.Keep {
		return start, control.Refuse(control.Invalid, "a workflow cannot be kept past its host", "resume it instead")
	}
	if file := r.Workflow.File; !filepath.IsAbs(file) || !filepath.IsAbs(r.Cwd) {
		return start, control.Refuse(control.Invalid,
			fmt.Sprintf("the paths %.200q and %.200q are not both absolute", file, r.Cwd), "")
	}
	plan, err := compile(r.Workflow.File, flow.Read)
	if err != nil {
		return start, err
	}
	if r.ByModel {
		err = eachStep(plan, r.Cwd, func(step judgedStep) error {
			guarded := r
			guarded.Cwd = step.Dir
			return s.banned(guarded, step.line())
		})
		if err != nil {
			return start, err
		}
	}
	f := &flows{s: s, me: s.Client(r.Cwd, r.Env, nil), patience: approvalWait}
	return s.newWorkflow(f, plan, r.Workflow.Params, r.Cwd, spec)
}

// ResumeWorkflow gives an ended workflow a further run, for a client.
func (s *Set) ResumeWorkflow(ctx context.Context, r task.Record, req control.ResumeRequest) (task.Record, error) {
	if req.Prompt != "" {
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s is a workflow, which reads no prompt", r.ID),
			"resume it without one")
	}
	me, err := s.above(r, req.Env)
	if err != nil {
		return r, err
	}
	f := &flows{s: s, me: me, patience: approvalWait}
	return s.relaunchWorkflow(ctx, f, r, task.Spec{Backgrounded: true, Owner: r.Owner})
}

// relaunchWorkflow continues a workflow after its completed steps.
func (s *Set) relaunchWorkflow(ctx context.Context, f *flows, r task.Record, spec task.Spec) (task.Record, error) {
	plan, err := resumable(s, r)
	if err != nil {
		return r, err
	}
	if err := s.fewWorkflows(); err != nil {
		return r, err
	}
	w := s.kinds.Workflow(f, workflow.Input{Resume: true})
	spec.Input, spec.Cwd, spec.Timeout = w.Input, r.Cwd, plan.Timeout
	return s.Tasks.Resume(ctx, r.ID, w.Driver, spec)
}

// resumable returns the plan of a workflow that can be continued.
func resumable(s *Set, r task.Record) (*flow.Plan, error) {
	refuse := func(why, fix string) (*flow.Plan, error) {
		return nil, control.Refuse(control.Conflict, fmt.Sprintf("workflow %s %s", r.ID, why), fix)
	}
	p, nested := s.Tasks.Get(r.Parent)
	plan, _, _, err := workflow.Saved(r.Checkpoint)
	switch {
	case !r.Status.Terminal():
		return refuse("is "+string(r.Status), "wait for its end")
	case r.Status == task.Completed:
		return refuse("has ended well, and nothing is left of it to do", "start it anew")
	case nested && p.Traits().Work == task.BySteps:
		return refuse(fmt.Sprintf("is a step of workflow %s", p.ID), "resume that one")
	case err != nil:
		return refuse("cannot go on: "+strings.ReplaceAll(err.Error(), "\n", ": "), "start it anew")
	}
	return plan, nil
}

// judgedStep is a step of a workflow as the rules see it: as the equivalent call, with the folder in which it runs
// and the variables that it sets.
type judgedStep struct {
	flow.Step
	Where string // name of the step for people: outermost first
	Dir   string // its folder, absolute
}

// eachStep calls f for every step of a workflow and of those within it.
func eachStep(p *flow.Plan, cwd string, f func(judgedStep) error) error {
	return eachStepBelow(p, cwd, "", f)
}

func eachStepBelow(p *flow.Plan, cwd, above string, f func(judgedStep) error) error {
	for _, s := range p.Steps {
		j := judgedStep{s, above + s.ID, s.Cwd}
		if !filepath.IsAbs(s.Cwd) {
			j.Dir = filepath.Join(cwd, s.Cwd)
		}
		if err := f(j); err != nil {
			return err
		}
		if s.Workflow != nil {
			if err := eachStepBelow(s.Workflow.Plan, j.Dir, j.Where+"/", f); err != nil {
				return err
			}
		}
	}
	return nil
}

// line returns a shell step as one command line, including its folder and its variables. Values
// that are not known yet stay unknown in the line.
func (j judgedStep) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cd %s\n", shell.Quote(j.Dir))
	for _, v := range j.Env {
		value := shell.Quote(v.Text)
		if strings.Contains(v.Text, "${{") {
			value = `"$DROVER_COMPUTED"`
		}
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, value)
	}
	b.WriteString(j.Shell)
	return b.String()
}

// call returns the call that corresponds to the step; ok is false for a step that does nothing
// by itself.
func (j judgedStep) call(id string) (c agent.Call, ok bool) {
	in := map[string]any{"description": "step " + j.Where}
	switch g := j.Agent; {
	case j.Shell != "":
		c.Name, in["command"] = "Bash", j.line()
	case g != nil:
		c.Name, in["subagent_type"], in["prompt"] = "Agent", g.Type, g.Prompt
		if g.Isolation != "" {
			in["isolation"] = g.Isolation
		}
		if j.On != "" {
			in["on"] = j.On
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

// compile compiles a workflow. It returns the first of several errors.
func compile(file string, read func(string) ([]byte, error)) (*flow.Plan, error) {
	plan, faults := flow.Compile(file, read)
	if len(faults) == 0 {
		return plan, nil
	}
	text := faults[0].Error()
	if n := len(faults) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more faults", n)
	}
	return nil, control.Refuse(control.Invalid, text, "see `drover workflow check`")
}
