package tasktools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// The schema offers remote agents only where there are some, and is JSON both ways.
func TestIsolations(t *testing.T) {
	for _, remote := range []bool{false, true} {
		text := isolations(remote)
		if got := strings.Contains(text, `"enum":["worktree","remote"]`); got != remote || !json.Valid([]byte(text)) {
			t.Errorf("remote %v: %s", remote, text)
		}
	}
	for word, ok := range map[string]bool{"": true, "worktree": true, "remote": true, "cloud": false} {
		if err := checkIsolation(word); (err == nil) != ok {
			t.Errorf("%q: %v", word, err)
		}
	}
}

// RA-02: the result of a look at a remote task holds the prompt that was sent.
func TestRemoteShown(t *testing.T) {
	rec := task.Record{ID: "r00000001", Kind: task.RemoteAgent, Status: task.Completed, Description: "d", Prompt: "the prompt"}
	raw, err := json.Marshal(show(rec, "the output", false, 0).Structured)
	want := `{"task_id":"r00000001","task_type":"remote_agent","status":"completed","description":"d","output":"the output","prompt":"the prompt"}`
	if err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
}
