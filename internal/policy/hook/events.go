package hook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Todo is an item of a list of things to do.
type Todo struct {
	ID, Subject, Description string
	Teammate, Team           string // empty: none
}

// UserPromptSubmit tells of a prompt before it is recorded. If it is blocked the
// prompt must not reach the model, and the reason is for the user; else the text,
// if any, goes with it.
func (r *Runner) UserPromptSubmit(ctx context.Context, prompt string) (text string, blocked error) {
	r.begins("prompt_" + rand.Text())
	out := r.Run(ctx, UserPromptSubmit, map[string]any{"prompt": prompt})
	if out.Block {
		return "", fmt.Errorf("the prompt was refused: %s", out.Reason)
	}
	return Marked(UserPromptSubmit, out.Context...), nil
}

// SessionStart tells how the session began: startup, resume, clear, compact or
// fork. The text is for the model.
func (r *Runner) SessionStart(ctx context.Context, source string) string {
	return Marked(SessionStart, r.Run(ctx, SessionStart, map[string]any{"source": source}).Context...)
}

// SessionEnd tells that the session ends. The caller bounds it by ctx.
func (r *Runner) SessionEnd(ctx context.Context, reason string) {
	r.Run(ctx, SessionEnd, map[string]any{"reason": reason})
}

// StopFailure tells that a turn of the main agent ended by a failure.
func (r *Runner) StopFailure(ctx context.Context, failure error, last string) {
	r.Run(ctx, StopFailure, map[string]any{"error": failure.Error(), "last_assistant_message": last})
}

// PreCompact is [agent.Compaction.Before]: hooks may add instructions, which it
// returns, or prevent a compaction.
func (r *Runner) PreCompact(ctx context.Context, trigger, instructions string) (string, error) {
	out := r.Run(ctx, PreCompact, compaction(trigger, "custom_instructions", instructions))
	if out.Block {
		return "", errors.New("a hook prevented the compaction: " + out.Reason)
	}
	return lines(out.Context), nil
}

// PostCompact is [agent.Compaction.After].
func (r *Runner) PostCompact(ctx context.Context, trigger, summary string) {
	r.Run(ctx, PostCompact, compaction(trigger, "compact_summary", summary))
}

// compaction spells an overflow as hooks know it: as an automatic one.
func compaction(trigger, key, text string) map[string]any {
	fields := map[string]any{"trigger": trigger, key: text}
	if trigger == "overflow" {
		fields["trigger"], fields["overflow"] = "auto", true
	}
	return fields
}

// Notify sends a notification that the user also gets. kind is a word such as
// permission_prompt or idle_prompt.
func (r *Runner) Notify(ctx context.Context, kind, title, message string) {
	fields := map[string]any{"notification_type": kind, "message": message}
	if title != "" {
		fields["title"] = title
	}
	r.Run(ctx, Notification, fields)
}

// TaskCreated asks whether a new item may stay on its list. An error says why it
// must be taken off again.
func (r *Runner) TaskCreated(ctx context.Context, t Todo) error {
	return r.todo(ctx, TaskCreated, t)
}

// TaskCompleted asks whether an item may be marked as completed. An error says
// why it stays as it is.
func (r *Runner) TaskCompleted(ctx context.Context, t Todo) error {
	return r.todo(ctx, TaskCompleted, t)
}

func (r *Runner) todo(ctx context.Context, e Event, t Todo) error {
	fields := map[string]any{"task_id": t.ID, "task_subject": t.Subject}
	for key, value := range map[string]string{"task_description": t.Description, "teammate_name": t.Teammate,
		"team_name": t.Team} {
		if value != "" {
			fields[key] = value
		}
	}
	if out := r.Run(ctx, e, fields); out.Block {
		return errors.New(out.Reason)
	}
	return nil
}

// newID is the ID of a call that no model has made.
func newID() string { return "toolu_" + rand.Text() }

// Event is an occasion on which hooks run.
type Event string

