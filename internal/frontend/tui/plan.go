package tui

import (
	"encoding/json"

	"github.com/drover-dev/drover/internal/frontend/tui/markdown"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/task"
)

// plan is a plan that is to be approved.
type plan struct {
	text   string // with every character visible
	source bool   // it is shown as it was written

	lines    []string // as Markdown
	width    int      // of lines
	complete bool     // lines show all of the text
}

// newPlan reads the plan of a question; nil: it asks for something else, or there is more in
// its input than a plan.
func newPlan(q task.Question) *plan {
	if !q.IsPlan() || q.Hidden > 0 {
		return nil
	}
	var text string
	all, err := jsonc.Members(q.Input)
	if err != nil || len(all) != 1 || all[0].Key != "plan" || json.Unmarshal(all[0].Value, &text) != nil {
		return nil
	}
	return &plan{text: excerpt.Exact(text)}
}

// view returns the lines of the plan: as Markdown, unless that would hide a part of it.
func (p *plan) view(t theme.Theme, width int) []string {
	if p.width != width {
		p.lines, p.width = markdown.Render(t, printable.Tabs(p.text), width), width
		p.complete = markdown.Complete(p.text, p.lines)
	}
	if p.source || !p.complete {
		return nil
	}
	return p.lines
}

// planChoices are the answers to a plan. own says that the agent of the conversation proposes it,
// whose permission mode can be changed.
func planChoices(own bool) []choice {
	all := []choice{{"Approve", "the agent carries it out", allowOnce}}
	if own {
		all = append(all, choice{"Approve, and accept edits", "permission mode acceptEdits", allowEdits})
	}
	return append(all, choice{"Keep planning", "and tell the agent why", deny})
}
