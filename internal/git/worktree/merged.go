package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/task"
)

// Merged tells the store that a commit of the user's branch has all of a change. If the
// checkout is still as the change says, and not in use, it moves to that commit:
// a further run continues from there, and [Store.Sweep] finds no changes in it. Merged removes
// the copy of the merged changes. It reports whether the task has no other changes.
func (s *Store) Merged(ctx context.Context, c Change, oid string) (_ bool, err error) {
	defer annotate.Error(&err, "worktree of task %s, which is merged", c.Task)
	if _, err := task.ParseID(string(c.Task)); err != nil {
		return false, err
	}
	lock, err := s.holdSoon(ctx, c.Task)
	switch {
	case errors.Is(err, ErrBusy):
		return false, nil
	case errors.Is(err, fs.ErrNotExist): // only refs are left
		g := gitrun.Git{Admin: c.Common, Tree: c.Common}
		return true, errors.Join(unbranch(ctx, g, c), uncopy(ctx, g, c))
	case err != nil:
		return false, err
	}
	defer func() { _ = lock.Close() }()
	r, err := s.read(c.Task)
	if err != nil {
		return false, err
	}
	now, err := s.change(ctx, c.Task, "")
	if err != nil || now.Head != c.Head || now.Tree != c.Tree || now.From != c.From {
		return false, err
	}
	g := r.repository(lock)
	if c.From == FromWorktree {
		st, err := r.look(ctx, lock)
		if err != nil || st.on != r.Branch || len(st.hidden)+len(st.nested) > 0 {
			return false, err
		}
		// A crash after the receipt leaves the change as it was: it is counted from where
		// the base and the agent's commits part.
		r.Base, r.Rescue = oid, ""
		if err := s.write(r); err != nil {
			return false, err
		}
		s.step("rebased")
		if _, err := r.checkout(lock).Run(ctx, "reset", "-q", "--hard", oid); err != nil {
			return false, err
		}
	} else if err := unbranch(ctx, g, c); err != nil {
		return false, err
	}
	return true, uncopy(ctx, g, c)
}

// unbranch removes the branch of a checkout that is gone, if the change has all of it.
func unbranch(ctx context.Context, g gitrun.Git, c Change) error {
	if c.Path != "" {
		if _, err := os.Lstat(c.Path); err == nil {
			return nil
		}
	}
	ref := "refs/heads/" + c.Branch
	tip, err := g.Commit(ctx, ref)
	if err != nil || tip == "" {
		return err
	}
	if in, err := g.Ancestor(ctx, tip, c.Head); err != nil || !in {
		return err
	}
	_, err = g.Run(ctx, "update-ref", "-d", ref, tip)
	return err
}

// uncopy removes the copy of uncommitted changes if it belongs to the change, or to an
// earlier state of the same checkout.
func uncopy(ctx context.Context, g gitrun.Git, c Change) error {
	ref := rescueOf(c.Task)
	oid, err := g.Commit(ctx, ref)
	if err != nil || oid == "" {
		return err
	}
	tree, err := g.Text(ctx, "rev-parse", oid+"^{tree}")
	if err != nil {
		return err
	}
	if tree != c.Tree {
		head, err := g.Commit(ctx, oid+"^1")
		if err != nil || head == "" || c.From != FromWorktree {
			return err
		}
		if older, err := g.Ancestor(ctx, head, c.Head); err != nil || !older {
			return err
		}
	}
	_, err = g.Run(ctx, "update-ref", "-d", ref, oid)
	return err
}