// The events that Drover sends. [Load] knows more names, and says of each of the
// others that it is never sent.
const (
	PreToolUse         Event = "PreToolUse"
	PostToolUse        Event = "PostToolUse"
	PostToolUseFailure Event = "PostToolUseFailure"
	PostToolBatch      Event = "PostToolBatch"
	PermissionRequest  Event = "PermissionRequest"
	PermissionDenied   Event = "PermissionDenied"
	UserPromptSubmit   Event = "UserPromptSubmit"
	SessionStart       Event = "SessionStart"
	SessionEnd         Event = "SessionEnd"
	Stop               Event = "Stop"
	StopFailure        Event = "StopFailure"
	SubagentStart      Event = "SubagentStart"
	SubagentStop       Event = "SubagentStop"
	TeammateIdle       Event = "TeammateIdle"
	TaskCreated        Event = "TaskCreated"
	TaskCompleted      Event = "TaskCompleted"
	Notification       Event = "Notification"
	PreCompact         Event = "PreCompact"
	PostCompact        Event = "PostCompact"
)

// trait is a set of the peculiarities of an event.
type trait int

const (
	blocks trait = 1 << iota // exit code 2 means something
	guards                   // it may deny: what cannot be heard is a denial
	speaks                   // plain text on stdout is for the model
	silent                   // known by name, and never sent
)

// fact describes an event.
type fact struct {
	event   Event
	copilot string   // its name there, where that is another word
	about   []string // fields that a matcher is compared with; nil: it has none
	traits  trait
}

func (f fact) is(t trait) bool { return f.traits&t != 0 }

// facts is the list of all events.
func facts() []fact {
	tool := []string{"tool_name"}
	who := []string{"agent_type", "agent_display_name"}
	all := []fact{
		{PreToolUse, "", tool, blocks | guards},
		{PostToolUse, "", tool, blocks},
		{PostToolUseFailure, "", tool, blocks},
		{PostToolBatch, "", nil, blocks},
		{PermissionRequest, "", tool, blocks | guards},
		{PermissionDenied, "", tool, 0},
		{UserPromptSubmit, "userPromptSubmitted", nil, blocks | guards | speaks},
		{SessionStart, "", []string{"source"}, speaks},
		{SessionEnd, "", []string{"reason"}, 0},
		{Stop, "agentStop", nil, blocks},
		{StopFailure, "errorOccurred", nil, 0},
		{SubagentStart, "", who, speaks},
		{SubagentStop, "", who, blocks},
		{TeammateIdle, "", nil, blocks},
		{TaskCreated, "", nil, blocks | guards},
		{TaskCompleted, "", nil, blocks | guards},
		{Notification, "", []string{"notification_type"}, 0},
		{PreCompact, "", []string{"trigger"}, blocks},
		{PostCompact, "", []string{"trigger"}, 0},
	}
	for _, name := range []Event{"UserPromptExpansion", "PreModelSwitch", "PostModelSwitch", "Setup", "Elicitation",
		"ElicitationResult", "ConfigChange", "WorktreeCreate", "WorktreeRemove", "InstructionsLoaded", "CwdChanged",
		"FileChanged", "DirectoryAdded", "MessageDisplay"} {
		all = append(all, fact{event: name, traits: silent})
	}
	return all
}

// factOf returns the fact of an event; the zero fact for an unknown event.
func factOf(e Event) fact {
	for _, f := range facts() {
		if f.event == e {
			return f
		}
	}
	return fact{}
}

// named finds an event by the name in a file. camel says that it was written in
// the camelCase of Copilot.
func named(name string) (f fact, camel, ok bool) {
	for _, f := range facts() {
		switch name {
		case string(f.event):
			return f, false, true
		case f.copilot, lowerFirst(string(f.event)):
			return f, true, name != ""
		}
	}
	return fact{}, false, false
}

// nearest is the known name that differs from an unknown one by case only.
func nearest(name string) string {
	i := slices.IndexFunc(facts(), func(f fact) bool { return strings.EqualFold(string(f.event), name) })
	if i < 0 {
		return ""
	}
	return string(facts()[i].event)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
