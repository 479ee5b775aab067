package acpclient

import (
	"bytes"
	"encoding/json"

	acp "github.com/coder/acp-go-sdk"
)

// Answers and updates of agents are read by these types: the types of the library refuse kinds that they do not
// know, and agents may be newer than the library.

// Codes of errors of agents.
const (
	codeAuth = -32000
)

type initialized struct {
	ProtocolVersion int `json:"protocolVersion"`
	Capabilities    struct {
		LoadSession bool `json:"loadSession"`
		Prompt      struct {
			Image bool `json:"image"`
		} `json:"promptCapabilities"`
		Session struct {
			Resume json.RawMessage `json:"resume"`
			Close  json.RawMessage `json:"close"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
	AuthMethods []authMethod `json:"authMethods"`
}

type authMethod struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// has reports whether a capability is offered: any value except null and false.
func has(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && !bytes.Equal(raw, []byte("false"))
}

// opened is the answer to session/new, session/load and session/resume.
type opened struct {
	SessionID string `json:"sessionId"`
	Modes     *struct {
		Available []choice `json:"availableModes"`
	} `json:"modes"`
	Models *struct {
		Available []choice `json:"availableModels"`
	} `json:"models"`
	Options []configOption `json:"configOptions"`
}

type choice struct {
	ID      string `json:"id"`
	ModelID string `json:"modelId"`
	Value   string `json:"value"`
	Name    string `json:"name"`
}

type configOption struct {
	ID       string   `json:"id"`
	Category string   `json:"category"`
	Options  []choice `json:"options"`
}

// prompted is the answer to session/prompt.
type prompted struct {
	StopReason string `json:"stopReason"`
	Usage      *struct {
		Input       int64 `json:"inputTokens"`
		Output      int64 `json:"outputTokens"`
		CachedRead  int64 `json:"cachedReadTokens"`
		CachedWrite int64 `json:"cachedWriteTokens"`
	} `json:"usage"`
}

type notification struct {
	SessionID string `json:"sessionId"`
	Update    update `json:"update"`
}

// update is a session/update of any kind.
type update struct {
	Kind string `json:"sessionUpdate"`

	MessageID string          `json:"messageId"` // chunks
	Content   json.RawMessage `json:"content"`   // one block of a chunk, a list of a tool call
	toolCall
	Entries []acp.PlanEntry `json:"entries"` // plan

	Used *int64 `json:"used"` // usage_update
	Cost *struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	} `json:"cost"`
}

type toolCall struct {
	ID        string                 `json:"toolCallId"`
	Title     string                 `json:"title"`
	ToolKind  string                 `json:"kind"`
	Status    string                 `json:"status"`
	RawInput  json.RawMessage        `json:"rawInput"`
	Locations []acp.ToolCallLocation `json:"locations"`
}

// block is a block of content, or a part of the result of a tool call.
type block struct {
	Type    string  `json:"type"`
	Text    string  `json:"text"`
	URI     string  `json:"uri"`
	Path    string  `json:"path"`
	OldText *string `json:"oldText"`
	NewText string  `json:"newText"`
	Content *block  `json:"content"`

	TerminalID string `json:"terminalId"`
}

// blocks reads one block or a list of blocks. Any other value has none.
func blocks(raw json.RawMessage) []block {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil
	}
	if raw[0] == '[' {
		var many []block
		if json.Unmarshal(raw, &many) != nil {
			return nil
		}
		return many
	}
	var one block
	if json.Unmarshal(raw, &one) != nil {
		return nil
	}
	return []block{one}
}

// permissionRequest is session/request_permission.
type permissionRequest struct {
	SessionID string `json:"sessionId"`
	ToolCall  struct {
		toolCall
		Content json.RawMessage `json:"content"`
	} `json:"toolCall"`
	Options []acp.PermissionOption `json:"options"`
}
