package session

import (
	"context"

	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Catalog returns the current types of agents.
func (s *Session) Catalog() subagent.Catalog { return s.cfg.Agents.Catalog() }

// StartAgent starts an agent for the program that holds the session.
func (s *Session) StartAgent(ctx context.Context, o agents.Own) (task.Record, error) {
	return s.agents.StartOwn(ctx, o)
}

// StartOwn is [tasks.Session.StartOwn] with errors that programs can test for.
func (s *Session) StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	rec, err := s.Tasks.StartOwn(ctx, d, spec)
	return rec, agents.ProgramError(err)
}
