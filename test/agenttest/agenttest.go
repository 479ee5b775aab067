// Package agenttest has what tests of agents need: a model that follows a
// function or a list, mail in memory, and golden transcripts.
//
// It promises that a model never answers what its test did not say: beyond the
// end of a list it fails. It does not check anything by itself, and is not for
// production.
package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// ModelFunc is a model made of a function.
type ModelFunc func(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error)

// Reply calls the function.
func (f ModelFunc) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	return f(ctx, req, on)
}

// Step answers one request.
type Step func(ctx context.Context, req *agent.Request) (*agent.Reply, error)

// Model answers the n-th request by its n-th step, and keeps the messages of
// every request. It may be used by several goroutines.
type Model struct {
	mu    sync.Mutex
	steps []Step
	seen  [][]agent.Message
}

// Steps makes a model.
func Steps(steps ...Step) *Model { return &Model{steps: steps} }

// Say is a step that ends the turn with a text.
func Say(text string) Step { return Blocks("end_turn", agent.TextBlock(text)) }

// Use is a step that calls tools, made with [ToolUse].
func Use(calls ...agent.Block) Step { return Blocks("tool_use", calls...) }

// ToolUse is a call of a tool; the input is JSON.
func ToolUse(id, name, input string) agent.Block {
	return agent.Block{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(input)}
}

// Blocks is a step that answers with the blocks.
func Blocks(stopReason string, blocks ...agent.Block) Step {
	return func(context.Context, *agent.Request) (*agent.Reply, error) {
		return &agent.Reply{
			Model: "test", Blocks: blocks, StopReason: stopReason,
			Usage: agent.Usage{InputTokens: 10, OutputTokens: 5},
		}, nil
	}
}

// Fail is a step that fails.
func Fail(err error) Step {
	return func(context.Context, *agent.Request) (*agent.Reply, error) { return nil, err }
}

// Reply answers by the next step.
func (m *Model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	m.mu.Lock()
	n := len(m.seen)
	m.seen = append(m.seen, req.Messages)
	m.mu.Unlock()
	if n >= len(m.steps) {
		return nil, fmt.Errorf("the test has no step %d", n)
	}
	reply, err := m.steps[n](ctx, req)
	if err != nil {
		return nil, err
	}
	for i, b := range reply.Blocks {
		if b.Type == "text" {
			on(agent.Part{Kind: agent.TextPart, Index: i, Text: b.Text})
		}
		on(agent.Part{Kind: agent.BlockPart, Index: i, Block: &b})
	}
	return reply, nil
}

// Requests is the messages of every request so far.
func (m *Model) Requests() [][]agent.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([][]agent.Message(nil), m.seen...)
}

// Mail is [agent.Mail] in memory. The zero value is empty and ready.
type Mail struct {
	mu    sync.Mutex
	owed  []agent.MailMessage
	acked []int64
}

// Send adds mail messages.
func (m *Mail) Send(letters ...agent.MailMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owed = append(m.owed, letters...)
}

// Take returns the messages that are not acknowledged.
func (m *Mail) Take(context.Context) ([]agent.MailMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]agent.MailMessage(nil), m.owed...), nil
}

// Ack removes mail messages.
func (m *Mail) Ack(_ context.Context, letters []agent.MailMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range letters {
		m.acked = append(m.acked, l.Seq)
		for i, o := range m.owed {
			if o.Seq == l.Seq {
				m.owed = append(m.owed[:i:i], m.owed[i+1:]...)
				break
			}
		}
	}
	return nil
}

// Acked is the numbers of all mail messages acknowledged so far, in order.
func (m *Mail) Acked() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]int64(nil), m.acked...)
}

// Golden compares a transcript with testdata/NAME.jsonl. UUIDs become u0, u1 …
// in the order in which they come, times and generated message IDs go. With
// UPDATE_GOLDEN=1 in the environment it writes the golden file instead.
func Golden(t testing.TB, name, transcript string) {
	t.Helper()
	data, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	got := Normalise(t, data)
	path := filepath.Join("testdata", name+".jsonl")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with UPDATE_GOLDEN=1)", err)
	}
	if got != string(want) {
		t.Errorf("transcript is not %s (UPDATE_GOLDEN=1 writes it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// Normalise is a transcript without what differs from run to run, its keys in
// alphabetical order.
func Normalise(t testing.TB, transcript []byte) string {
	t.Helper()
	names := map[string]string{}
	var out strings.Builder
	for text := range strings.Lines(string(transcript)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(text), &entry); err != nil {
			t.Fatalf("transcript line %q: %v", text, err)
		}
		for _, key := range []string{"uuid", "parent_uuid"} {
			id, ok := entry[key].(string)
			if !ok {
				continue
			}
			if names[id] == "" {
				names[id] = fmt.Sprintf("u%d", len(names))
			}
			entry[key] = names[id]
		}
		delete(entry, "timestamp")
		delete(entry, "reply_id")
		enc, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(enc, '\n'))
	}
	return out.String()
}
