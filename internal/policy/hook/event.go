package hook

import (
	"slices"
	"strings"
)

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
