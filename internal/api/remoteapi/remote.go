// Package remoteapi is the session API of remote services: its messages, its HTTP
// client, and the rules that need no network: the poll interval, the state after a
// list of events, and when work of a type is done.
//
// A token is sent only to the configured address. A response of any size or form uses
// bounded memory. Transient failures are distinguished from permanent ones. The
// package stores no session and does not poll; the driver does. The paths and fields
// are in docs/remote-agents.md.
package remoteapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Type is the type of remote work. Its meaning is defined by the service; here it decides how
// the end is recognized.
type Type string

// The types.
const (
	Agent        Type = "remote-agent"
	Ultraplan    Type = "ultraplan"
	Ultrareview  Type = "ultrareview"
	AutofixPR    Type = "autofix-pr"
	BackgroundPR Type = "background-pr"
)

// Types returns all types.
func Types() []Type { return []Type{Agent, Ultraplan, Ultrareview, AutofixPR, BackgroundPR} }

// ParseType parses a type; the empty one is [Agent].
func ParseType(text string) (Type, error) {
	if text == "" {
		return Agent, nil
	}
	if t := Type(text); slices.Contains(Types(), t) {
		return t, nil
	}
	names := make([]string, len(Types()))
	for i, t := range Types() {
		names[i] = string(t)
	}
	return "", fmt.Errorf("remote work of type %.40q is not known (use %s)", text, strings.Join(names, ", "))
}

// Status is the status of a session at its service.
type Status string

// The statuses. The last three are final.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Archived  Status = "archived"
)

// Known reports whether the status is one of those.
func (s Status) Known() bool {
	return slices.Contains([]Status{Queued, Running, Completed, Failed, Archived}, s)
}

// Done reports whether the status is final.
func (s Status) Done() bool { return s == Completed || s == Failed || s == Archived }

// The known phases, in which a session waits for somebody.
const (
	NeedsInput = "needs_input"
	NeedsAuth  = "needs_authentication"
	PlanReady  = "plan_ready"
)

// Request requests a session.
type Request struct {
	// Key makes the request idempotent: the same key gives the same session. It is sent in the
	// header Idempotency-Key.
	Key string `json:"-"`
	// Again says that the request may have been sent before, so that a service without keys looks for its session
	// first.
	Again bool `json:"-"`

	Type      Type            `json:"type"`
	Prompt    string          `json:"prompt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"` // an object defined by the type
	AgentType string          `json:"agent_type,omitempty"`
	Model     string          `json:"model,omitempty"`
}

// Event is an event of a session. Unknown types are ignored.
type Event struct {
	Type   string          `json:"type"`
	Text   string          `json:"text,omitempty"`   // of assistant, hook_progress, note and phase
	Tool   string          `json:"tool,omitempty"`   // of tool
	Input  json.RawMessage `json:"input,omitempty"`  // of tool
	Tokens int64           `json:"tokens,omitempty"` // of usage: total so far
	At     time.Time       `json:"at,omitzero"`
}

// The types of events.
const (
	AssistantEvent = "assistant"     // text of the agent
	HookEvent      = "hook_progress" // output of a hook of the session
	ToolEvent      = "tool"          // use of a tool
	UsageEvent     = "usage"         // tokens
	PhaseEvent     = "phase"         // a further stage of the work
	NoteEvent      = "note"          // what the session does now, in a line
)

// Page is the state of a session, with its events after a cursor. An empty cursor is the
// beginning.
type Page struct {
	Events      []Event `json:"events"`
	Cursor      string  `json:"cursor"` // for the next page
	More        bool    `json:"more,omitempty"`
	Status      Status  `json:"status"`
	Phase       string  `json:"phase,omitempty"`
	OutputBytes int64   `json:"output_bytes"`     // available output in bytes
	Result      string  `json:"result,omitempty"` // the final answer of a completed session
	Error       string  `json:"error,omitempty"`  // of a failed one
}

// Check rejects a page that is inconsistent.
func (p Page) Check() error {
	switch {
	case !p.Status.Known():
		return fmt.Errorf("a session has the status %.40q, which is not known", p.Status)
	case p.OutputBytes < 0:
		return fmt.Errorf("a session has %d bytes of output", p.OutputBytes)
	case p.More && p.Cursor == "":
		return fmt.Errorf("a page says that more follows, and not where")
	}
	return nil
}

// maxSession limits the ID of a session, which is part of paths.
const maxSession = 200

// CheckSession rejects an ID that could change the path.
func CheckSession(id string) error {
	ok := id != "" && len(id) <= maxSession && id != "." && id != ".."
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%.60q is no ID of a session (up to %d letters, digits and -_.:)", id, maxSession)
	}
	return nil
}
