// Package intenttool is the tool report_intent, by which a model tells the user
// what it is about to do.
//
// It owns the words only: who shows the intent reads it from the input of the
// call.
package intenttool

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
)

// MaxIntent is how many code points of an intent are kept.
const MaxIntent = 100

//go:embed intent.md
var prompt string

const schema = `{"type":"object","properties":{"intent":{"type":"string","description":"What you are about to do, in about four words"}},` +
	`"required":["intent"],"additionalProperties":false}`

// Result is the structured result.
type Result struct {
	Intent string `json:"intent"` // one line
}

// New makes the tool report_intent.
func New() agent.Tool {
	return &tool{agent.ToolSpec{Name: "report_intent", Description: prompt, InputSchema: json.RawMessage(schema)}}
}

type tool struct{ spec agent.ToolSpec }

func (t *tool) Spec() agent.ToolSpec { return t.spec }
func (t *tool) Parallel() bool       { return true }
func (t *tool) ReadOnly() bool       { return true }

func (t *tool) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[struct {
		Intent string `json:"intent" strict:"filled"`
	}](c.Input)
	if err != nil {
		return agent.Refuse("report_intent: " + err.Error()), nil
	}
	return agent.Output{Text: "Noted.", Structured: Result{excerpt.Line(in.Intent, MaxIntent)}}, nil
}
