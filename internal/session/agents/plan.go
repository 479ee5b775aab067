package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// mainPlanner is the main agent, whose plans a person approves.
type mainPlanner struct{ *Environment }

var _ tasktools.Planner = mainPlanner{}

// Propose implements [tasktools.Planner]. An approved plan ends plan mode.
func (p mainPlanner) Propose(ctx context.Context, call agent.Call, plan string) (tasktools.Proposed, error) {
	switch {
	case p.Me.Mode() != policy.Plan:
		return tasktools.Proposed{}, &toolkit.Refusal{Text: "you are not in plan mode: no approval is needed"}
	case p.s.cfg.AskWait <= 0:
		return tasktools.Proposed{}, &toolkit.Refusal{
			Text: "nobody is here who could approve a plan: give the plan in your answer, and end your turn",
		}
	}
	proposed, err := p.askPerson(ctx, task.ExitPlanMode, call.ID, MainName, plan)
	if err != nil || !proposed.Approved {
		return proposed, err
	}
	if err := p.endPlanMode(proposed.Edits); err != nil {
		return tasktools.Proposed{}, fmt.Errorf("end plan mode: %w", err)
	}
	return proposed, nil
}

// askPerson asks the user to approve a plan of the named agent, which has called the tool.
func (k *Environment) askPerson(ctx context.Context, tool, call, name, plan string) (tasktools.Proposed, error) {
	input, err := json.Marshal(map[string]string{"plan": plan})
	if err != nil {
		return tasktools.Proposed{}, err
	}
	reply, err := k.ask(ctx, task.Question{
		Kind:      task.Permission,
		Tool:      tool,
		ToolUseID: call,
		Input:     input,
		Reason:    fmt.Sprintf("%s wants to carry out a plan", name),
	})
	if err != nil {
		return tasktools.Proposed{}, fmt.Errorf("ask for approval of a plan: %w", err)
	}
	proposed := tasktools.Proposed{Decided: true, Approved: reply.Allow, Reason: reply.Reason, Edits: reply.AcceptEdits}
	var changed struct {
		Plan string `json:"plan"`
	}
	if len(reply.Input) > 0 {
		if err := json.Unmarshal(reply.Input, &changed); err != nil || changed.Plan == "" {
			return tasktools.Proposed{Decided: true, Reason: `The answer has no text in "plan".`}, nil
		}
	}
	if changed.Plan != plan {
		proposed.Plan = changed.Plan
	}
	return proposed, nil
}

// endPlanMode gives the main agent the mode in which edits are accepted, or the mode again that
// plan mode has replaced. The latter keeps a mode that the user has chosen meanwhile.
func (k *Environment) endPlanMode(edits bool) error {
	l := k.Me.live
	l.changing.Lock()
	defer l.changing.Unlock()
	model, mode, _ := l.get()
	if edits || mode == policy.Plan {
		if mode = l.replaced(); edits {
			mode = policy.AcceptEdits
		}
		gate, err := k.newGate(mode)
		if err != nil {
			return err
		}
		l.change(model, mode, gate)
		if k.s.mainAgent() == k { // else its turn was moved to the background
			k.s.idle.ModeChanged(string(mode))
		}
	}
	for _, it := range k.planEnded() {
		k.reminders.Know(planEndList, it.Key) // the result of the call tells it
	}
	return nil
}

// replaced is the mode that plan mode has replaced.
func (l *live) replaced() policy.Mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.before, policy.Default)
}

// planning reports whether the main agent is in plan mode, and how often it has been changed
// to that mode.
func (l *live) planning() (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode == policy.Plan, l.plans
}

// remindOfPlanMode tells the main agent when plan mode begins and when it ends.
func (k *Environment) remindOfPlanMode(tools []string) {
	if k.Me.live == nil {
		return
	}
	next := "give your plan in your answer, and end your turn"
	if k.s.cfg.AskWait > 0 && slices.Contains(tools, task.ExitPlanMode) {
		next = "give your plan with " + task.ExitPlanMode + ", which asks the person for approval"
	}
	k.reminders.Add(environment.List{Name: planList, Head: "Plan mode is on.", Items: func() []environment.Item {
		on, n := k.Me.live.planning()
		if !on {
			return nil
		}
		return []environment.Item{{Key: strconv.Itoa(n), Line: "You may read and search; whatever changes something is " +
			"denied. Explore first, then " + next + "."}}
	}})
	k.reminders.Add(environment.List{Name: planEndList, Head: "Plan mode is off.", Volatile: true, Items: k.planEnded})
}

// planEnded is what the main agent reads when the user has ended plan mode.
func (k *Environment) planEnded() []environment.Item {
	on, n := k.Me.live.planning()
	if on || n == 0 {
		return nil
	}
	return []environment.Item{{Key: strconv.Itoa(n), Line: "The user has changed the permission mode: you may make changes."}}
}
