package session

import (
	"context"

	"github.com/drover-dev/drover/internal/api/change"
	"github.com/drover-dev/drover/internal/api/control"
)

// Diff returns what a task has changed in a worktree of its own.
func (s *Session) Diff(ctx context.Context, req control.DiffRequest) (control.Diff, error) {
	rec, err := s.Get(ctx, req.Ref)
	if err != nil {
		return control.Diff{}, err
	}
	return change.Read(ctx, s.cfg.Agents.Worktrees, rec, req)
}
