package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/task"
)

// Sweep finishes the work of crashed processes, and looks again at kept checkouts: it
// removes a checkout whose work has been merged since then. It skips checkouts that a
// live process holds, of this session or another, and checkouts that alive reports as
// needed; nil: none is. It leaves files alone that it does not understand, and names
// them in the error; the outcomes are valid with an error too.
func (s *Store) Sweep(ctx context.Context, alive func(task.ID) bool) ([]Outcome, error) {
	list, err := s.below().Names(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = s.own()
	}
	if err != nil {
		return nil, fmt.Errorf("sweep worktrees: %w", err)
	}
	var out []Outcome
	var problems []error
	for _, name := range list {
		if ctx.Err() != nil {
			return out, errors.Join(append(problems, context.Cause(ctx))...)
		}
		id, err := task.ParseID(name)
		var info fs.FileInfo
		if err == nil {
			info, err = s.below().Lstat(filepath.Join(s.root, name))
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has removed it meanwhile
		}
		if err != nil || !info.IsDir() {
			problems = append(problems, fmt.Errorf("sweep worktrees: %q in %s is not ours", name, s.root))
			continue
		}
		if alive != nil && alive(id) {
			continue
		}
		o, err := s.sweep(ctx, id)
		if err != nil {
			problems = append(problems, fmt.Errorf("sweep worktrees: %w", err))
		}
		if o.Task != "" {
			out = append(out, o)
		}
	}
	return out, errors.Join(problems...)
}

// sweep looks at one checkout. The outcome is empty for a checkout without an owner.
func (s *Store) sweep(ctx context.Context, id task.ID) (Outcome, error) {
	lock, err := s.hold(id)
	if errors.Is(err, ErrBusy) || errors.Is(err, fs.ErrNotExist) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("worktree of task %s: %w", id, err)
	}
	defer func() { _ = lock.Close() }()
	r, err := s.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Outcome{}, s.empty(id)
	case err != nil:
		return Outcome{}, fmt.Errorf("worktree of task %s: %w", id, err)
	case r.State == making: // no task has it yet
		if err := harmlessIfThere(ctx, r.repository(lock)); err != nil {
			return Outcome{}, fmt.Errorf("worktree of task %s: %w", id, err)
		}
		if err := s.remove(ctx, r, lock, r.Base); err != nil {
			return Outcome{}, fmt.Errorf("worktree of task %s: %w", id, err)
		}
		return Outcome{}, nil
	}
	return s.finish(ctx, r, lock)
}

// harmlessIfThere is [gitrun.Git.Harmless] for a repository that may have gone.
func harmlessIfThere(ctx context.Context, g gitrun.Git) error {
	if _, err := os.Stat(g.Admin); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return g.Harmless(ctx)
}

// empty removes the empty folder of a task without a receipt. It leaves a folder with
// files in it.
func (s *Store) empty(id task.ID) error {
	dir, err := s.folder(id)
	if err == nil {
		err = s.fold(id, dir)
		_ = dir.Close()
	}
	if err != nil {
		return fmt.Errorf("worktree of task %s: it has no receipt and was left alone: %w", id, err)
	}
	return nil
}
