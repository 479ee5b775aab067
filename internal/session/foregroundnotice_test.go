package session

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// The result of a foreground call is the word of its end: no notification goes with it.
func TestForegroundWithoutNotice(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main": {
			modeltest.Call("Agent", map[string]any{"description": "look", "prompt": "look", "subagent_type": "explore"}),
			modeltest.Call("Bash", map[string]any{"command": "echo printed; exit 3"}),
			modeltest.Text("done"),
		},
		"explore": {modeltest.Text("found it")},
	}))
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "done" {
		t.Fatalf("turn %+v", turn)
	}
	if _, err := c.settle(patience); err != nil || len(c.turns) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
	asked := of(server, "main")
	if len(asked) != 3 {
		t.Fatalf("%d requests", len(asked))
	}
	for i, want := range []string{"found it", "printed"} {
		if text := asked[i+1].LastText(); !strings.Contains(text, want) || strings.Contains(text, "<task-id>") {
			t.Errorf("it was told %q", text)
		}
	}
}
