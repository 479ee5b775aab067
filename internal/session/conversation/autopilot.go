package conversation

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/tool/usertools"
)

// AutopilotOrigin is the origin of a turn that a reminder of the autopilot has
// started.
const AutopilotOrigin = "autopilot"

// defaultReminders is how often the autopilot reminds for one prompt.
const defaultReminders = 5

// UnfinishedError means that the autopilot has given up.
type UnfinishedError struct{ Reminders int }

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("the work was not marked as complete after %d reminders (go on with --continue)", e.Reminders)
}

//go:embed autopilot.md
var autopilotReminder string

// Autopilot makes an agent continue until it calls task_complete. Nothing else that the agent
// writes counts as the end of the work. [State] decides when a reminder is due. A nil Autopilot
// does nothing.
type Autopilot struct {
	most int // reminders for one prompt
	stop func(ctx context.Context, res agent.TurnResult, blocked int) (reason string)

	mu      sync.Mutex // guards the fields below, of one turn
	held    []string   // calls that hooks refused
	summary string     // of the call that ended the work
	done    bool       // there was such a call
}

// NewAutopilot returns an autopilot with a number of reminders for one prompt; 0: 5. stop asks
// the hooks at the end of a turn whether the work may end.
func NewAutopilot(most int, stop func(context.Context, agent.TurnResult, int) string) *Autopilot {
	if most <= 0 {
		most = defaultReminders
	}
	return &Autopilot{most: most, stop: stop}
}

// Tool returns the tool that ends the work.
func (a *Autopilot) Tool() agent.Tool { return usertools.NewDone(a.veto) }

// reminders returns how often it reminds for one prompt, if it is on.
func (a *Autopilot) reminders(on bool) int {
	if a == nil || !on {
		return 0
	}
	return a.most
}

// begin starts a turn.
func (a *Autopilot) begin() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.summary, a.done = nil, "", false
}

// veto asks the hooks at the end of a turn whether the work may end.
func (a *Autopilot) veto(ctx context.Context, c agent.Call, summary string) string {
	a.mu.Lock()
	blocked := len(a.held)
	a.mu.Unlock()
	reason := a.stop(ctx, agent.TurnResult{Text: summary, Reason: usertools.DoneName}, blocked)
	if reason != "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.held = append(a.held, c.ID)
	}
	return reason
}

// takeIn handles a decided call of task_complete. A call that a hook refused, or that follows
// a call that has ended the turn, does not count.
func (a *Autopilot) takeIn(e agent.Event) (control.Completion, bool) {
	if a == nil || e.Kind != agent.ToolDoneEvent || !strings.EqualFold(e.Call.Name, usertools.DoneName) {
		return control.Completion{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done || slices.Contains(a.held, e.Call.ID) {
		return control.Completion{}, false
	}
	c := control.Completion{Success: !e.Output.IsError}
	c.Summary, _ = usertools.Summary(e.Call.Input)
	if c.Success {
		a.done, a.summary = true, c.Summary
	}
	return c, true
}

// answered uses the summary as the answer if the agent has given none.
func (a *Autopilot) answered(res agent.TurnResult) agent.TurnResult {
	if a == nil {
		return res
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.TrimSpace(res.Text) == "" {
		res.Text = a.summary
	}
	return res
}

// failure classifies how a turn ended.
func failure(ctx context.Context, err error) Failure {
	switch {
	case err == nil:
		return NoFailure
	case errors.Is(context.Cause(ctx), ErrInterrupted):
		return Interruption
	case ModelFailed(err) && ctx.Err() == nil && passing(err):
		return PassingFailure
	case ModelFailed(err):
		return ModelFailure
	}
	return OtherFailure
}

// ModelFailed reports whether a turn ended because the model could not be called, or gave no
// complete answer: tasks that it has started may still complete.
func ModelFailed(err error) bool {
	var failed *agent.ModelError
	var cut *agent.CutError
	var stopped *agent.StopError
	return errors.As(err, &failed) || errors.As(err, &cut) || errors.As(err, &stopped)
}

// passing reports whether an error of the model may be temporary.
func passing(err error) bool {
	var fault *agent.ModelError
	var cut *agent.CutError
	var stopped *agent.StopError
	switch {
	case errors.As(err, &cut):
		return true
	case errors.As(err, &stopped):
		return stopped.Reason != "refusal"
	case !errors.As(err, &fault):
		return false
	}
	switch fault.Kind {
	case "rate_limit", "overloaded", "server_error", "bad_answer", "unreachable", "cut", "idle":
		return true
	}
	return fault.Status == 408 || fault.Status == 429 || fault.Status >= 500
}
