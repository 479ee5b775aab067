package placement

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/wire"
	"github.com/drover-dev/drover/task"
)

// job is what the worker is granted.
func (w *work) job() wire.Job {
	j := w.want.Job
	j.Folder = w.repo != ""
	return j
}

// sendFolder sends what the worker lacks of the folder, and what it is to make of it. Nothing is sent again that is
// there: the manifest of a first attempt serves the others.
func (w *work) sendFolder(ctx context.Context, l *link.Link) error {
	if w.repo == "" {
		return nil
	}
	w.say("sends the folder to worker " + w.book.Worker)
	m, err := folder.Pack(ctx, w.want.Folder, folder.Choice{Have: w.has, Untracked: w.want.Untracked}, l.Parts())
	if err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send the folder: %w", err)
	}
	// The next host takes the changes in, should this one die: it needs no parts for that.
	m.Parts, m.Notes = nil, nil
	w.sent = &m
	b := w.book
	b.Sent = w.sent
	state, err := b.encode()
	if err == nil {
		err = w.h.Checkpoint(ctx, state)
	}
	if err != nil {
		return fmt.Errorf("send the folder: %w", err)
	}
	w.set(b)
	msg, err := wire.Encode(wire.Command{Kind: wire.FolderReady, Epoch: w.book.Epoch}, data)
	if err == nil {
		err = l.Publish(ctx, wire.CommandTo(w.book.Worker, w.rec.Session, w.id), "", msg)
	}
	if err != nil {
		return fmt.Errorf("send the folder: %w", err)
	}
	return nil
}

// abandon ends a task whose folder cannot be sent.
func (w *work) abandon(ctx context.Context, l *link.Link, why error) (task.Result, error) {
	w.send(l, wire.Command{Kind: wire.Stop, Actor: task.ByRuntime})
	w.set(w.book.End())
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: why}
}

// leave takes what the task has changed into a ref of the repository, and never into its work tree.
func (w *work) leave(l *link.Link, e wire.End) func(context.Context) *task.Worktree {
	if w.sent == nil {
		return nil
	}
	return func(ctx context.Context) *task.Worktree {
		lost := func(why string) *task.Worktree {
			return &task.Worktree{
				Text: fmt.Sprintf("What the task has changed at worker %s did not come back: %s", w.book.Worker, why),
			}
		}
		if e.Folder != "" || len(e.Return) == 0 {
			return lost(e.Folder)
		}
		r, err := folder.ReadReturn(e.Return, folder.Limits{})
		if err != nil {
			return lost(err.Error())
		}
		ref := fmt.Sprintf("%stasks/%s", folder.RefPrefix, w.id)
		got, err := folder.Receive(ctx, w.rec.Cwd, *w.sent, r, ref, folder.Limits{}, l.Parts())
		switch {
		case err != nil:
			return lost(err.Error())
		case got.Ref == "":
			return &task.Worktree{Removed: true, Text: "The task has changed no file."}
		}
		return &task.Worktree{Rescue: got.Ref, Removed: true, Text: fmt.Sprintf(
			"The task has changed %d files (+%d -%d): see `git diff %.12s %s`, take them by `git cherry-pick %s`.",
			got.Files, got.Added, got.Removed, got.Base, got.Ref, got.Ref)}
	}
}
