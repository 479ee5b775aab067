package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// Old results go in few large steps, say how they are read again, and are kept by the transcript.
func TestOldResultsAreCleared(t *testing.T) {
	const turns, window, size = 200, 40_000, 3000
	var requests [][]agent.Message
	n := 0
	model := agenttest.ModelFunc(func(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
		requests = append(requests, slices.Clone(req.Messages))
		if n++; n > turns {
			return &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("done")}}, nil
		}
		name := "big"
		if n%10 == 0 {
			name = "small"
		}
		call := agenttest.ToolUse(fmt.Sprint("c", n), name, fmt.Sprintf(`{"n":%d}`, n))
		return &agent.Reply{StopReason: "tool_use", Blocks: []agent.Block{call}}, nil
	})
	kept := map[string]int{}
	path := t.TempDir() + "/t.jsonl"
	tr, _, err := agent.OpenTranscript(path, agent.Meta{AgentName: "main"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{
		Model: model, MaxTurns: turns + 1, Transcript: tr, Compaction: &agent.Compaction{Window: window},
		Tools: []agent.Tool{
			tool{name: "big", call: func(_ context.Context, c agent.Call) (agent.Output, error) {
				return agent.Output{Text: strings.Repeat(c.ID+" ", size/4)}, nil
			}},
			tool{name: "small"},
		},
		Clearing: &agent.Clearing{Keep: func(_ context.Context, c agent.Call, text string) (string, error) {
			if c.ID == "c7" {
				return "", errors.New("the disk is full")
			}
			if !strings.HasPrefix(text, c.ID+" ") || string(c.Input) != fmt.Sprintf(`{"n":%s}`, c.ID[1:]) {
				t.Errorf("the result of %s %s is kept as %.20q", c.ID, c.Input, text)
			}
			kept[c.ID]++
			return "It is kept as " + c.ID + ".", nil
		}},
	}
	l := newLoop(t, cfg)
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	check(t, l.Messages())
	steps, before := 0, []agent.Message(nil)
	for i, now := range requests {
		sum := 0
		for j, m := range now {
			sum += len(m.Encoded())
			if j < len(before) && string(m.Encoded()) != string(before[j].Encoded()) {
				steps++
				break
			}
		}
		if sum > 3*window {
			t.Errorf("request %d has %d bytes", i+1, sum)
		}
		before = now
	}
	if steps < 5 || steps > turns/10 {
		t.Errorf("%d requests of %d change what was said before", steps, len(requests))
	}
	var texts []string
	for _, m := range l.Messages() {
		if m.Role() == agent.User {
			texts = append(texts, contents(t, m)...)
		}
	}
	texts = texts[1:]
	if want := "[[This result was cleared after a while: 2250 bytes. It is kept as c1.]]"; texts[0] != want {
		t.Errorf("result 1 is %.100q, want %q", texts[0], want)
	}
	for i, stays := range map[int]bool{6: true, 9: true, turns - 1: true, turns - 10: true, 1: false} {
		if strings.HasPrefix(texts[i], "[[This result") == stays {
			t.Errorf("result %d: %.50q", i+1, texts[i])
		}
	}
	for id, times := range kept {
		if times != 1 {
			t.Errorf("%s is kept %d times", id, times)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	tr, h, err := agent.OpenTranscript(path, agent.Meta{AgentName: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if n := strings.Count(string(h.Messages[2].Encoded()), "c1 "); n < size/4 {
		t.Errorf("the transcript has lost a result: %s", h.Messages[2].Encoded())
	}

	// Opened again it says what it said, and the provider still has that.
	last := requests[len(requests)-1]
	cfg.Transcript, requests, n = tr, nil, turns
	if l, err = agent.NewLoop(cfg, h.Messages); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(l, "and then"); err != nil {
		t.Fatal(err)
	}
	for i, m := range last {
		if got := requests[0][i]; string(got.Encoded()) != string(m.Encoded()) {
			t.Fatalf("message %d of %d is %.100s after the conversation was opened again, and was %.100s",
				i, len(last), got.Encoded(), m.Encoded())
		}
	}
}
