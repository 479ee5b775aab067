package usertools

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// DoneName is the name of the tool task_complete.
const DoneName = "task_complete"

//go:embed done.md
var donePrompt string

type doneInput struct {
	Summary string `json:"summary" jsonschema:"What was done, and how it was checked" input:"filled"`
}

// Veto is asked before a call of task_complete counts. A reason that is not empty
// holds it back, and the model sees it.
type Veto func(ctx context.Context, c agent.Call, summary string) (reason string)

// Done is the structured result of task_complete.
type Done struct {
	Summary string `json:"summary"`
}

// NewDone makes the tool task_complete, a call of which ends the turn. A nil veto
// allows every end.
func NewDone(veto Veto) agent.Tool {
	return toolkit.New(toolkit.Tool[doneInput]{Name: DoneName, Description: donePrompt, ReadOnly: true,
		Call: veto.complete})
}

// Summary is the summary that a call of task_complete gives, or why the tool refuses it.
func Summary(raw json.RawMessage) (text string, err error) {
	in, err := toolkit.Decode[doneInput](raw)
	return strings.TrimSpace(in.Summary), err
}

func (veto Veto) complete(ctx context.Context, c agent.Call, in doneInput) (agent.Output, error) {
	summary := strings.TrimSpace(in.Summary)
	if veto != nil {
		if reason := veto(ctx, c, summary); reason != "" {
			return agent.Refuse("The work does not count as complete: " + reason), nil
		}
	}
	return agent.Output{Text: "The work is complete.", Structured: Done{summary}, EndTurn: true}, nil
}

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
