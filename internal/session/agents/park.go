package agents

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/task"
)

// parkable returns a model whose calls wait while a usage limit of its provider is used up.
func (s *Set) parkable(me Caller, m agent.Model, provider string) agent.Model {
	return s.Parking.Model(m, parking.Agent{
		Provider: provider,
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
		Cost: s.Budgets.Cost(me.ID),
	})
}
