package session

import (
	"context"

	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Engine is the session as seen by a program that embeds it and starts agents with a
// [subagent.Manager]. Its agents get env and cwd.
func (s *Session) Engine(env []string, cwd string) subagent.Engine { return s.agents.Engine(env, cwd) }

// Catalog returns the current types of agents.
func (s *Session) Catalog() subagent.Catalog { return s.cfg.Agents.Catalog() }

// StartOwn is [tasks.Session.StartOwn] with errors that programs can test for.
func (s *Session) StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	rec, err := s.Tasks.StartOwn(ctx, d, spec)
	return rec, agents.ProgramError(err)
}
