package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// GoOn is the prompt of an agent that is resumed without one.
const GoOn = "Go on."

// Relaunch gives an ended agent a new run that continues from its transcript.
func (s *Set) Relaunch(
	ctx context.Context, id task.ID, in subagent.Input, spec task.Spec, me Caller,
) (_ task.Record, notes []string, err error) {
	old, _ := s.Tasks.Get(id)
	if above := s.Isolated(old.Parent); above != me.inside {
		return old, nil, control.Refuse(control.Conflict,
			fmt.Sprintf("agent %s worked in the worktree of agent %s", id, cmp.Or(above, "another")),
			"resume that one, and let it go on with this")
	}
	if tree.Isolated(old) {
		in.Isolation = environment.InWorktree
	}
	in.On = old.On
	child, err := s.Resolve(in, me)
	if err != nil {
		return task.Record{}, nil, err
	}
	child.travels(in)
	// As in its first run, whoever requests it.
	child.Rules.Mode = environment.Narrower(child.Rules.Mode, policy.Mode(old.Mode))
	child.join(old.Team, me)
	child.again = true
	in.Type, in.Model, in.MaxTurns, in.Isolation = child.def.Name, child.Model, child.MaxTurns, child.isolation
	w := s.work(child, in)
	spec.Input, spec.Pool, spec.Prompt = w.Input, Pool, in.Prompt
	held := budget.Reservation{}
	if child.Depth = old.Depth; old.Status.Terminal() {
		if held, err = s.budgets.Reserve(&spec, child.budget(id, me)); err != nil {
			return task.Record{}, nil, err
		}
	}
	held.Give(id)
	s.Report.Say(me.ID, child.notes...)
	rec, err := s.Tasks.Resume(ctx, id, w.Driver, spec)
	if err != nil {
		held.Release()
	}
	return rec, child.notes, err
}

// Again gives an ended agent a new run for a client. The owner of the agent is notified of its
// end as before.
func (s *Set) Again(ctx context.Context, r task.Record, prompt string, env []string) (task.Record, error) {
	if r.AgentType == task.MainSession {
		return r, control.Refuse(control.Conflict, fmt.Sprintf("task %s was a turn of the conversation, and has ended", r.ID),
			"tell the conversation what is to be done next, which knows its result")
	}
	me, err := s.above(r, env)
	if err != nil {
		return r, err
	}
	in, err := asked(s.Tasks.Input(r.ID))
	if err != nil {
		return r, err
	}
	s.mail.Worked(r.ID)
	in.Type, in.Prompt, in.Model = r.AgentType, prompt, r.Model
	me.Rules.Allow = slices.Concat(me.Rules.Allow, in.AllowedTools)
	rec, _, err := s.Relaunch(ctx, r.ID, in, task.Spec{Backgrounded: true, Owner: r.Owner, Cwd: r.Cwd}, me)
	return rec, err
}

// asked returns the input of an earlier run, as far as it is known.
func asked(raw json.RawMessage) (in subagent.Input, err error) {
	if raw != nil {
		err = json.Unmarshal(raw, &in)
	}
	return in, err
}

// above returns the caller that has started an agent, so that a further run gets no more than
// the first: the main agent or a client, and then each agent down to it.
func (s *Set) above(r task.Record, env []string) (Caller, error) {
	if p, ok := s.Tasks.Get(r.Parent); ok && r.Parent != s.Info.Session {
		me, err := s.above(p, env)
		if err != nil || p.Traits().Work == task.BySteps {
			return me, err
		}
		c, err := s.Resolve(subagent.Input{Type: p.AgentType, Model: p.Model}, me)
		if err != nil {
			return me, err
		}
		c.ID, c.Depth, c.Cwd = p.ID, p.Depth, cmp.Or(p.Cwd, c.Cwd)
		return c.Caller, nil
	}
	if m := s.mainAgent(); m != nil && r.Owner == s.Info.Session {
		return m.Me, nil
	}
	if len(env) == 0 {
		env = s.cfg.Env
	}
	return s.Client(cmp.Or(r.Cwd, s.Info.Project), env, nil), nil
}

// parkable returns a model whose calls wait while a usage limit of its provider is used up.
func (s *Set) parkable(me Caller, m agent.Model, provider string) agent.Model {
	return s.Parking.Model(m, parking.Agent{
		Provider: provider,
		Recorded: me.Host != nil && me.Host.Record().Parked != nil,
		Park: func(ctx context.Context, p task.Parked, wait func(context.Context) error) error {
			host := me.Host
			if moved, ok := me.live.task(); ok {
				host = moved
			}
			if h, ok := host.(task.Parker); ok {
				return h.Park(ctx, p, wait)
			}
			return s.Tasks.Park(ctx, me.ID, p, wait)
		},
		Cost: s.budgets.Cost(me.ID),
	})
}

// goOn puts a parked agent together that an earlier host has left.
func (s *Set) goOn(ctx context.Context, h task.Host, in subagent.Input) (*subagent.Assembly, error) {
	child, err := s.resumed(h.Record(), in)
	if err != nil {
		return nil, err
	}
	return child.assemble(ctx, h, in)
}

// resumed resolves an agent of an earlier host as it was started, in its mode or a
// narrower one.
func (s *Set) resumed(r task.Record, in subagent.Input) (*Child, error) {
	me, err := s.above(r, nil)
	if err != nil {
		return nil, err
	}
	if tree.Isolated(r) {
		in.Isolation = environment.InWorktree
	}
	child, err := s.Resolve(in, me)
	if err != nil {
		return nil, err
	}
	child.Rules.Mode = environment.Narrower(child.Rules.Mode, policy.Mode(r.Mode))
	child.again = true
	s.Report.Say(r.ID, child.notes...)
	return child, nil
}
