package modelwire

import (
	"fmt"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A head is encoded once for requests that say the same, and anew for any that differs.
func TestHeads(t *testing.T) {
	var heads Heads
	made := 0
	head := func(req agent.Request) string {
		t.Helper()
		out, err := heads.Of(&req, func() ([]byte, error) { made++; return fmt.Appendf(nil, "%d", made), nil })
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	schema := []byte(`{"type":"object"}`)
	tool := agent.ToolSpec{Name: "Bash", Description: "d", InputSchema: schema}
	base := agent.Request{Model: "m", System: "s", Tools: []agent.ToolSpec{tool}}
	first := head(base)
	again := base
	again.Tools = []agent.ToolSpec{{Name: "Bash", Description: "d", InputSchema: []byte(`{"type":"object"}`)}}
	again.AgentID, again.Messages = "a1", []agent.Message{agent.NewMessage(agent.User, agent.TextBlock("go"))}
	if got := head(again); got != first {
		t.Errorf("an equal head was encoded again: %s", got)
	}
	for name, change := range map[string]func(*agent.Request){
		"model":    func(r *agent.Request) { r.Model = "n" },
		"system":   func(r *agent.Request) { r.System = "" },
		"limit":    func(r *agent.Request) { r.MaxTokens = 7 },
		"thinking": func(r *agent.Request) { r.Thinking.Tokens = 7 },
		"no tools": func(r *agent.Request) { r.Tools = nil },
		"description": func(r *agent.Request) {
			r.Tools = []agent.ToolSpec{{Name: "Bas", Description: "hd", InputSchema: schema}}
		},
		"more tools": func(r *agent.Request) { r.Tools = append(r.Tools[:1:1], r.Tools[0]) },
	} {
		other := base
		change(&other)
		if got := head(other); got == first {
			t.Errorf("%s: another request got the same head", name)
		}
	}
	schema[2] = 'T' // the caller has changed what it gave
	if got := head(base); got == first {
		t.Error("a changed schema got the head of the old one")
	}
	for i := range 3 * maxHeads {
		head(agent.Request{Model: fmt.Sprint(i)})
	}
	if len(heads.made) > maxHeads {
		t.Errorf("%d heads are remembered, at most %d may be", len(heads.made), maxHeads)
	}
}
