package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Who waits for his turn to make a checkout, or for a sweep to let go of its folder,
// waits no longer than he wants to, and leaves nothing that a sweep would not remove.
func TestStoppedInTheQueue(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		step   string // at which it is enough, with the lock of a folder in other hands
		folder func(s *Store, id task.ID) string
	}{
		"turn":  {"receipt", func(s *Store, _ task.ID) string { return s.root }},
		"claim": {"folder", (*Store).dir},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t, filepath.Join(t.TempDir(), "r"))
			s := Open(filepath.Join(t.TempDir(), "w"))
			id := task.NewID(task.LocalAgent)
			ctx, stop := context.WithCancelCause(t.Context())
			var other *os.File
			s.after = func(step string) {
				if step != c.step {
					return
				}
				f, err := os.Open(c.folder(s, id))
				must(t, err)
				must(t, home.Flock(f))
				other = f
				stop(enough)
			}
			tree, err := s.Create(ctx, Request{Folder: repo, Task: id})
			if err == nil {
				tree.Release()
			}
			if !errors.Is(err, enough) {
				t.Errorf("Create = %v", err)
			}
			must(t, other.Close())
			if list, err := s.Sweep(t.Context(), nil); err != nil || len(list) != 0 {
				t.Errorf("Sweep = %+v, %v", list, err)
			}
			if left := traces(t, s, repo); left != "" {
				t.Errorf("left: %s", left)
			}
			s.after = nil
			create(t, s, repo)
		})
	}
}

// A checkout is removed in a turn too: a git that reads it half removed fails.
func TestRemovalTakesATurn(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	s.after = func(step string) {
		if step == "wiped" {
			stop(enough)
		}
	}
	turn, err := s.Turn(ctx)
	must(t, err)
	if _, err := s.Finish(ctx, tree); !errors.Is(err, enough) {
		t.Errorf("Finish = %v", err)
	}
	if _, err := os.Stat(filepath.Join(tree.receipt.admin(), "commondir")); err != nil {
		t.Errorf("it was removed in the turn of another: %v", err)
	}
	must(t, turn.Close())
	s.after = nil
	if list, err := s.Sweep(t.Context(), nil); err != nil {
		t.Errorf("Sweep = %+v, %v", list, err)
	}
	if left := traces(t, s, repo); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A further run waits for the sweep of another process, which holds what it looks at.
func TestResumeWaitsForASweep(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	put(t, tree.Path, "new", "1")
	_, err := s.Finish(t.Context(), tree)
	must(t, err)
	sweep, err := Open(s.root).hold(tree.Task)
	must(t, err)
	time.AfterFunc(100*time.Millisecond, func() { _ = sweep.Close() })
	again, err := s.Resume(t.Context(), tree.Task)
	must(t, err)
	again.Release()
}
