package control

import "encoding/json"

// RemoteRequest is work in a session of a remote service.
type RemoteRequest struct {
	Service   string          `json:"service,omitempty"` // a name of the settings, or an address; empty: the default
	Type      string          `json:"type,omitempty"`    // empty: remote-agent
	Prompt    string          `json:"prompt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"` // an object, for the service and the completion checker
	AgentType string          `json:"agent_type,omitempty"`
	Model     string          `json:"model,omitempty"`
}
