package archive

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// converse leaves a transcript of so many messages.
func converse(t *testing.T, place home.Session, id task.ID, n int) {
	t.Helper()
	path := place.AgentTranscript(id)
	if id == place.ID() {
		path = place.Transcript()
	}
	tr, _, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := tr.Append(agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock(fmt.Sprint("message ", i)))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

// The newest messages, the oldest first, and never more than 50.
func TestMessages(t *testing.T) {
	l := leave(t)
	for _, tt := range []struct{ n, limit, want int }{{0, 0, 0}, {49, 0, 49}, {50, 0, 50}, {51, 0, 50}, {120, 1000, 50}, {120, 3, 3}} {
		r := task.Record{ID: task.NewID(task.InProcessTeammate), Kind: task.InProcessTeammate}
		converse(t, l.place, r.ID, tt.n)
		got, err := Messages(l.place, r, tt.limit)
		if err != nil || len(got.List) != tt.want || got.Task.ID != r.ID {
			t.Errorf("%d messages, limit %d: %d, %v", tt.n, tt.limit, len(got.List), err)
			continue
		}
		for i, m := range got.List {
			if want := fmt.Sprint("message ", tt.n-tt.want+i); m.Role != "user" || len(m.Parts) != 1 || m.Parts[0].Text != want {
				t.Errorf("%d messages: number %d is %+v, want %s", tt.n, i, m, want)
			}
		}
	}
	if got, err := Messages(l.place, task.Record{ID: "t00000000", Kind: task.InProcessTeammate}, 0); err != nil || got.List == nil || len(got.List) != 0 {
		t.Errorf("of one that has not begun: %+v, %v", got, err)
	}
	converse(t, l.place, l.place.ID(), 2)
	a, err := Open(t.Context(), l.place, control.Info{Session: l.place.ID()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got, err := a.Messages(t.Context(), control.MessagesRequest{Ref: string(l.place.ID())}); err != nil || len(got.List) != 2 {
		t.Errorf("of the main agent: %+v, %v", got, err)
	}
	if _, err := a.Messages(t.Context(), control.MessagesRequest{Ref: "nobody"}); err == nil {
		t.Error("nobody has messages")
	}
	if err := l.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// Every sort of block is shown, long ones cut, and none whole that people cannot read.
func TestParts(t *testing.T) {
	long := strings.Repeat("ä", maxPart)
	for name, tt := range map[string]struct {
		block agent.Block
		want  control.Part
	}{
		"text":   {agent.TextBlock("x"), control.Part{Type: "text", Text: "x"}},
		"call":   {agent.Block{Type: "tool_use", Name: "Bash", Input: json.RawMessage(`{"a":1}`)}, control.Part{Type: "tool_use", Tool: "Bash", Text: `{"a":1}`}},
		"result": {agent.ToolResultBlock("t", "found", false), control.Part{Type: "tool_result", Text: "found"}},
		"blocks": {agent.Block{Type: "tool_result", Content: json.RawMessage(`[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]`)},
			control.Part{Type: "tool_result", Text: "a\nb"}},
		"odd":   {agent.Block{Type: "tool_result", Content: json.RawMessage(`7`)}, control.Part{Type: "tool_result", Text: "7"}},
		"image": {agent.Block{Type: "image", Source: json.RawMessage(`{"data":"AAAA"}`)}, control.Part{Type: "image"}},
		"long":  {agent.TextBlock(long), control.Part{Type: "text", Text: long[:maxPart], Cut: maxPart}},
	} {
		if got := part(tt.block); got != tt.want {
			t.Errorf("%s: %.200v", name, fmt.Sprintf("%+v", got))
		}
	}
}
