// Package boardtool is the tool context_board, with which an agent that maintains
// memory lists, adds and prunes notes of the project's board.
//
// It owns the texts for the model. Package memory stores the board. The caller
// decides which agents have the tool.
package boardtool

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Name is the name of the tool.
const Name = "context_board"

//go:embed board.md
var text string

type input struct {
	Action string   `json:"action" jsonschema:"What to do" input:"enum=list|add|prune"`
	Text   string   `json:"text,omitempty" jsonschema:"add: the note, at most 2000 bytes"`
	Tags   []string `json:"tags,omitempty" jsonschema:"add: up to 8 short tags"`
	IDs    []string `json:"ids,omitempty" jsonschema:"prune: the IDs of the notes to remove"`
}

// New makes the tool of one agent. It keeps no state. by is who writes, as people are shown
// it. Only the end of the turn is an error: what the model did wrong, and what the board
// refused, is a result.
func New(store *memory.Store, by string) agent.Tool {
	return toolkit.New(toolkit.Tool[input]{
		Name: Name, Description: strings.TrimSpace(text),
		Call: func(ctx context.Context, _ agent.Call, in input) (agent.Output, error) {
			if err := in.check(); err != nil {
				return agent.Output{}, toolkit.Refuse(err)
			}
			out, err := in.act(ctx, store, by)
			if err != nil {
				return agent.Output{}, toolkit.RefuseIn(ctx, err)
			}
			return out, nil
		},
	})
}

// Result is the structured result: the notes that were listed, added or taken off.
type Result struct {
	Entries []memory.Entry `json:"entries"`
}

// check refuses fields that the action does not have.
func (in input) check() error {
	wrong := func(field string) error {
		return fmt.Errorf("field %q does not go with action %q", field, in.Action)
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

func (in input) act(ctx context.Context, store *memory.Store, by string) (agent.Output, error) {
	switch in.Action {
	case "add":
		e, err := store.Add(ctx, by, in.Text, in.Tags...)
		return agent.Output{Text: "Added as " + e.ID + ".", Structured: Result{[]memory.Entry{e}}}, err
	case "prune":
		gone, err := store.Prune(ctx, in.IDs...)
		return agent.Output{Text: fmt.Sprintf("Taken off: %s.", strings.Join(in.IDs, ", ")), Structured: Result{gone}}, err
	}
	b, err := store.Board()
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
