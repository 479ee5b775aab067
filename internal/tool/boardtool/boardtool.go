// Package boardtool is the tool context_board, by which an agent that looks after
// memory reads, adds to and prunes the board of the project.
//
// It owns the words for the model; what a board can hold and how it is kept is
// known to package memory. Which agents have the tool is decided outside.
package boardtool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/memory"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
)

// Name is the name of the tool.
const Name = "context_board"

//go:embed board.md
var text string

const schema = `{"type":"object","properties":{` +
	`"action":{"type":"string","enum":["list","add","prune"],"description":"What to do"},` +
	`"text":{"type":"string","description":"add: the note, at most 2000 bytes"},` +
	`"tags":{"type":"array","items":{"type":"string"},"description":"add: up to 8 short words to find it by"},` +
	`"ids":{"type":"array","items":{"type":"string"},"description":"prune: the IDs of the notes to take off"}` +
	`},"required":["action"],"additionalProperties":false}`

// Config is what the tool needs. Store is required.
type Config struct {
	Store *memory.Store
	By    string // who writes, as people are shown it
}

// New makes the tool of one agent. It keeps no state.
func New(c Config) agent.Tool {
	return &tool{c, agent.ToolSpec{Name: Name, Description: strings.TrimSpace(text), InputSchema: json.RawMessage(schema)}}
}

// Result is the structured result: the notes that were listed, added or taken off.
type Result struct {
	Entries []memory.Entry `json:"entries"`
}

type tool struct {
	cfg  Config
	spec agent.ToolSpec
}

func (t *tool) Spec() agent.ToolSpec { return t.spec }

type input struct {
	Action string   `json:"action" strict:"filled"`
	Text   string   `json:"text"`
	Tags   []string `json:"tags"`
	IDs    []string `json:"ids"`
}

// check refuses fields that the action does not have.
func (in input) check() error {
	wrong := func(field string) error {
		return fmt.Errorf("field %q does not go with action %q", field, in.Action)
	}
	switch in.Action {
	case "list", "add", "prune":
	default:
		return fmt.Errorf("field \"action\" must be list, add or prune, not %.40q", in.Action)
	}
	switch {
	case in.Action != "add" && in.Text != "":
		return wrong("text")
	case in.Action != "add" && len(in.Tags) > 0:
		return wrong("tags")
	case in.Action != "prune" && len(in.IDs) > 0:
		return wrong("ids")
	case in.Action == "prune" && len(in.IDs) == 0:
		return fmt.Errorf("field %q is missing: name the notes to take off", "ids")
	}
	return nil
}

// Call answers what the model did wrong, and what the board refused, with a
// result. Only the end of the turn is an error.
func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[input](c.Input)
	if err == nil {
		err = in.check()
	}
	var out agent.Output
	if err == nil {
		out, err = t.act(ctx, in)
	}
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	}
	return agent.Refuse(Name + ": " + excerpt.Line(err.Error(), 1000)), nil
}

func (t *tool) act(ctx context.Context, in input) (agent.Output, error) {
	switch in.Action {
	case "add":
		e, err := t.cfg.Store.Add(ctx, t.cfg.By, in.Text, in.Tags...)
		return agent.Output{Text: "Added as " + e.ID + ".", Structured: Result{[]memory.Entry{e}}}, err
	case "prune":
		gone, err := t.cfg.Store.Prune(ctx, in.IDs...)
		return agent.Output{Text: fmt.Sprintf("Taken off: %s.", strings.Join(in.IDs, ", ")), Structured: Result{gone}}, err
	}
	b, err := t.cfg.Store.Board()
	return agent.Output{Text: render(b), Structured: Result{append([]memory.Entry{}, b.Entries...)}}, err
}

// render is the whole board, which is bounded, newest first.
func render(b memory.Board) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d of %d notes, %d of %d bytes", len(b.Entries), memory.MaxEntries, b.Bytes, memory.MaxBoard)
	for i := len(b.Entries) - 1; i >= 0; i-- {
		e := b.Entries[i]
		fmt.Fprintf(&out, "\n%s: %s", excerpt.Line(e.ID, 40), e.Line())
	}
	for _, p := range b.Problems {
		out.WriteString("\n(" + p + ")")
	}
	return out.String()
}
