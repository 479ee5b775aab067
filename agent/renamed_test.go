package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A transcript of an older build names the field of delivered mail letters: what it
// holds is not delivered again.
func TestOlderTranscript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _, err := agent.OpenTranscript(path, agent.Meta{AgentName: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Append(agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock("hello")), Mail: []int64{7, 9}}); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"mail":[7,9]`) {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"mail":`, `"letters":`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, h, err := agent.OpenTranscript(path, agent.Meta{AgentName: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if !tr.Holds(7) || !tr.Holds(9) || len(h.Messages) != 1 {
		t.Errorf("mail %v in %d messages", h.Mail, len(h.Messages))
	}
}
