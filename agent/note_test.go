package agent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A note is in the file, for people, and not in the conversation.
func TestNote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _, err := agent.OpenTranscript(path, agent.Meta{AgentName: "main"})
	if err != nil {
		t.Fatal(err)
	}
	hello := agent.NewMessage(agent.User, agent.TextBlock("hello"))
	if err := tr.Append(agent.Record{Message: hello}, agent.Record{Note: "memory was updated: \x1b[31mé.md"}); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	tr, h, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(h.Messages) != 1 || h.Skipped != 0 || string(h.Messages[0].Encoded()) != string(hello.Encoded()) {
		t.Errorf("%d messages, %d lines skipped", len(h.Messages), h.Skipped)
	}
	var page strings.Builder
	if err := agent.WriteMarkdown(&page, path); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, "*memory was updated:") || strings.Contains(text, "\x1b") {
		t.Errorf("the page is %s", text)
	}
}
