package agents

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

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
