package archive

import (
	"context"

	"github.com/drover-dev/drover/internal/api/change"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

// Diff implements [control.API].
func (a *Archive) Diff(ctx context.Context, req control.DiffRequest) (control.Diff, error) {
	rec, err := a.Get(ctx, req.Ref)
	if err != nil {
		return control.Diff{}, err
	}
	return change.Read(ctx, worktree.Open(a.place.Project().Root().Worktrees()), rec, req)
}

// Comment is refused, as Send is.
func (a *Archive) Comment(_ context.Context, req control.CommentRequest) (task.Record, error) {
	return task.Record{}, a.goOn("comment on the diff of " + req.Ref)
}
