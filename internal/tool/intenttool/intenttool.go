// Package intenttool is the tool report_intent, by which a model tells the user
// what it is about to do.
//
// It owns the words only: who shows the intent reads it from the input of the
// call.
package intenttool

import (
	"context"
	_ "embed"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// MaxIntent is how many code points of an intent are kept.
const MaxIntent = 100

//go:embed intent.md
var prompt string

type input struct {
	Intent string `json:"intent" jsonschema:"What you are about to do, in about four words" input:"filled"`
}

// Result is the structured result.
type Result struct {
	Intent string `json:"intent"` // one line
}

// New makes the tool report_intent.
func New() agent.Tool {
	return toolkit.New(toolkit.Tool[input]{
		Name: "report_intent", Description: prompt, Parallel: true, ReadOnly: true,
		Call: func(_ context.Context, _ agent.Call, in input) (agent.Output, error) {
			return agent.Output{Text: "Noted.", Structured: Result{excerpt.Line(in.Intent, MaxIntent)}}, nil
		},
	})
}
