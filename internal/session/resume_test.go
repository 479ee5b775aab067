package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// An agent goes on in another host under its own ID: its file is appended to,
// its model is sent what was said before, and its figures are those of the new
// run. A command cannot.
func TestResumeAfterReopen(t *testing.T) {
	var old, shell atomic.Value
	turns := modeltest.Turns(map[string][]modeltest.Answer{
		"main":    {blocks(delegate("explore", "look")), modeltest.Text("done")},
		"explore": {modeltest.Text("first look"), modeltest.Text("second look")},
	})
	n := 0
	r, server := served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "main" && old.Load() != nil {
			n++
			switch n {
			case 1:
				return blocks(delegate("explore", "look again", "resume", old.Load().(string)), delegate("explore", "run again", "resume", shell.Load().(string)))
			default:
				return modeltest.Text("done")
			}
		}
		return turns(ctx, q)
	})
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	before := r.only("explore")
	place := r.cfg.Place.AgentTranscript(before.ID)
	was, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	command := r.run("exec sleep 100")
	c.stop()
	r.reopen()
	page, err := r.List(r.ctx, control.ListRequest{All: true})
	if err != nil || len(page.Tasks) != 2 || page.Tasks[1].ID != before.ID || page.Tasks[1].Status != task.Completed || page.Tasks[0].Status != task.Killed {
		t.Errorf("after reopening: %+v, %v", page, err)
	}
	shell.Store(string(command.ID))
	old.Store(string(before.ID))
	c = converse(r)
	c.say("again")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	after := r.only("explore")
	if after.ID != before.ID || after.Run == before.Run || after.Status != task.Completed || after.Model != before.Model {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if after.Usage == nil || after.Usage.Turns != 1 {
		t.Errorf("usage of the run %+v", after.Usage)
	}
	now, err := os.ReadFile(place)
	if err != nil || !bytes.HasPrefix(now, was) || len(now) <= len(was) {
		t.Errorf("the transcript was not appended to: %d and %d bytes, %v", len(was), len(now), err)
	}
	asked := of(server, "explore")
	body := string(asked[len(asked)-1].Body)
	last := 0
	for _, text := range []string{`"look"`, "first look", "look again"} {
		at := strings.Index(body, text)
		if at < last {
			t.Errorf("%s is not where it belongs in %s", text, body)
		}
		last = at
	}
	mains := of(server, "main")
	result := mains[len(mains)-1].LastText()
	for _, want := range []string{
		"second look",
		fmt.Sprintf("Usage: %d tokens, %d tool uses", after.Usage.TotalTokens, after.Usage.ToolUses),
		"task " + string(command.ID) + " is no agent and cannot be resumed",
	} {
		if !strings.Contains(result, want) {
			t.Errorf("the results lack %q: %s", want, result)
		}
	}
}
