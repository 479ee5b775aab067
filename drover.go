// Package drover runs the background work of coding agents inside a Go program.
//
// A [Runtime] is one session: shell commands and agents are tasks of it, with
// one record, one life, one output file and one way to stop them. What it runs
// is seen and steered from any terminal by the drover command (`drover ps`,
// `logs`, `wait`, `stop`) while the program works, and can be read afterwards.
//
//	rt, err := drover.Open(ctx, drover.Config{})
//	…
//	defer rt.Close()
//	t, err := rt.Shell(ctx, drover.Shell{Line: "go test ./...", Name: "tests"})
//	…
//	t, err = rt.Wait(ctx, t.ID)
//	fmt.Println(t.Status, *t.ExitCode)
//
// A program brings along agents and hooks ([Runtime.Agents]), tools
// ([Config.Tools]) and work of its own ([Runtime.Start]).
//
// It promises what the packages below it promise: what a start returned for is
// recorded durably, every task reaches exactly one end, and after
// [Runtime.Close] nothing that it started is left running.
// A program that dies without closing leaves its commands behind, unless
// [Config.Keeper] names a program that ends them.
package drover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Config says where a runtime works. The zero Config is the folder that the
// program is in, and the state folder of the drover command.
type Config struct {
	Dir   string // the project's folder; default: the working folder
	Home  string // state folder; default: $DROVER_HOME, or as the drover command
	Title string // how `drover sessions` shows it

	// Model answers for agents that name none: an alias, a full name, or
	// script:FILE. Default: that of the user's settings.
	Model string

	// Env is given to commands, without the keys of model providers, which
	// are read from it for agents. Default: os.Environ().
	Env []string

	// Keeper starts the process that ends all commands when this program dies,
	// such as {"drover", "keeper", "--helper"}. Default: none.
	Keeper []string

	// Allow are calls that agents may make without a question, such as
	// "Bash(go test:*)". Nobody is asked here: what no rule allows is refused.
	Allow []string

	// Limits take the place of those of the user's settings where they are not 0.
	Limits Limits

	// Tools are the program's own, for all agents beside the usual ones. One value
	// serves all agents, by several goroutines at once. A tool that is no
	// [agent.ReadOnly] needs a rule in Allow, such as its name.
	Tools []agent.Tool
}

// Limits bound what agents may start. A program may go beyond what settings can
// ask for.
type Limits struct {
	Live       int // agents at work at the same time; more wait
	Depth      int // agents below agents
	PerRoot    int // agents that one agent outside may start, with all below it
	PerSession int // agents of all
	SpawnRate  int // agents that one root may start within a minute
}

// over lays limits over those of settings.
func (l Limits) over(s *settings.Limits) {
	s.Live, s.Depth, s.PerRoot = cmp.Or(l.Live, s.Live), cmp.Or(l.Depth, s.Depth), cmp.Or(l.PerRoot, s.PerRoot)
	s.PerSession, s.SpawnRate = cmp.Or(l.PerSession, s.PerSession), cmp.Or(l.SpawnRate, s.SpawnRate)
}

// Runtime is an open session. Its methods may be called by several goroutines.
type Runtime struct {
	s   *assemble.Session
	env []string
	dir string
}

// Open opens a new session. The caller must close it.
func Open(ctx context.Context, c Config) (*Runtime, error) {
	if c.Env == nil {
		c.Env = os.Environ()
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open runtime: %w", err)
	}
	root := home.At(c.Home)
	if c.Home == "" {
		if root, err = home.Find(os.Getenv); err != nil {
			return nil, fmt.Errorf("open runtime: %w", err)
		}
	}
	set, _, err := settings.Load(settings.Find(os.Getenv, dir, ""))
	if err != nil {
		return nil, fmt.Errorf("open runtime: %w", err)
	}
	c.Limits.over(&set.Limits)
	s, err := assemble.Open(ctx, assemble.Config{Root: root, Folder: dir, Role: session.RoleRun, Title: c.Title, Version: "library", Env: c.Env, Settings: set,
		Keeper: c.Keeper, Model: c.Model, Allow: c.Allow, Tools: c.Tools})
	if err != nil {
		return nil, fmt.Errorf("open runtime: %w", err)
	}
	s.Serve()
	return &Runtime{s: s, env: c.Env, dir: dir}, nil
}

