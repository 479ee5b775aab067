// Package agents runs agents inside a Go program, as tasks of a session.
//
// A [Runtime] is a [drover.Runtime] that also starts agents, workflows and monitors. The
// models, tools, definitions and hooks of the agents are the program's, those of the user
// and the project, or both.
//
//	rt, err := agents.Open(ctx, agents.Config{ModelName: "sonnet"})
//	…
//	defer rt.Close()
//	a, err := rt.Agent(ctx, agents.Agent{Type: "explore", Prompt: "Where is the parser?"})
//	…
//	a, err = rt.Wait(ctx, a.ID)
//	answer, err := rt.Result(ctx, a.ID)
//
// The package does not judge the work of agents, and asks people only by Answer of
// [drover.Config].
package agents

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
)

// Config configures a runtime with agents. The zero Config has the models, definitions,
// skills, hooks, MCP servers and memory of the user and the project, as the drover command
// has them; an isolated runtime has none of them.
type Config struct {
	drover.Config // of the session; its Session is set by Open

	// Model answers for agents that name no other model. Default: the model that
	// ModelName names.
	Model agent.Model

	// ModelName is an alias, a full name, or script:FILE; default: the model of the user's
	// settings. With Model it is the name of Model in records and definitions; default:
	// "program". The program decides about its own model: the name means Model even if
	// another model or an alias has it too, and models.available in the settings need not list
	// it. That setting still holds for every other model that an agent names.
	ModelName string

	// Allow are calls that agents may make without a question, such as
	// "Bash(go test:*)".
	Allow []string

	// Limits replace the limits of the user's settings where they are not 0.
	Limits Limits

	// Tools are further tools for all agents. One value serves all agents, by several
	// goroutines at once. A tool that is not [agent.ReadOnly] needs a rule in Allow,
	// such as its name.
	Tools []agent.Tool

	// Definitions are types of agents, which come before those in files and the built-in ones.
	Definitions []subagent.Definition

	// Hooks take part in the life of every agent. Default: only hooks of files do.
	Hooks subagent.Hooks
}

// Limits bound the starts of agents. They may exceed the limits that settings can
// have.
type Limits struct {
	Live       int // agents at work at the same time; more wait
	Depth      int // agents below agents
	PerRoot    int // agents that one agent outside may start, with all below it
	PerSession int // agents of all
	SpawnRate  int // agents that one root may start within a minute
}

// over puts limits that are not 0 into settings.
func (l Limits) over(s *options.Limits) {
	s.Live, s.Depth, s.PerRoot = cmp.Or(l.Live, s.Live), cmp.Or(l.Depth, s.Depth), cmp.Or(l.PerRoot, s.PerRoot)
	s.PerSession, s.SpawnRate = cmp.Or(l.PerSession, s.PerSession), cmp.Or(l.SpawnRate, s.SpawnRate)
}

// Runtime is an open session with agents. Its methods may be called by several goroutines.
type Runtime struct {
	*drover.Runtime
	s   *assemble.Session
	env []string
	dir string
}

// Open opens a new session. The caller must close it.
func Open(ctx context.Context, c Config) (*Runtime, error) {
	rt := &Runtime{}
	if c.Session != nil {
		return nil, errors.New("open runtime: Session of the Config is for Open to set")
	}
	c.Session = func(ctx context.Context, b bare.Config) (bare.Session, error) {
		rt.env, rt.dir = b.Env, b.Folder
		s, err := assemble.Open(ctx, c.session(b))
		if err != nil {
			return nil, err
		}
		rt.s = s
		return s, nil
	}
	var err error
	if rt.Runtime, err = drover.Open(ctx, c.Config); err != nil {
		return nil, err
	}
	return rt, nil
}

// session configures a session.
func (c Config) session(b bare.Config) assemble.Config {
	c.Limits.over(&b.Settings.Limits)
	b.Settings.Add(settings.Source{Name: "the program", Allow: c.Allow})
	cfg := assemble.Config{Config: b, Model: c.ModelName, Definitions: c.Definitions,
		Program: agents.Program{Tools: c.Tools}}
	if c.Model != nil {
		cfg.Model = cmp.Or(c.ModelName, "program")
		cfg.Own = map[string]agent.Model{cfg.Model: c.Model}
	}
	if c.Answer != nil {
		cfg.AskWait = b.Settings.Permissions.AskTimeout
		cfg.Settings.Sandbox.AutoAllow = false // Answer expects the questions
	}
	if c.Hooks != nil {
		cfg.Callbacks = agents.ProgramHooks(c.Hooks)
	}
	if len(c.Keeper) == 2 && c.Keeper[1] == bare.KeeperArg {
		cfg.Starter = append(slices.Clone(c.Keeper), bare.RoomArg)
	}
	return cfg
}
