package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// placed is the driver of an agent that works at a worker: its task is pending until one has it.
type placed struct{ task.Driver }

// Launches implements [task.Launcher].
func (placed) Launches() {}

// at decides where an agent works: on names a worker or a label; empty: with me.
func (c *Child) at(on string, me Caller) error {
	refuse := func(why, fix string) error {
		why = fmt.Sprintf("agent %s at worker %s: %s", c.def.Name, on, why)
		return control.Refuse(control.Invalid, why, fix)
	}
	switch {
	case on == "" && me.workspace != nil && (c.isolation != "" || c.def.ACP != nil):
		on = me.workspace.Worker()
		return refuse("it cannot leave the workspace of the agent that starts it",
			"leave the isolation out, and use an agent of Drover")
	case on == "":
		return nil
	case me.workspace != nil:
		return refuse("the agent that starts it is at a worker itself", "leave on out: it works in the same folder")
	case c.def.ACP != nil:
		return refuse("agents of other vendors run on this machine only", "leave on out")
	}
	if err := fleetwire.CheckName("worker", on); err != nil {
		return refuse(err.Error(), "`drover workers` lists them")
	}
	c.on, c.isolation = on, "" // it has a copy of its own there
	return nil
}

// travels keeps what of the folder is to travel.
func (c *Child) travels(in subagent.Input) {
	c.untracked, c.bare, c.sync = in.Untracked, in.NoFolder, in.Sync
}

// openWorkspace has a worker keep a copy of the folder for the agent, and moves its place there. The text
// tells the agent.
func (c *Child) openWorkspace(ctx context.Context, h task.Host, me *Caller) (text string, err error) {
	rules := me.Rules
	want := placement.Want{Job: fleetwire.Job{Name: h.Record().Name, Description: h.Record().Description,
		Workspace: &fleetwire.Workspace{Deny: rules.Deny, Ask: rules.Ask, Of: me.Cwd, Base: me.origin(), Home: rules.Home}},
		Untracked: c.untracked, Sync: c.sync}
	for _, one := range rules.Copies {
		want.Job.Workspace.Copies = append(want.Job.Workspace.Copies, fleetwire.Copy(one))
	}
	if !c.bare {
		want.Folder = me.Cwd
	}
	ws, err := c.s.kinds.Fleet.OpenWorkspace(ctx, h, want)
	if err != nil {
		return "", err
	}
	if c.s.sandboxes.Requires(sandboxes.Stricter(me.sandbox, sandboxes.Mode(c.def.Sandbox))) && !ws.Bounded {
		ws.Undo()
		return "", &task.FailError{Reason: task.ReasonStart,
			Err: fmt.Errorf("a sandbox is required, and at worker %s none bounds all that commands do (`drover doctor` there says why)",
				ws.Worker())}
	}
	me.workspace, me.inside = ws, me.ID
	me.Rules.Base, me.Rules.Dirs = me.origin(), []string{ws.Top}
	me.Rules.Copies = slices.Concat(rules.Copies, policy.CopiesOf(me.Cwd, ws.Dir, ws.Top))
	of := me.Cwd
	me.Cwd = ws.Dir
	if c.bare {
		return fmt.Sprintf("You work on another machine, the worker %s, in its folder %s. Your commands and file tools act there.",
			ws.Worker(), ws.Dir), nil
	}
	return fmt.Sprintf("You work on another machine, the worker %s, in a copy of %s: %s. Your commands and file tools act there. "+
		"What you change comes back when you are done, so do not copy files yourself.", ws.Worker(), of, ws.Dir), nil
}

// leaveWorkspace gives up the workspace of an agent, and tells where its work is.
func (s *Set) leaveWorkspace(id task.ID, ws *placement.Workspace) func(context.Context) *task.Worktree {
	return func(ctx context.Context) *task.Worktree {
		w := ws.Leave(ctx)
		if text := environment.Left(w); text != "" {
			s.Report.Say(id, text)
		}
		return w
	}
}

// atWorkspace moves file tools to the workspace of the agent, if it has one. What they read of the session stays here,
// such as the output files of tasks.
func (k *Environment) atWorkspace(tools []agent.Tool, here []string) []agent.Tool {
	ws := k.Me.workspace
	if ws == nil {
		return tools
	}
	ours := func(input json.RawMessage) bool {
		var in struct {
			File string `json:"file_path"`
			Path string `json:"path"`
		}
		if json.Unmarshal(input, &in) != nil {
			return false
		}
		path := filepath.Clean(cmp.Or(in.File, in.Path))
		return slices.ContainsFunc(here, func(dir string) bool { return under(dir, path) })
	}
	out := make([]agent.Tool, 0, len(tools))
	for _, t := range tools {
		out = append(out, ws.Tool(t, ours))
	}
	return out
}

// under reports whether a path is in a folder, or is it.
func under(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// command is a command of the agent before its start: on this machine, or in its workspace. endedIn is called before
// its end with where it has ended, if that is asked for.
func (rt *Runtime) command(c shelltool.Command, bounded sandboxes.Start, endedIn func(cwd string)) builtin.Work {
	line := shell.Command{Args: c.Args, Cwd: c.Cwd, TTY: c.TTY}
	if rt.workspace == nil {
		client := shell.Client{Env: bounded.Environ(process.ChildEnv(rt.Env)), Fork: bounded.Fork, Made: bounded.Made}
		return rt.s.kinds.Command(client, line)
	}
	job := fleetwire.Job{Description: c.Description, Args: c.Args, Cwd: c.Cwd, ReportCwd: c.ReportCwd, TTY: c.TTY,
		Sandbox: !c.Outside}
	return rt.s.kinds.CommandAt(placement.Want{Job: job, In: rt.workspace, EndedIn: endedIn}, line)
}

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
