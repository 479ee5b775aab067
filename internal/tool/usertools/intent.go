package usertools

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
var intentPrompt string

type intentInput struct {
	Intent string `json:"intent" jsonschema:"What you are about to do, in about four words" input:"filled"`
}

// Intent is the structured result of report_intent.
type Intent struct {
	Intent string `json:"intent"` // one line
}

// NewIntent makes the tool report_intent.
func NewIntent() agent.Tool {
	return toolkit.New(toolkit.Tool[intentInput]{
		Name: "report_intent", Description: intentPrompt, Parallel: true, ReadOnly: true,
		Call: func(_ context.Context, _ agent.Call, in intentInput) (agent.Output, error) {
			return agent.Output{Text: "Noted.", Structured: Intent{excerpt.Line(in.Intent, MaxIntent)}}, nil
		},
	})
}
