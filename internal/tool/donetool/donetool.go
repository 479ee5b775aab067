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
	"github.com/drover-dev/drover/internal/tool/strict"
)

// Name is the name of the tool.
const Name = "task_complete"

//go:embed done.md
var prompt string

const schema = `{"type":"object","properties":{"summary":{"type":"string","description":"What was done, and how it was checked"}},` +
	`"required":["summary"],"additionalProperties":false}`

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
	return &tool{cfg, agent.ToolSpec{Name: Name, Description: prompt, InputSchema: json.RawMessage(schema)}}
}

// Summary is the summary that a call gives, or why the tool refuses it.
func Summary(input json.RawMessage) (text string, err error) {
	in, err := strict.Decode[struct {
		Summary string `json:"summary" strict:"filled"`
	}](input)
	return strings.TrimSpace(in.Summary), err
}

type tool struct {
	cfg  Config
	spec agent.ToolSpec
}

func (t *tool) Spec() agent.ToolSpec { return t.spec }
func (t *tool) ReadOnly() bool       { return true }

func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	summary, err := Summary(c.Input)
	if err != nil {
		return agent.Refuse(Name + ": " + err.Error()), nil
	}
	if t.cfg.Veto != nil {
		if reason := t.cfg.Veto(ctx, c, summary); reason != "" {
			return agent.Refuse("The work does not count as complete: " + reason), nil
		}
	}
	return agent.Output{Text: "The work is complete.", Structured: Result{summary}, EndTurn: true}, nil
}
