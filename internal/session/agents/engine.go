package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Own is an agent that the program starts which holds the session.
type Own struct {
	subagent.Input
	Spec   task.Spec // Name, Description, Team, Cwd and Backgrounded
	Env    []string
	Parent task.ID // the agent whose tool starts it; empty: none
}

// StartOwn starts an agent for the program, and returns when it is durably pending.
func (s *Set) StartOwn(ctx context.Context, o Own) (task.Record, error) {
	me := s.Client(o.Spec.Cwd, o.Env, o.AllowedTools)
	me.ID, o.Spec.Parent = o.Parent, o.Parent
	rec, _, err := s.Launch(ctx, o.Input, o.Spec, me)
	return rec, ProgramError(err)
}

// ProgramError converts an error of the engine into an error that programs can test for.
func ProgramError(err error) error {
	var limit *supervise.LimitError
	var spent *usage.BudgetError
	switch {
	case errors.As(err, &spent):
		return &subagent.LimitError{Limit: spent.Limit, Err: err}
	case errors.As(err, &limit):
		return &subagent.LimitError{Limit: limit.Limit, N: limit.N, Wait: limit.Wait, Err: err}
	case errors.Is(err, supervise.ErrClosing), errors.Is(err, supervise.ErrFrozen):
		return fmt.Errorf("%w: %w", subagent.ErrClosed, err)
	}
	return err
}
