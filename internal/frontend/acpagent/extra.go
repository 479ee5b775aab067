package acpagent

import (
	"encoding/json"
	"errors"
	"fmt"

	acp "github.com/coder/acp-go-sdk"
)

// What the types of the protocol library lack.

// deleteMethod removes what a session left.
const deleteMethod = "session/delete"

// deleteRequest is the request of [deleteMethod].
type deleteRequest struct {
	SessionID acp.SessionId `json:"sessionId"`
}

// Validate implements [checked].
func (r *deleteRequest) Validate() error {
	if r.SessionID == "" {
		return errors.New("sessionId is required")
	}
	return nil
}

// forkRequest is that of session/fork, whose types in the library are copies of the others.
// Its answer is that of session/new.
type forkRequest struct {
	SessionID             acp.SessionId   `json:"sessionId"`
	Cwd                   string          `json:"cwd"`
	McpServers            []acp.McpServer `json:"mcpServers"`
	AdditionalDirectories []string        `json:"additionalDirectories"`
}

// Validate implements [checked].
func (r *forkRequest) Validate() error {
	if r.SessionID == "" || r.Cwd == "" {
		return errors.New("sessionId and cwd are required")
	}
	return nil
}

// formRequest is the request of elicitation/create with a form. The type of the library lacks
// the session.
type formRequest struct {
	SessionID  acp.SessionId   `json:"sessionId"`
	ToolCallID acp.ToolCallId  `json:"toolCallId,omitempty"`
	Mode       string          `json:"mode"` // form
	Message    string          `json:"message"`
	Schema     json.RawMessage `json:"requestedSchema"`
}

// formAnswer is its answer.
type formAnswer struct {
	Action  string          `json:"action"` // accept, decline or cancel
	Content json.RawMessage `json:"content"`
}

// withDelete adds to the answer of initialize that sessions can be deleted.
func withDelete(r acp.InitializeResponse) (any, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the capabilities: %w", err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("encode the capabilities: %w", err)
	}
	if c, ok := all["agentCapabilities"].(map[string]any); ok {
		if s, ok := c["sessionCapabilities"].(map[string]any); ok {
			s["delete"] = struct{}{}
		}
	}
	return all, nil
}

// newNotFound is the error for what does not exist.
func newNotFound(data any) *acp.RequestError {
	return &acp.RequestError{Code: -32002, Message: "Resource not found", Data: data}
}
