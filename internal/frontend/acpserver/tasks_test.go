package acpserver

import (
	"context"
	"slices"
	"testing"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// ended is a session whose task has ended, and whose log has not yet shown it.
type ended struct {
	control.API
	rec task.Record
}

// named is a session by its ID alone.
type named struct{ Session }

func (named) ID() task.ID { return "s00000001" }

func (e ended) Get(context.Context, string) (task.Record, error) { return e.rec, nil }

func (e ended) Output(context.Context, control.OutputRequest) (control.Chunk, error) {
	return control.Chunk{Ended: true}, nil
}

// An agent reads of an end and speaks of it. The client sees the end first, however late the
// log shows it, and once.
func TestCaughtUp(t *testing.T) {
	code := 3
	running := task.Record{ID: "b00000001", Kind: task.LocalBash, Status: task.Running, ToolUseID: "call", Depth: 1, Backgrounded: true}
	over := running
	over.Status, over.ExitCode = task.Failed, &code
	var seen []string
	s := &session{open: named{}, api: ended{rec: over}, ctx: t.Context()}
	s.view = newView("/", func(u acp.SessionUpdate) {
		switch {
		case u.ToolCallUpdate != nil:
			seen = append(seen, string(*u.ToolCallUpdate.Status))
		case u.AgentMessageChunk != nil:
			seen = append(seen, u.AgentMessageChunk.Content.Text.Text)
		}
	})
	s.task(running)
	s.on("s00000001", agent.Event{Kind: agent.MailEvent})
	s.view.say("noted")
	s.task(over)
	if want := []string{"failed", "noted"}; !slices.Equal(seen, want) {
		t.Errorf("the client saw %q, want %q", seen, want)
	}
}
