package agents

import (
	"context"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Agent is one agent with its prompt.
type Agent struct {
	Type        string // such as explore; default: general-purpose
	Prompt      string
	Name        string // a name that works wherever an ID does; made unique
	Description string // a few words, for people; default: the beginning of the prompt
	Model       string // default: the model of the type, or of the runtime
	MaxTurns    int    // model replies; default: the limit of the type, or 50
	Mode        string // a permission mode, which never widens the mode of the settings

	// Foreground says that who starts the agent waits for it. An agent whose tool starts another one is then
	// not notified of its end.
	Foreground bool

	// Team makes it a teammate, Name@Team: it is idle after each answer, is woken by
	// [drover.Runtime.Send] and by its team, and ends by [drover.Runtime.Stop]. Empty: not a teammate.
	Team string
}

// Agent starts an agent and returns when it is durably recorded. ctx bounds the start, and not the agent.
// [drover.Runtime.Result] returns its answer in the end, and [drover.Runtime.Send] gives an agent that has
// ended a further run.
//
// In a tool that was called with ctx, or a context made from it, the agent is below the agent that called
// the tool: it counts as nested, and is stopped with it.
//
// Errors that a caller can decide by: [*subagent.UnknownTypeError], [*subagent.LimitError] and
// [subagent.ErrClosed].
func (rt *Runtime) Agent(ctx context.Context, a Agent) (task.Record, error) {
	o := agents.Own{
		Input: subagent.Input{Type: a.Type, Prompt: a.Prompt, Model: a.Model, MaxTurns: a.MaxTurns, PermissionMode: a.Mode},
		Spec:  task.Spec{Name: a.Name, Description: a.Description, Cwd: rt.dir, Backgrounded: !a.Foreground},
		Env:   rt.env,
	}
	if a.Team != "" {
		o.Spec.Team = &task.Team{Name: a.Name, Team: a.Team}
	}
	if caller := subagent.Caller(ctx); caller != nil {
		o.Parent = caller.Record().ID
	}
	return rt.s.StartAgent(ctx, o)
}

// Workflow is a file of steps, as docs/workflows.md describes it.
type Workflow struct {
	File   string            // relative to the folder of the runtime, or absolute
	Params map[string]string // its parameters
	Name   string            // default: the name of the file
	Dir    string            // where its steps work; default: the folder of the runtime
}

// Workflow starts a workflow in the background and returns when it is durably
// recorded. [drover.Runtime.Result] returns its outputs in the end; [task.Progress] has the
// state of each step. After a failure [drover.Runtime.Resume] continues it after the steps that are done.
func (rt *Runtime) Workflow(ctx context.Context, w Workflow) (task.Record, error) {
	if !filepath.IsAbs(w.File) {
		w.File = filepath.Join(rt.dir, w.File)
	}
	return rt.start(ctx, w.Dir, control.StartRequest{Name: w.Name,
		Workflow: &control.WorkflowRequest{File: w.File, Params: w.Params}})
}

// Monitor is something to watch. Exactly one of Line, Args, File, and Server with
// URI is set.
type Monitor struct {
	Line   string   // for bash; each line on its stdout is an event
	Args   []string // a program with its arguments, as Line
	File   string   // a file; each line added to it is an event
	Server string   // of MCP; new lines of the resource URI are events
	URI    string

	Match   string        // a regular expression (RE2) for the lines that are events; default: all
	Name    string        // a name that works wherever an ID does
	Dir     string        // of a command or a relative file; default: the folder of the runtime
	Timeout time.Duration // after it the monitor ends with success; default: none
}

// Monitor starts to watch and returns when that is durably recorded. The progress of
// the task counts the events, and its output file has all lines.
func (rt *Runtime) Monitor(ctx context.Context, m Monitor) (task.Record, error) {
	req := &control.MonitorRequest{File: m.File, Server: m.Server, URI: m.URI, Match: m.Match}
	if m.Line != "" || len(m.Args) > 0 {
		req.Shell = &control.ShellRequest{Line: m.Line, Args: m.Args}
	}
	return rt.start(ctx, m.Dir, control.StartRequest{Name: m.Name, Timeout: m.Timeout, Monitor: req})
}

// start starts work in a folder; empty: that of the runtime.
func (rt *Runtime) start(ctx context.Context, dir string, r control.StartRequest) (task.Record, error) {
	r.Cwd, r.Env = rt.dir, rt.env
	if dir != "" {
		var err error
		if r.Cwd, err = filepath.Abs(dir); err != nil {
			return task.Record{}, err
		}
	}
	if m := r.Monitor; m != nil && m.File != "" && !filepath.IsAbs(m.File) {
		m.File = filepath.Join(r.Cwd, m.File)
	}
	started, err := rt.s.Start(ctx, []control.StartRequest{r})
	if err == nil && started[0].Error != nil {
		err = started[0].Error
	}
	if err != nil {
		return task.Record{}, err
	}
	return *started[0].Task, nil
}
