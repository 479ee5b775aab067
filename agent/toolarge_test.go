package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// heavy is a text of which each byte takes two in a message.
func heavy(bytes int) string { return strings.Repeat(`"`, bytes) }

// A letter for which a message has no room is told as far as there is, and is not owed any
// more; the user is told too, and the prompt that came with it is whole.
func TestMailThatIsTooLarge(t *testing.T) {
	tr, _ := open(t, filepath.Join(t.TempDir(), "t.jsonl"))
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 7, Text: heavy(33 << 20)})
	l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Say("done"), agenttest.Say("still here")), Transcript: tr, Mail: mail})
	prompt := strings.Repeat("go ", 1000)
	res, err := ask(l, prompt)
	if err != nil || res.Text != "done" || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "1 of its 1 parts were cut") {
		t.Fatalf("%q, %v, warnings %q", res.Text, err, res.Warnings)
	}
	if said := contents(t, l.Messages()[0]); len(said) != 2 || !strings.Contains(said[0], "34601008 bytes left out") || said[1] != prompt {
		t.Errorf("the model is told %.200q", said)
	}
	if told := mail.Acked(); len(told) != 1 || told[0] != 7 {
		t.Errorf("acknowledged: %v", told)
	}
	if res, err := ask(l, "and?"); err != nil || len(res.Warnings) != 0 {
		t.Errorf("the next turn: %v, %q", err, res.Warnings)
	}
}

// A prompt for which a message has no room is refused at once, and nothing of it is left
// for the next turn.
func TestPromptThatIsTooLarge(t *testing.T) {
	tr, _ := open(t, filepath.Join(t.TempDir(), "t.jsonl"))
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 7, Text: "a letter"})
	l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Say("done")), Transcript: tr, Mail: mail})
	if _, err := ask(l, heavy(17<<20)); err == nil || !strings.Contains(err.Error(), "send less at once") {
		t.Fatalf("%v", err)
	}
	if len(mail.Acked()) != 0 || len(l.Messages()) != 0 {
		t.Errorf("%v is acknowledged, %d messages are kept", mail.Acked(), len(l.Messages()))
	}
	if res, err := ask(l, "less"); err != nil || res.Text != "done" || len(mail.Acked()) != 1 {
		t.Errorf("%+v, %v, acknowledged: %v", res, err, mail.Acked())
	}
}

// An answer that is more than a message holds ends its turn, and is not asked for again:
// its cost is kept, and a word of it stands where it would.
func TestAnswerThatIsTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	text := heavy(33 << 20)
	l := newLoop(t, agent.Config{Transcript: tr, Model: agenttest.Steps(
		agenttest.Blocks("tool_use", agent.TextBlock(text), agenttest.ToolUse("a", "T", `{}`)), agenttest.Say("short"),
		func(_ context.Context, req *agent.Request) (*agent.Reply, error) {
			return nil, &agent.CutError{Whole: []agent.Block{agent.TextBlock(text)}}
		}),
		Tools: []agent.Tool{tool{name: "T", call: func(context.Context, agent.Call) (agent.Output, error) {
			t.Error("a call of it was run")
			return agent.Output{}, nil
		}}}})
	if _, err := ask(l, "go"); err == nil || !strings.Contains(err.Error(), "and may have") {
		t.Fatalf("%v", err)
	}
	if _, err := l.Turn(t.Context()); !errors.Is(err, agent.ErrNothing) {
		t.Errorf("a turn of nothing new: %v", err)
	}
	if res, err := ask(l, "shorter"); err != nil || res.Text != "short" {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := ask(l, "long again"); err == nil || strings.Contains(err.Error(), "transcript") {
		t.Errorf("an answer that was cut: %v", err)
	}
	check(t, l.Messages())
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	_, h := open(t, path)
	if len(h.Messages) != 5 || h.Totals.Turns != 2 || h.Totals.Usage.OutputTokens != 10 {
		t.Fatalf("the file holds %d messages, %+v", len(h.Messages), h.Totals)
	}
	if said := contents(t, h.Messages[1]); len(said) != 1 || !strings.HasPrefix(said[0], "[left out: the answer has") || !json.Valid(h.Messages[1].Encoded()) {
		t.Errorf("instead of the answer: %.200q", said)
	}
}
