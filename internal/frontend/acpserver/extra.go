package acpserver

import (
	"encoding/json"
	"errors"
	"fmt"

	acp "github.com/coder/acp-go-sdk"
)

// The messages that the types of the protocol library lack.

// deleteMethod removes the files of a session.
const deleteMethod = "session/delete"

// deleteRequest is the request of [deleteMethod].
type deleteRequest acp.CloseSessionRequest

// Validate refuses a request without a session; the library reads it as empty.
func (r *deleteRequest) Validate() error {
	if r.SessionId == "" {
		return errors.New("sessionId is required")
	}
	return nil
}

// forkRequest is the request of session/fork, whose types in the library are copies of the others. Its answer
// is that of session/new.
type forkRequest acp.ResumeSessionRequest

// Validate refuses an incomplete request.
func (r *forkRequest) Validate() error {
	if r.SessionId == "" || r.Cwd == "" {
		return errors.New("sessionId and cwd are required")
	}
	return nil
}

// formRequest is the request of elicitation/create with a form. The type of the library lacks the session.
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

// withDelete adds the capability of [deleteMethod] to the answer of initialize.
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

// initializeRequest is the request of initialize, with a capability that the library lacks.
type initializeRequest struct {
	acp.InitializeRequest
	subagents bool // the client shows subagents as sessions
}

// forms reports whether the client shows forms.
func (r *initializeRequest) forms() bool {
	e := r.ClientCapabilities.Elicitation
	return e != nil && (e.Form != nil || e.Url == nil)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *initializeRequest) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &r.InitializeRequest); err != nil {
		return err
	}
	var more struct {
		Capabilities struct {
			Subagents *struct{} `json:"subagents"`
		} `json:"clientCapabilities"`
	}
	r.subagents = json.Unmarshal(data, &more) == nil && more.Capabilities.Subagents != nil
	return nil
}

// notification is a session/update with any update.
type notification struct {
	SessionID acp.SessionId `json:"sessionId"`
	Update    any           `json:"update"`
}

// subagentUpdate announces a child session, or a change of its state.
type subagentUpdate struct {
	Kind         string                `json:"sessionUpdate"` // subagent_update
	SessionID    acp.SessionId         `json:"sessionId"`
	Title        string                `json:"title,omitempty"`
	Description  string                `json:"description,omitempty"`
	Cwd          string                `json:"cwd,omitempty"`
	Capabilities *subagentCapabilities `json:"capabilities,omitempty"`
	State        *childState           `json:"state,omitempty"`
}

// subagentCapabilities are what the client may do with a child.
type subagentCapabilities struct {
	Cancel *struct{} `json:"cancel,omitempty"`
}

// childState is the state of a child: running, requires_action or idle.
type childState struct {
	State      string         `json:"state"`
	StopReason acp.StopReason `json:"stopReason,omitempty"`
}

// sessionMessage is a message from one session to another, in the transcript of one of them.
type sessionMessage struct {
	Kind      string             `json:"sessionUpdate"` // session_message
	MessageID string             `json:"messageId"`
	Sender    acp.SessionId      `json:"senderSessionId,omitempty"`
	Recipient acp.SessionId      `json:"recipientSessionId,omitempty"`
	Content   []acp.ContentBlock `json:"content"`
}

// newNotFound is the error for a resource that does not exist.
func newNotFound(data any) *acp.RequestError {
	return &acp.RequestError{Code: -32002, Message: "Resource not found", Data: data}
}
