package session

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// Fifty commands that end while a prompt waits do not keep it waiting: the next
// turn answers the prompt, and tells of them all at once. None of their notifications
// is urgent.
func TestManyEnds(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{})
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("answer")
		if q.N == 1 {
			close(begun)
			a.Wait = hold
		}
		return a
	})
	c := converse(r)
	c.say("first")
	<-begun
	rt := r.agents.Runtime(agents.Caller{ID: r.cfg.Info.Session, Cwd: r.folder, Env: r.cfg.Agents.Env})
	var refs []string
	for range 50 {
		out, err := rt.Run(r.ctx, shelltool.Command{Line: "true", Args: []string{"true"}, Cwd: r.folder, Background: true})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, string(out.Task.ID))
	}
	r.wait(refs...)
	notifications, err := r.log.Unacknowledged(r.ctx, r.cfg.Info.Session)
	if err != nil || len(notifications) != 50 || slices.ContainsFunc(notifications, func(n lifecycle.Notification) bool { return n.Priority == task.Next }) {
		t.Errorf("%d notifications, %v", len(notifications), err)
	}
	c.say("second")
	close(hold)
	for _, want := range []string{"", ""} {
		if turn := c.next(); turn.Err != nil || turn.Origin != want {
			t.Errorf("turn %+v", turn)
		}
	}
	if _, err := c.settle(patience); err != nil || len(c.turns) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
	asked := of(server, "main")
	if len(asked) != 2 {
		t.Fatalf("%d requests", len(asked))
	}
	if got := asked[1].LastText(); strings.Count(got, "<task-notification>") != 50 || !strings.Contains(got, "second") {
		t.Errorf("the second turn answers %s", got)
	}
}
