package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// RemoteRequest is work for an agent of a remote service.
type RemoteRequest struct {
	Service   string          `json:"service,omitempty"` // a name of the settings, or the address of a card; empty: the default
	Type      string          `json:"type,omitempty"`    // of [RemoteTypes]; empty: the first
	Prompt    string          `json:"prompt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"` // an object, for the agent and the completion checker
	AgentType string          `json:"agent_type,omitempty"`
	Model     string          `json:"model,omitempty"`
}

// Types of remote work with a meaning of their own: how their end is recognized.
const (
	RemoteAgent = "remote-agent"
	Ultrareview = "ultrareview"
)

// RemoteTypes returns the types of remote work.
func RemoteTypes() []string {
	return []string{RemoteAgent, "ultraplan", Ultrareview, "autofix-pr", "background-pr"}
}

// CheckRemoteType refuses an unknown type.
func CheckRemoteType(t string) error {
	if slices.Contains(RemoteTypes(), t) {
		return nil
	}
	return fmt.Errorf("type of remote work %.40q: not known (use %s)", t, strings.Join(RemoteTypes(), ", "))
}
