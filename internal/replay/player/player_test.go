package player

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/replay/recording"
)

func request(text string) *agent.Request {
	return &agent.Request{Agent: "main", SessionID: "s2",
		Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock(text))}}
}

// two calls of the main agent, whose requests say hello.
func recorded() *recording.Recording {
	h := recording.Head{Session: "s1"}
	r := &recording.Recording{Head: h}
	for n, id := range []string{"", "a1"} {
		r.Entries = append(r.Entries, recording.Entry{Kind: recording.Call, Agent: "s1", Call: 1,
			Request: recording.NamesOf(h).Request("m", request("hello"), 0),
			Chunks:  []recording.Chunk{{Kind: agent.TextPart, Text: "hi"}},
			Reply:   &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("hi")}}})
		if id != "" {
			r.Entries[n].Agent = "a1"
		}
	}
	return r
}

func player(diverged func(error)) *Player {
	return New(Config{Recording: recorded(), Session: "s2", Names: recording.NamesOf(recording.Head{Session: "s2"}),
		Patience: time.Minute, Diverged: diverged})
}

func TestAnswer(t *testing.T) {
	p, said := player(nil), ""
	reply, err := p.Model("m", nil).Reply(t.Context(), request("hello"), func(part agent.Part) { said += part.Text })
	if err != nil || said != "hi" || reply.Blocks[0].Text != "hi" {
		t.Errorf("%v, %q, %v", reply, said, err)
	}
	if left := p.Missing(); left != "answer 1 of the model to agent a1" {
		t.Errorf("missing is %q", left)
	}
}

// A request that is not the recorded one is named with both digests, and nothing goes on behind it.
func TestDivergentRequest(t *testing.T) {
	var told []error
	p := player(func(err error) { told = append(told, err) })
	m := p.Model("m", nil)
	_, err := m.Reply(t.Context(), request("hullo"), nil)
	var d *Divergence
	was := recorded().Entries[0].Request.Digest
	if !errors.As(err, &d) || !strings.Contains(err.Error(), was) || !strings.Contains(err.Error(), `"ullo`) &&
		!strings.Contains(err.Error(), "hullo") {
		t.Fatalf("the error is %v", err)
	}
	other := request("hello")
	other.AgentID = "a1"
	if _, err := m.Reply(t.Context(), other, nil); !errors.As(err, &d) {
		t.Errorf("the replay goes on: %v", err)
	}
	if len(told) != 1 || p.Err() == nil {
		t.Errorf("told %v", told)
	}
}

// What was recorded first goes first; if it does not come, it is named.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := player(nil)
		second := request("hello")
		second.AgentID = "a1"
		_, err := p.Model("m", nil).Reply(context.Background(), second, nil)
		if err == nil || !strings.Contains(err.Error(), "answer 1 of the model to agent main was recorded next") {
			t.Errorf("the error is %v", err)
		}
	})
}
