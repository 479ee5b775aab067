package environment

import (
	"context"
	"testing"

	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// host is that of one agent.
type host struct {
	task.Host
	rec task.Record
}

func (h *host) Record() task.Record { return h.rec }

func (h *host) Checkpoint(_ context.Context, state []byte) error {
	h.rec.Checkpoint = state
	return nil
}

// An agent is known as isolated before it has a checkout, so that a further run after a
// crash does not take place in the folder of the user.
func TestIsolatedFirst(t *testing.T) {
	c := NewCheckouts(worktree.Open(t.TempDir()), Unrecorded{}, &Edits{}, func(task.ID, string) {})
	h := &host{rec: task.Record{ID: "a00000001", Kind: task.LocalAgent}}
	if tree.Isolated(h.rec) {
		t.Fatal("it is isolated already: the test shows nothing")
	}
	if _, err := c.Open(t.Context(), h, t.TempDir(), false); err == nil {
		t.Fatal("a folder that is no repository has a checkout")
	}
	if !tree.Isolated(h.rec) {
		t.Error("its record does not say that it is isolated")
	}
}
