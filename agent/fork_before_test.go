package agent_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A fork before a prompt holds what was said before it, also where a later summary has taken
// the place of that, and nothing of what came after.
func TestForkBefore(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.jsonl")
	tr, _, err := agent.OpenTranscript(from, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	said := func(role agent.Role, text string) agent.Message { return agent.NewMessage(role, agent.TextBlock(text)) }
	err = tr.Append(
		agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock("<reminder>"), agent.TextBlock("one")), Prompt: 2},
		agent.Record{Message: said(agent.Assistant, "answer one")},
		agent.Record{Message: said(agent.User, "<mail>"), Mail: []int64{7}},
		agent.Record{Message: said(agent.Assistant, "answer to mail")},
		agent.Record{Message: said(agent.User, "the text of /two"), Prompt: 1, Typed: "/two"},
		agent.Record{Message: said(agent.Assistant, "answer two")},
		agent.Record{Message: said(agent.User, "summary"), Boundary: &agent.Boundary{Trigger: "manual"}},
		agent.Record{Message: said(agent.User, "three"), Prompt: 1},
		agent.Record{Message: said(agent.Assistant, "answer three")},
	)
	if err := errors.Join(err, tr.Close()); err != nil {
		t.Fatal(err)
	}
	prompts, err := agent.Prompts(from)
	if err != nil || len(prompts) != 3 || prompts[0].Text != "one" || prompts[1].Text != "/two" || prompts[2].Text != "three" {
		t.Fatalf("prompts %+v, %v", prompts, err)
	}
	for i, want := range []int{0, 4, 1} { // messages: none, those of one and the mail, the summary
		to := filepath.Join(dir, prompts[i].ID)
		if err := agent.ForkTranscriptBefore(from, to, prompts[i].ID, agent.Meta{}); err != nil {
			t.Fatal(err)
		}
		copied, h, err := agent.OpenTranscript(to, agent.Meta{})
		if err != nil || len(h.Messages) != want || len(h.Mail) != 0 {
			t.Errorf("before prompt %d: %d messages, mail %v, %v", i+1, len(h.Messages), h.Mail, err)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := agent.ForkTranscriptBefore(from, filepath.Join(dir, "x"), "nobody", agent.Meta{}); !errors.Is(err, agent.ErrNoPrompt) {
		t.Errorf("before a prompt that is not there: %v", err)
	}
}
