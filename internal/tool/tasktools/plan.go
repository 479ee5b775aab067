package tasktools

import (
	"context"
	_ "embed"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

//go:embed submitplan.md
var submitPlanPrompt string

//go:embed exitplanmode.md
var exitPlanModePrompt string

type planInput struct {
	Plan string `json:"plan" jsonschema:"What you would do, as your leader reads it" input:"filled"`
}

type exitInput struct {
	Plan string `json:"plan" jsonschema:"What you would do, in Markdown, as the person reads it" input:"filled"`
}

// MaxPlanBytes is the length of the longest plan: it goes as a message.
const MaxPlanBytes = task.MaxMessageBytes - 4<<10

// Planner handles plans for submit_plan and ExitPlanMode. Its errors are as in [Tasks].
type Planner interface {
	// Propose hands the plan of a call to who leads the agent. It returns when that is
	// durable, or where a person leads when that person has answered.
	Propose(ctx context.Context, call agent.Call, plan string) (Proposed, error)
}

// Proposed is what became of a plan.
type Proposed struct {
	ID       string `json:"request_id,omitempty"`
	Decided  bool   `json:"decided"` // the answer is here; else it comes as mail
	Approved bool   `json:"approved"`
	Reason   string `json:"reason,omitempty"`       // of the answer
	Edits    bool   `json:"accept_edits,omitempty"` // edits are accepted from here on
	Plan     string `json:"plan,omitempty"`         // that the person approved instead; empty: as it was proposed
}

// PlanAnswer is the answer of a leader to a plan.
type PlanAnswer struct {
	RequestID string `json:"request_id" jsonschema:"request_id of the plan" input:"filled"`
	Approve   bool   `json:"approve" jsonschema:"Whether it may carry the plan out"`
	Feedback  string `json:"feedback,omitempty" jsonschema:"What to observe or to change"`
}

// NewSubmitPlan makes the tool submit_plan of a teammate, which keeps no state.
func NewSubmitPlan(p Planner) agent.Tool {
	return toolkit.New(toolkit.Tool[planInput]{
		Name: task.SubmitPlan, Description: submitPlanPrompt, Aliases: []string{task.ExitPlanMode, "exit_plan_mode"},
		ReadOnly: true, // it is called where nothing may be changed
		Call: func(ctx context.Context, call agent.Call, in planInput) (agent.Output, error) {
			return propose(ctx, p, call, in.Plan)
		},
	})
}

// NewExitPlanMode makes the tool ExitPlanMode of the main agent, which keeps no state.
func NewExitPlanMode(p Planner) agent.Tool {
	return toolkit.New(toolkit.Tool[exitInput]{
		Name: task.ExitPlanMode, Description: exitPlanModePrompt, Aliases: []string{"exit_plan_mode"},
		ReadOnly: true,
		Call: func(ctx context.Context, call agent.Call, in exitInput) (agent.Output, error) {
			return propose(ctx, p, call, in.Plan)
		},
	})
}

func propose(ctx context.Context, p Planner, call agent.Call, plan string) (agent.Output, error) {
	if len(plan) > MaxPlanBytes {
		return agent.Output{}, toolkit.Refusef(`field "plan" is longer than %d KiB: write what matters`, MaxPlanBytes>>10)
	}
	proposed, err := p.Propose(ctx, call, plan)
	if err != nil {
		return failed("submit plan", "", err)
	}
	return proposed.output(), nil
}

func (p Proposed) output() agent.Output {
	out := agent.Output{Structured: p}
	switch {
	case !p.Decided:
		out.Text = "Plan " + p.ID + " was submitted. Your turn is over; the answer wakes you."
		out.EndTurn = true
	case p.Approved:
		out.Text = "The plan is approved: carry it out." + reason(p.Reason)
		if p.Plan != "" {
			out.Text += "\n\nThe person changed the plan. Carry out this one:\n" + excerpt.Plain(p.Plan)
		}
	default:
		out.Text, out.IsError = "The plan is not approved: you stay in plan mode."+reason(p.Reason), true
	}
	return out
}

func reason(text string) string {
	if text = excerpt.Plain(text); text == "" {
		return ""
	}
	return "\n" + text
}
