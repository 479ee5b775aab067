package control

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// Environment is what the main agent of a session works with, beside its [Settings]; for a
// session without one, the environment with which its agents begin. Its lists are limited.
type Environment struct {
	Mode         string       `json:"permission_mode"`
	Rules        []Rule       `json:"rules"`       // deny first, then ask, then allow: the first match decides
	Directories  []string     `json:"directories"` // additional folders for tools
	Hooks        []Hook       `json:"hooks"`
	Servers      []MCPServer  `json:"mcp_servers"`
	AgentTypes   []AgentType  `json:"agent_types"`
	Models       []string     `json:"models"`            // names that can be requested; others may be possible
	Offered      []ModelOffer `json:"offered,omitempty"` // details of each of Models
	Instructions string       `json:"instructions,omitempty"`
	Memory       []MemoryFile `json:"memory"`
	Spent        []Spending   `json:"spent"` // by model, earlier hosts included
	Budget       float64      `json:"budget_usd,omitempty"`
	Context      Context      `json:"context"`
}

// ModelOffer is a model that can be requested.
type ModelOffer struct {
	Name    string  `json:"name"`  // as it is requested
	Full    string  `json:"full"`  // as it is sent
	Title   string  `json:"title"` // as people call it
	Window  int64   `json:"window,omitempty"`
	Input   float64 `json:"input_usd,omitempty"` // for a million tokens; 0: not known
	Output  float64 `json:"output_usd,omitempty"`
	Current bool    `json:"current,omitempty"` // the main agent has it
}

// Rule is a permission rule in force.
type Rule struct {
	Effect string `json:"effect"` // deny, ask or allow
	Rule   string `json:"rule"`
	Source string `json:"source"` // a file, a flag, or another source
}

// Hook is a command that runs at an event.
type Hook struct {
	Event   string `json:"event"` // as it was written
	Matcher string `json:"matcher,omitempty"`
	Command string `json:"command"`
	Source  string `json:"source"`
	Runs    bool   `json:"runs"` // false: its source is not trusted
	// Sandbox is what holds for it; nil: it runs outside.
	Sandbox *task.Sandbox `json:"sandbox,omitempty"`
}

// MCPServer is an MCP server of the main agent.
type MCPServer struct {
	Name   string `json:"name"`
	Status string `json:"status"` // connected, pending or failed
	Error  string `json:"error,omitempty"`
	Tools  int    `json:"tools"`
	// Sandbox is what holds for its command; nil: it runs outside.
	Sandbox *task.Sandbox `json:"sandbox,omitempty"`
}

// AgentType is a type of agents that can be started.
type AgentType struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Model       string `json:"model,omitempty"`
	Source      string `json:"source,omitempty"` // its file; empty: built in
}

// MemoryFile is a memory file of a project.
type MemoryFile struct {
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"`
	Changed time.Time `json:"changed"`
}

// Spending is the usage of one model.
type Spending struct {
	Model      string  `json:"model"`
	Calls      int     `json:"calls"`
	Input      int64   `json:"input_tokens"` // without cached tokens
	Output     int64   `json:"output_tokens"`
	CacheRead  int64   `json:"cache_read_input_tokens"`
	CacheWrite int64   `json:"cache_creation_input_tokens"`
	USD        float64 `json:"cost_usd"`
	Unpriced   int     `json:"unpriced_calls,omitempty"` // calls with an unknown price
}

// Context is the use of the context window of the main agent's model.
type Context struct {
	Tokens    int64         `json:"tokens"`               // of its latest request
	Window    int64         `json:"window,omitempty"`     // context window of the model in tokens; 0: unknown
	CompactAt int64         `json:"compact_at,omitempty"` // tokens at which the conversation is compacted; 0: never
	Parts     []ContextPart `json:"parts"`                // what every request has
}

// ContextPart is a part of every request.
type ContextPart struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}
