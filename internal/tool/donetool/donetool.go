// Package donetool is the tool task_complete, by which a main agent that nobody
// watches says that all of its work is done.
//
// It owns the words only: it believes the model, and a call that was read ends
// the turn. Who counts the call, and who may hold it back, is told from outside.
package donetool

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Name is the name of the tool.
const Name = "task_complete"

//go:embed done.md
var prompt string

type input struct {
	Summary string `json:"summary" jsonschema:"What was done, and how it was checked" input:"filled"`
}

// Config is what the tool is made of.
type Config struct {
	// Veto is asked before the call counts. A reason that is not empty holds it
	// back, and is told to the model. nil: nobody is asked.
	Veto func(ctx context.Context, c agent.Call, summary string) (reason string)
}

// Result is the structured result.
type Result struct {
	Summary string `json:"summary"`
}

// New makes the tool task_complete.
func New(cfg Config) agent.Tool {
	return toolkit.New(toolkit.Tool[input]{Name: Name, Description: prompt, ReadOnly: true, Call: cfg.complete})
}

// Summary is the summary that a call gives, or why the tool refuses it.
func Summary(raw json.RawMessage) (text string, err error) {
	in, err := toolkit.Decode[input](raw)
	return strings.TrimSpace(in.Summary), err
}

func (cfg Config) complete(ctx context.Context, c agent.Call, in input) (agent.Output, error) {
	summary := strings.TrimSpace(in.Summary)
	if cfg.Veto != nil {
		if reason := cfg.Veto(ctx, c, summary); reason != "" {
			return agent.Refuse("The work does not count as complete: " + reason), nil
		}
	}
	return agent.Output{Text: "The work is complete.", Structured: Result{summary}, EndTurn: true}, nil
}
