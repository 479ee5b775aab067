package requests

import (
	"context"

	"github.com/drover-dev/drover/internal/api/change"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Diff returns the changes of a task in a worktree of its own.
func (t *Tasks) Diff(ctx context.Context, req control.DiffRequest) (control.Diff, error) {
	rec, err := t.Get(ctx, req.Ref)
	if err != nil {
		return control.Diff{}, err
	}
	return change.Read(ctx, t.trees, rec, req)
}

// Comment sends comments on lines of a diff to the agent of a task.
func (t *Tasks) Comment(ctx context.Context, req control.CommentRequest) (task.Record, error) {
	rec, err := t.Get(ctx, req.Ref)
	if err != nil {
		return rec, err
	}
	text, err := change.Comments(ctx, t.trees, rec, req)
	if err != nil {
		return rec, err
	}
	return t.Send(ctx, control.SendRequest{Ref: string(rec.ID), Text: text, Env: req.Env})
}
