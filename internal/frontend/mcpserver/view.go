package mcpserver

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// maxField is how many characters of a text of a task are shown.
const maxField = 500

// taskView is a task for clients. Many clients show their model only this part of an answer, so it has what the next
// step needs, and not what the client has sent; only listings have the command or the description.
type taskView struct {
	ID               string      `json:"task_id"`
	Kind             string      `json:"task_type,omitempty"`
	Status           string      `json:"status" jsonschema:"pending, running, completed, failed or killed"`
	AwaitingApproval bool        `json:"awaiting_approval,omitempty"`
	Idle             bool        `json:"idle,omitempty"`
	Name             string      `json:"name,omitempty"`
	AskedName        string      `json:"asked_name,omitempty" jsonschema:"the requested name, if it was taken or reserved"`
	Command          string      `json:"command,omitempty"`
	Description      string      `json:"description,omitempty"`
	AgentType        string      `json:"agent_type,omitempty"`
	ExitCode         *int        `json:"exit_code,omitempty" jsonschema:"of an ended command; -1: none"`
	Cause            *task.Cause `json:"cause,omitempty" jsonschema:"why it was ended"`
	Error            string      `json:"error,omitempty"`
	Worker           string      `json:"worker,omitempty" jsonschema:"the worker on another machine that runs it"`
	OutputBytes      int64       `json:"output_bytes,omitempty"`

	Questions []question `json:"questions,omitempty" jsonschema:"open questions of the task to the user"`
}

// question is an open question to the user.
type question struct {
	ID      string `json:"id"`
	Tool    string `json:"tool"`
	Reason  string `json:"reason,omitempty"`
	Display string `json:"display" jsonschema:"the call, with every character visible"`
	Suggest string `json:"suggest,omitempty" jsonschema:"the rule that would allow it"`
}

// maxDisplay is how many characters of a call are shown.
const maxDisplay = 4000

func questions(r task.Record) []question {
	var out []question
	for _, q := range r.Questions {
		text := excerpt.Call(q.Input, q.Hidden)
		hidden := q.Hidden
		if runes := []rune(text); len(runes) > maxDisplay {
			shown := string(runes[:maxDisplay])
			text, hidden = shown, hidden+len(text)-len(shown)
		}
		if hidden > 0 {
			text += fmt.Sprintf("\n(%d bytes are hidden: `drover approvals show %s` shows the whole call)", hidden, q.ID)
		}
		out = append(out, question{ID: q.ID, Tool: field(excerpt.Exact(q.Tool)), Reason: field(excerpt.Exact(q.Reason)),
			Display: text, Suggest: excerpt.ExactLine(q.Suggest)})
	}
	return out
}

// brief is a task for a client that has started or named it.
func brief(r task.Record) taskView {
	v := taskView{
		ID: string(r.ID), Status: string(r.Status), AwaitingApproval: r.AwaitingApproval, Idle: r.Idle,
		Name: field(r.Name), AskedName: field(r.AskedName), ExitCode: r.ExitCode, Error: field(r.Error),
		Worker: field(r.Worker), OutputBytes: r.OutputBytes, Questions: questions(r),
	}
	if wasEnded(r) {
		v.Cause = shownCause(r.Cause)
	}
	return v
}

// wasEnded reports whether a task has a cause other than its own end.
func wasEnded(r task.Record) bool {
	return r.Cause != nil && r.Cause.Reason != task.ReasonDone && r.Cause.Reason != task.ReasonExit
}

// view is a task in a listing.
func view(r task.Record) taskView {
	v := brief(r)
	v.Kind, v.AgentType = string(r.Kind), field(r.AgentType)
	v.Command = field(r.Command)
	if d := field(r.Description); d != v.Command {
		v.Description = d
	}
	return v
}

func views[V any](list []task.Record, one func(task.Record) V) []V {
	out := make([]V, 0, len(list))
	for _, r := range list {
		out = append(out, one(r))
	}
	return out
}

// shownCause is a cause with texts that are safe to show.
func shownCause(c *task.Cause) *task.Cause {
	if c == nil {
		return nil
	}
	return &task.Cause{Actor: c.Actor, Reason: c.Reason, Signal: c.Signal, Detail: field(c.Detail)}
}

func field(s string) string { return excerpt.Line(s, maxField) }

// line is a task in one line.
func line(r task.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.ID, cmp.Or(excerpt.Line(r.Outcome(), 300), string(r.Status)))
	var facts []string
	if r.AwaitingApproval {
		facts = append(facts, "awaiting approval")
	}
	if r.Worker != "" {
		facts = append(facts, "at "+excerpt.Line(r.Worker, 63))
	}
	if len(facts) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
	}
	if r.Name != "" {
		b.WriteString(" " + excerpt.Line(r.Name, 100))
	}
	if r.AskedName != "" && !r.Status.Terminal() {
		b.WriteString(" (not " + excerpt.Line(r.AskedName, 100) + ", which is taken or reserved)")
	}
	if what := cmp.Or(r.Command, r.Description); what != "" {
		b.WriteString(": " + excerpt.Line(what, 200))
	}
	return b.String()
}

func lines(list []task.Record) string { return strings.Join(views(list, line), "\n") }

// shownReceipt is a receipt with texts that are safe to show, and no list that is null.
func shownReceipt(r task.Receipt) task.Receipt {
	r.Stopped, r.Survivors = append([]task.Stopped{}, r.Stopped...), append([]task.Survivor{}, r.Survivors...)
	for i := range r.Stopped {
		s := &r.Stopped[i]
		s.Cause, s.Signals = shownCause(s.Cause), append([]task.SignalSent{}, s.Signals...)
	}
	for i := range r.Survivors {
		s := &r.Survivors[i]
		s.Command, s.Why = field(s.Command), field(s.Why)
	}
	return r
}

func receiptText(r task.Receipt) string {
	var b strings.Builder
	for _, s := range r.Stopped {
		fmt.Fprintf(&b, "%s %s after %d ms\n", s.ID, s.Status, s.EndedAfterMS)
	}
	for _, s := range r.Survivors {
		fmt.Fprintf(&b, "still running: process %d (%s): %s\n", s.PID, s.Command, s.Why)
	}
	if b.Len() == 0 {
		return "No tasks were running."
	}
	return strings.TrimRight(b.String(), "\n")
}
