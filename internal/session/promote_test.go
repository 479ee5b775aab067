package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// A person moves a foreground agent to the background in the middle of its work:
// the call that waited for it answers at once, the agent goes on with the same
// conversation, and its end is told once.
func TestPromoteAgent(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	var child int
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch {
		case q.Agent() == "explore" && child == 0: // one agent, whose calls come one after the other
			child++
			return modeltest.Call("Glob", map[string]any{"pattern": "*"})
		case q.Agent() == "explore":
			asked <- struct{}{}
			a := modeltest.Text("found it")
			a.Wait = hold
			return a
		case q.Agent() == "main" && !strings.Contains(string(q.Body), "tool_result"):
			return modeltest.Call("Agent", map[string]any{"description": "look", "prompt": "look", "subagent_type": "explore"})
		}
		return modeltest.Text(q.LastText())
	})
	c := converse(r)
	c.say("go")
	<-asked
	before := r.only("explore")
	if before.Backgrounded {
		t.Fatalf("it is in the background: %+v", before)
	}
	if _, err := r.Promote(r.ctx, string(before.ID)); err != nil {
		t.Fatal(err)
	}
	turn := c.next()
	if turn.Err != nil || !strings.Contains(turn.Result.Text, string(before.ID)) || strings.Contains(turn.Result.Text, "found it") {
		t.Errorf("the call answered %+v", turn)
	}
	now, err := r.Get(r.ctx, string(before.ID))
	if err != nil || now.Status != task.Running || now.Run != before.Run || !now.Backgrounded {
		t.Errorf("it is %+v, %v", now, err)
	}
	close(hold)
	if turn = c.next(); turn.Err != nil || strings.Count(turn.Result.Text, "found it") != 1 {
		t.Errorf("its end was told as %+v", turn)
	}
	if _, err := c.settle(time.Minute); err != nil || len(c.turns) != 0 || r.owed(r.cfg.Info.Session) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
	if n := len(of(server, "explore")); n != 2 {
		t.Errorf("the agent asked its model %d times", n)
	}
	if a, err := control.WholeResult(r.ctx, r, string(before.ID)); err != nil || a.Text != "found it" {
		t.Errorf("result %+v, %v", a, err)
	}
	if _, err := r.Promote(r.ctx, string(before.ID)); code(err) != control.Conflict {
		t.Errorf("moved again: %v", err)
	}
}
