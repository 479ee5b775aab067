package session

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
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/donetool"
)

// AutopilotOrigin is the origin of a turn that a reminder of the autopilot has
// started.
const AutopilotOrigin = "autopilot"

// defaultReminders is how often the autopilot reminds for one prompt.
const defaultReminders = 5

// UnfinishedError says that the autopilot has given up.
type UnfinishedError struct{ Reminders int }

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("the work was not marked as complete after %d reminders (go on with --continue)", e.Reminders)
}

//go:embed autopilot.md
var autopilotReminder string

// autopilot drives a main agent on until it calls task_complete. What the agent
// says otherwise, and that it has nothing more to do, is never taken for the end
// of the work. A nil autopilot drives nobody.
type autopilot struct {
	most int // reminders for one prompt
	stop func(ctx context.Context, res agent.TurnResult, blocked int) (reason string)

	mu      sync.Mutex // guards what follows
	active  bool       // there is work that is not marked as complete
	sent    int        // reminders
	held    []string   // calls that hooks held back, in this turn
	summary string     // of the call that ended this turn
	over    bool       // such a call was told
}

// autopilot gives the main agent the tool that ends its work.
func (k *kit) autopilot(most int) (*autopilot, error) {
	if most <= 0 {
		most = defaultReminders
	}
	a := &autopilot{most: most, stop: k.hooks.Stop}
	k.cfg.Tools = append(slices.Clone(k.cfg.Tools), donetool.New(donetool.Config{Veto: a.veto}))
	return a, k.rules(k.cfg.Tools)
}

// begin says that a turn begins, with a prompt of the user or without.
func (a *autopilot) begin(asked bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if asked {
		a.active, a.sent = true, 0
	}
	a.held, a.summary, a.over = nil, "", false
}

// due reports whether the agent is to be reminded as soon as it has nothing else
// to do.
func (a *autopilot) due() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active && a.sent < a.most
}

// remind is the next reminder.
func (a *autopilot) remind() []agent.Block {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	return []agent.Block{agent.TextBlock(environment.Reminder(strings.TrimSpace(autopilotReminder)))}
}

// unfinished is why the work stopped, if reminders were of no use.
func (a *autopilot) unfinished() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.active {
		return nil
	}
	return &UnfinishedError{a.sent}
}

// survives takes in how a turn failed, and reports whether the work goes on: only
// after a failure of the model that another try may mend.
func (a *autopilot) survives(ctx context.Context, err error) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active = a.active && a.sent < a.most && ctx.Err() == nil && passing(err)
	return a.active
}

// passing reports whether an error of the model may go by itself.
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
	return fault.Status == 408 || fault.Status == 429 || fault.Status >= 500 ||
		slices.Contains([]string{"rate_limit", "overloaded", "server_error", "bad_answer", "unreachable", "cut", "idle"}, fault.Kind)
}

// abort says that the user broke the work off.
func (a *autopilot) abort() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active = false
}

// veto asks the hooks at the end of a turn whether the work may end.
func (a *autopilot) veto(ctx context.Context, c agent.Call, summary string) string {
	a.mu.Lock()
	blocked := len(a.held)
	a.mu.Unlock()
	reason := a.stop(ctx, agent.TurnResult{Text: summary, Reason: donetool.Name}, blocked)
	if reason != "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.held = append(a.held, c.ID)
	}
	return reason
}

// takeIn looks for a call of task_complete that has been decided. One that a
// hook held back is none, nor is one behind another that has ended the turn.
func (a *autopilot) takeIn(e agent.Event) (control.Completion, bool) {
	if a == nil || e.Kind != agent.ToolDoneEvent || !strings.EqualFold(e.Call.Name, donetool.Name) {
		return control.Completion{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || slices.Contains(a.held, e.Call.ID) {
		return control.Completion{}, false
	}
	c := control.Completion{Success: !e.Output.IsError}
	c.Summary, _ = donetool.Summary(e.Call.Input)
	if c.Success {
		a.active, a.over, a.summary = false, true, c.Summary
	}
	return c, true
}

// ended takes in how a turn ended that did not fail. The summary takes the place
// of an answer that the agent has not given. A hook that ended the turn has ended
// the work.
func (a *autopilot) ended(res agent.TurnResult) agent.TurnResult {
	if a == nil {
		return res
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over && (res.Reason == "tool_end" || res.Reason == "gate_end") {
		a.active = false
	}
	if strings.TrimSpace(res.Text) == "" {
		res.Text = a.summary
	}
	return res
}

// on is what the main agent's conversation tells, in the order in which others
// hear of it: a call that completes the work is told of as a call first.
func (m *Main) on(e agent.Event, next func(agent.Event)) {
	if e.Kind == agent.TurnDoneEvent && e.Result != nil && e.Err == nil {
		res := m.auto.ended(*e.Result)
		e.Result = &res
	}
	if w := m.listen.Load(); w != nil {
		w.On(e)
	}
	if next != nil {
		next(e)
	}
	m.s.feed.take(e)
	if c, ok := m.auto.takeIn(e); ok {
		m.s.pulse.complete(c)
	}
}

// alone reports whether no agent is at work whose end would start a turn.
func (m *Main) alone() bool {
	working, _ := m.s.atWork()
	return working == 0
}

// more returns channels that are closed when a reminder that is due may have
// become possible; of an end the log tells a moment before the record does.
func (m *Main) more() (ended, grown <-chan struct{}) {
	if !m.auto.due() {
		return nil, nil
	}
	return m.s.Changed(), m.s.log.Grown()
}

// Mode is autopilot or interactive.
func (m *Main) Mode() string {
	if m.auto != nil {
		return AutopilotOrigin
	}
	return "interactive"
}
