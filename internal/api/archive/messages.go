package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// maxPart is the shown length of one part of a message, in bytes.
const maxPart = 16 << 10

// Messages returns the newest messages of an agent.
func (a *Archive) Messages(ctx context.Context, req control.MessagesRequest) (control.Messages, error) {
	if req.Ref == string(a.place.ID()) {
		return Messages(a.place, task.Record{ID: a.place.ID(), Session: a.place.ID(), Kind: task.MainKind}, req.Limit)
	}
	r, err := a.Get(ctx, req.Ref)
	if err != nil {
		return control.Messages{}, err
	}
	return Messages(a.place, r, req.Limit)
}

// Messages reads the end of the transcript of an agent, and only as much of it as needed. A
// task that has not begun has none.
func Messages(place home.Session, r task.Record, limit int) (control.Messages, error) {
	out := control.Messages{Task: r, List: []control.Message{}}
	if !r.Kind.IsAgent() {
		return out, control.Refuse(control.Conflict, fmt.Sprintf("task %s is a %s, which has no messages", r.ID, r.Kind),
			fmt.Sprintf("see `drover logs %s`", r.ID))
	}
	if limit <= 0 || limit > control.MaxMessages {
		limit = control.MaxMessages
	}
	path := place.AgentTranscript(r.ID)
	if r.ID == place.ID() {
		path = place.Transcript()
	}
	records, err := agent.Tail(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for _, rec := range records {
		blocks, err := rec.Message.Blocks()
		if err != nil {
			continue // unreadable lines are skipped, as in a resume
		}
		m := control.Message{Role: string(rec.Message.Role()), At: rec.At.UTC(), Parts: make([]control.Part, len(blocks))}
		for i, b := range blocks {
			m.Parts[i] = part(b)
		}
		out.List = append(out.List, m)
	}
	return out, nil
}

// ResultText returns the text of a tool result: a text, or blocks some of which are text.
func ResultText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []agent.Block
	if json.Unmarshal(content, &blocks) != nil {
		return string(content)
	}
	var texts []string
	for _, b := range blocks {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func part(b agent.Block) control.Part {
	p := control.Part{Type: b.Type, Text: b.Text}
	switch b.Type {
	case "tool_use":
		p.Tool, p.Text = b.Name, string(b.Input)
	case "tool_result":
		p.Text = ResultText(b.Content)
		if b.IsError {
			p.Error = Why(p.Text)
		}
	case "thinking":
		p.Text = b.Thinking
	}
	if n := len(p.Text); n > maxPart {
		p.Text = strings.ToValidUTF8(p.Text[:maxPart], "")
		p.Cut = n - len(p.Text)
	}
	return p
}

// Why is the reason in the result of a call that was denied or failed: its last paragraph,
// as of a command, or the first line of its only one.
func Why(text string) string {
	const most = 400 // bytes
	text = strings.TrimSpace(text)
	if at := strings.LastIndex(text, "\n\n"); at >= 0 {
		text = strings.TrimSpace(text[at:])
	} else {
		text, _, _ = strings.Cut(text, "\n")
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return cmp.Or(text, "it failed without a reason")
}
