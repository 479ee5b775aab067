package session

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Engine is the session as seen by a program that embeds it and starts agents with a
// [subagent.Manager]. Its agents get env and cwd.
func (s *Session) Engine(env []string, cwd string) subagent.Engine { return s.agents.Engine(env, cwd) }

// Catalog returns the current types of agents.
func (s *Session) Catalog() subagent.Catalog { return s.cfg.Agents.Catalog() }

// StartOwn starts a task with a driver of the embedding program, and returns when it is durably
// pending. It cannot outlive its host, since the next host does not have the driver.
func (s *Session) StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	switch {
	case spec.ID != "":
		return task.Record{}, errors.New("start task: its ID is made by the runtime, and cannot be given")
	case spec.Keep:
		return task.Record{}, errors.New("start task: it cannot be kept: the next session does not know its driver")
	}
	spec.Backgrounded = true
	rec, err := s.sup.Start(ctx, d, spec)
	return rec, agents.ProgramError(err)
}
