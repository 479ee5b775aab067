package agents

import (
	"context"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Client returns the caller for a client that is not an agent. allowed are additional allow
// rules.
func (s *Set) Client(cwd string, env, allowed []string) Caller {
	rules := s.cfg.Rules
	rules.Allow = slices.Concat(rules.Allow, allowed)
	return Caller{Cwd: cwd, Env: s.clientEnv(env), Model: s.Options.Model, Rules: rules}
}

// StartForClient starts an agent that a client asks for.
func (s *Set) StartForClient(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, error) {
	if r.Keep {
		return task.Record{}, control.Refuse(control.Invalid, "an agent cannot be kept past its host", "resume it instead")
	}
	in := subagent.Input{Type: r.Agent.Type, Prompt: r.Agent.Prompt, Model: r.Agent.Model, MaxTurns: r.Agent.MaxTurns,
		PermissionMode: r.Agent.PermissionMode, AllowedTools: r.Agent.AllowedTools, Isolation: r.Agent.Isolation,
		On: r.On, Untracked: r.Untracked, NoFolder: r.NoFolder, Sync: r.Sync}
	if r.Agent.Team != "" {
		spec.Team = &task.Team{Name: r.Name, Team: r.Agent.Team}
	}
	me := s.Client(r.Cwd, r.Env, r.Agent.AllowedTools)
	me.quote, me.byModel = r.Agent.Quote, r.ByModel
	if err := s.asked(r.Agent, &me); err != nil {
		return task.Record{}, err
	}
	rec, _, err := s.Launch(ctx, in, spec, me)
	return rec, err
}

// asked takes over the permission mode of a request, which is the client's own as its rules are,
// and refuses options without effect on the agent.
func (s *Set) asked(r *control.AgentRequest, me *Caller) error {
	refuse := func(why, fix string) error {
		return control.Refuse(control.Invalid, fmt.Sprintf("agent %.60q: %s", r.Type, why), fix)
	}
	mode := policy.Mode(r.PermissionMode)
	if mode == policy.Auto {
		mode = policy.Default
	}
	if mode != "" && !slices.Contains(policy.Modes(), mode) {
		return refuse(fmt.Sprintf("permission mode %.40q is not known", mode),
			fmt.Sprintf("use one of %v", policy.Modes()))
	}
	if mode != "" && mode != policy.Plan { // an approved plan gives back the mode that plan mode narrows
		me.Rules.Mode = mode
	}
	def, err := s.cfg.Catalog().Find(r.Type)
	if err != nil || def.ACP == nil {
		return nil //nolint:nilerr // the start reports the unknown agent
	}
	switch {
	case mode == policy.Plan:
		return refuse("permission mode plan cannot be kept: a program of another vendor asks about some of its calls only",
			"leave it out, or set the program's own mode with acp.mode in its definition")
	case r.MaxTurns > 0:
		return refuse("the replies of its model are not counted here", "leave the number of turns out")
	}
	return nil
}

// Consolidate starts an agent with a model that consolidates the learnings of a
// conversation.
func (s *Set) Consolidate(ctx context.Context, prompt, model string) error {
	me := Caller{Cwd: s.Info.Project, Env: s.cfg.Env, Model: model, Rules: s.cfg.Rules}
	me.Rules.Mode = policy.DontAsk
	spec := task.Spec{Name: "rem-consolidate", Description: "Consolidate session learnings", Backgrounded: true}
	_, _, err := s.Launch(ctx, subagent.Input{Type: "rem-agent", Prompt: prompt}, spec, me)
	return err
}

// ChooseModel selects the model of an agent without an explicit request, and checks that it can
// be called. The first of the wanted models has precedence.
func (s *Set) ChooseModel(agentType, wanted, defined string) (choose.Choice, error) {
	me := Caller{Cwd: s.Info.Project, Env: s.cfg.Env, Model: s.Options.Model}
	return s.choose(me, subagent.Input{Model: wanted}, subagent.Definition{Name: agentType, Model: defined}, false)
}

// OpenMain creates the environment of the main agent from a definition, with the given tools
// and model, if any. The caller closes it, and calls SetMain when the conversation is open.
func (s *Set) OpenMain(
	ctx context.Context, def subagent.Definition, tools []string, model string, maxTurns int,
) (*Environment, error) {
	me := Caller{ID: s.Info.Session, Cwd: s.Info.Project, Env: s.cfg.Env, Model: s.Options.Model, Rules: s.cfg.Rules,
		Tools: tools, MaxTurns: maxTurns}
	def.Tools, me.Spawns = environment.Spawnable(def.Tools)
	me.Tools = environment.Subset(me.Tools, def.Tools, def.DisallowedTools, environment.ToolNames(s.cfg.Tools)...)
	me.named = slices.Concat(tools, def.Tools)
	me.barred, me.own = environment.Bar(nil, def.DisallowedTools), s.ownServers(def, me)
	me.Rules.Mode = environment.Narrower(me.Rules.Mode, policy.Mode(def.PermissionMode))
	if me.MaxTurns == 0 {
		me.MaxTurns = def.MaxTurns
	}
	choice, err := s.choose(me, subagent.Input{Model: model}, def, false)
	if err != nil {
		return nil, err
	}
	s.Report.Say(me.ID, choice.Notes...)
	me.Model = choice.Name
	me.live = newLive(choice.Name, me.Rules.Mode)
	return s.newEnvironment(ctx, me, def, s.Place.Transcript())
}