// Close stops what is running, in order, and returns when nothing is left.
func (rt *Runtime) Close() error { return rt.s.Close() }

// Shell is a command. Exactly one of Line and Args is set.
type Shell struct {
	Line    string   // for bash
	Args    []string // a program with its arguments
	Name    string   // a name that works wherever an ID does
	Dir     string   // default: that of the runtime
	Timeout time.Duration
}

// Shell starts a command in the background and returns when it is durably
// recorded.
func (rt *Runtime) Shell(ctx context.Context, c Shell) (task.Record, error) {
	dir, err := rt.folder(c.Dir)
	if err != nil {
		return task.Record{}, err
	}
	return rt.start(ctx, control.StartRequest{Name: c.Name, Timeout: c.Timeout, Cwd: dir, Env: rt.env, Shell: &control.ShellRequest{Line: c.Line, Args: c.Args}})
}

// Agent is one agent with its prompt.
type Agent struct {
	Type     string // such as explore; default: general-purpose
	Prompt   string
	Name     string
	Model    string // default: that of the runtime
	MaxTurns int    // model replies; default: that of the type, or 50

	// Team makes it a teammate, Name@Team: it rests after each answer, is woken by
	// [Runtime.Send] and by its team, and ends by [Runtime.Stop]. Empty: it is none.
	Team string
}

// Agent starts an agent in the background and returns when it is durably
// recorded. Its answer is what [Runtime.Result] returns in the end.
func (rt *Runtime) Agent(ctx context.Context, a Agent) (task.Record, error) {
	return rt.start(ctx, control.StartRequest{Name: a.Name, Cwd: rt.dir, Env: rt.env,
		Agent: &control.AgentRequest{Type: a.Type, Prompt: a.Prompt, Model: a.Model, MaxTurns: a.MaxTurns, Team: a.Team}})
}

// Agents makes a manager for agents of the runtime. The types are those of files
// and built in, as they are now, and defs, which go before; only agents that the
// manager starts, and those under them, know defs and are told to hooks, which
// may be nil. What a manager has started is the runtime's: Close ends it.
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

// Wait waits for the end of a task and returns it as it ended.
func (rt *Runtime) Wait(ctx context.Context, id task.ID) (task.Record, error) {
	reply, err := rt.s.Wait(ctx, control.WaitRequest{Refs: []string{string(id)}})
	if err != nil {
		return task.Record{}, err
	}
	return reply.Tasks[0], nil
}

// Stop ends a task with all that it started, and tells what became of each.
func (rt *Runtime) Stop(ctx context.Context, id task.ID) (task.Receipt, error) {
	return rt.s.Stop(ctx, control.StopRequest{Refs: []string{string(id)}})
}

// Get returns a task as it is now; ref is an ID, the beginning of one, or a name.
func (rt *Runtime) Get(ctx context.Context, ref string) (task.Record, error) {
	return rt.s.Get(ctx, ref)
}

// List returns all tasks of the session, newest first.
func (rt *Runtime) List(ctx context.Context) ([]task.Record, error) {
	page, err := rt.s.List(ctx, control.ListRequest{All: true})
	return page.Tasks, err
}

// Result is the answer of an agent, or the end of a command's output, once the
// task has ended.
func (rt *Runtime) Result(ctx context.Context, id task.ID) (string, error) {
	a, err := control.WholeResult(ctx, rt.s, string(id))
	return a.Text, err
}

// Events yields every change of every task after a number, then waits for more
// until ctx ends or the runtime is closed. A reader that is slow, or comes back
// later with the last number it saw, misses nothing.
func (rt *Runtime) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for e, err := range rt.s.Events(ctx, after) {
			if err != nil && errors.Is(err, context.Cause(ctx)) {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
