package tasktools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
	"github.com/drover-dev/drover/task"
)

//go:embed submitplan.md
var planPrompt string

const planSchema = `{"type":"object","properties":{` +
	`"plan":{"type":"string","description":"What you would do, as your leader reads it"}` +
	`},"required":["plan"],"additionalProperties":false}`

// MaxPlanBytes is the length of the longest plan: it goes as a message.
const MaxPlanBytes = task.MaxMessageBytes - 4<<10

// Planner is what submit_plan needs. Its errors are as those of [Tasks].
type Planner interface {
	// Propose hands a plan to who leads the agent. It returns when that is durable,
	// or where a person leads when that person has answered.
	Propose(ctx context.Context, plan string) (Proposed, error)
}

// Proposed is what became of a plan.
type Proposed struct {
	ID       string // of the request
	Decided  bool   // the answer is here; else it comes as mail
	Approved bool
	Reason   string // of the answer
}

// PlanAnswer is what a leader says to a plan.
type PlanAnswer struct {
	RequestID string `json:"request_id" strict:"filled"`
	Approve   bool   `json:"approve" strict:"required"`
	Feedback  string `json:"feedback"`
}

// NewPlan makes the tool submit_plan, which keeps no state.
func NewPlan(p Planner) agent.Tool {
	return &planTool{to: p, spec: agent.ToolSpec{Name: "submit_plan", Description: planPrompt, InputSchema: json.RawMessage(planSchema)}}
}

type planTool struct {
	to   Planner
	spec agent.ToolSpec
}

func (t *planTool) Spec() agent.ToolSpec { return t.spec }

// ReadOnly lets it be called where nothing may be changed.
func (t *planTool) ReadOnly() bool { return true }

// Aliases are the names of the same tool in other dialects.
func (t *planTool) Aliases() []string { return []string{"ExitPlanMode", "exit_plan_mode"} }

func (t *planTool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[struct {
		Plan string `json:"plan" strict:"filled"`
	}](c.Input)
	if err == nil && len(in.Plan) > MaxPlanBytes {
		err = fmt.Errorf(`field "plan" is longer than %d KiB: write what matters`, MaxPlanBytes>>10)
	}
	if err != nil {
		return agent.Refuse("submit_plan: " + err.Error()), nil
	}
	p, err := t.to.Propose(ctx, in.Plan)
	switch {
	case err != nil:
		return outcome("submit plan", "", err)
	case !p.Decided:
		return agent.Output{Text: fmt.Sprintf("Plan %s was submitted. Your turn is over; the answer wakes you.", p.ID), EndTurn: true, Structured: p}, nil
	case p.Approved:
		return agent.Output{Text: "The plan is approved: carry it out." + reason(p.Reason), Structured: p}, nil
	}
	return agent.Output{Text: "The plan is not approved: you stay in plan mode." + reason(p.Reason), IsError: true, Structured: p}, nil
}

func reason(text string) string {
	if text = excerpt.Plain(text); text == "" {
		return ""
	}
	return "\n" + text
}
