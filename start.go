package drover

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Shell is a command. Exactly one of Line and Args is set.
type Shell struct {
	Line    string   // for bash
	Args    []string // a program with its arguments
	Name    string   // a name that works wherever an ID does
	Dir     string   // default: the folder of the runtime
	Timeout time.Duration
}

// Shell starts a command in the background and returns when it is durably
// recorded.
func (rt *Runtime) Shell(ctx context.Context, c Shell) (task.Record, error) {
	dir, err := rt.folder(c.Dir)
	if err != nil {
		return task.Record{}, err
	}
	return rt.start(
		ctx,
		control.StartRequest{
			Name:    c.Name,
			Timeout: c.Timeout,
			Cwd:     dir,
			Env:     rt.env,
			Shell:   &control.ShellRequest{Line: c.Line, Args: c.Args},
		},
	)
}

// Agent is one agent with its prompt.
type Agent struct {
	Type     string // such as explore; default: general-purpose
	Prompt   string
	Name     string
	Model    string // default: the model of the runtime
	MaxTurns int    // model replies; default: the limit of the type, or 50

	// Team makes it a teammate, Name@Team: it is idle after each answer, is woken by
	// [Runtime.Send] and by its team, and ends by [Runtime.Stop]. Empty: not a teammate.
	Team string
}

// Agent starts an agent in the background and returns when it is durably
// recorded. [Runtime.Result] returns its answer in the end.
func (rt *Runtime) Agent(ctx context.Context, a Agent) (task.Record, error) {
	return rt.start(ctx, control.StartRequest{Name: a.Name, Cwd: rt.dir, Env: rt.env,
		Agent: &control.AgentRequest{Type: a.Type, Prompt: a.Prompt, Model: a.Model, MaxTurns: a.MaxTurns, Team: a.Team}})
}

// Agents returns a manager for agents of the runtime. Their types are defs, then the
// definitions in files as they are now, then the built-in ones. Only agents that the
// manager starts, and agents under them, know defs and are reported to hooks, which
// may be nil. [Runtime.Close] ends the work of the manager.
func (rt *Runtime) Agents(hooks subagent.Hooks, defs ...subagent.Definition) (*subagent.Manager, error) {
	known, err := rt.s.Catalog().With(defs...)
	if err != nil {
		return nil, fmt.Errorf("make manager of agents: %w", err)
	}
	return subagent.NewManager(rt.s.Engine(rt.env, rt.dir), known, hooks), nil
}

// Start starts work by a driver of the program, in the background, and returns
// when it is durably recorded. It is a task like any other: its driver's kind is
// one of [task.Kinds] or one of its own (see [task.Traited]), it is stopped with its parent and with the runtime, and
// everybody sees it. ID and Keep of spec must be empty.
func (rt *Runtime) Start(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	if spec.Cwd == "" {
		spec.Cwd = rt.dir
	}
	return rt.s.StartOwn(ctx, d, spec)
}

func (rt *Runtime) folder(dir string) (string, error) {
	if dir == "" {
		return rt.dir, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("start command: %w", err)
	}
	return abs, nil
}

func (rt *Runtime) start(ctx context.Context, r control.StartRequest) (task.Record, error) {
	started, err := rt.s.Start(ctx, []control.StartRequest{r})
	if err != nil {
		return task.Record{}, err
	}
	if started[0].Error != nil {
		return task.Record{}, started[0].Error
	}
	return *started[0].Task, nil
}
