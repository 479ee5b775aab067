package tasktools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Agents that work elsewhere are offered, and taken, only where there are some.
func TestIsolations(t *testing.T) {
	for _, remote := range []bool{false, true} {
		m := &memory{agent: AgentOutcome{Backgrounded: true}}
		tool := New(Config{Tasks: m, Remote: remote})[0]
		schema := tool.Spec().InputSchema
		if got := strings.Contains(string(schema), `"enum":["worktree","remote"]`); got != remote || !json.Valid(schema) {
			t.Errorf("remote %v: %s", remote, schema)
		}
		for word, ok := range map[string]bool{"": true, "worktree": true, "remote": remote, "cloud": false} {
			m.asked = AgentRequest{}
			out, err := tool.Call(t.Context(), agent.Call{Input: fmt.Appendf(nil,
				`{"description":"d","prompt":"p","isolation":%q}`, word)})
			if err != nil || out.IsError == ok || ok && m.asked.Isolation != word {
				t.Errorf("remote %v, %q: %v, %+v, asked for %+v", remote, word, err, out, m.asked)
			}
		}
	}
}

// RA-02: the result of a look at a remote task holds the prompt that was sent.
func TestRemoteShown(t *testing.T) {
	rec := task.Record{ID: "r00000001", Kind: task.RemoteAgent, Status: task.Completed, Description: "d",
		Prompt: "the prompt"}
	raw, err := json.Marshal(show(rec, "the output", false, 0).Structured)
	want := `{"task_id":"r00000001","task_type":"remote_agent","status":"completed","description":"d","output":"the ` +
		`output","prompt":"the prompt"}`
	if err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
}
