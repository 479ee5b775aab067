package settings

import "time"

// MCP is how MCP servers are used. Which there are stands in files of their own.
type MCP struct {
	StartWait   string `json:"startWait,omitempty" jsonschema:"how long the start of an agent waits for its servers, such as 2s, which holds if not set; tools of those that come later are for later agents"`
	IdleTimeout string `json:"idleTimeout,omitempty" jsonschema:"how long a server goes on that nobody uses, such as 5m, which holds if not set"`
	CallTimeout string `json:"callTimeout,omitempty" jsonschema:"how long a call of a tool may take, such as 10m, which holds if not set"`
	FrameBytes  int    `json:"frameBytes,omitempty" jsonschema:"size of one message of a server, in bytes, 65536 to 1000000000; 8388608 if not set"`
	Tasks       string `json:"tasks,omitempty" jsonschema:"which tools run as tasks: required (those that must, the default), always (those that can) or off"`
}

// Wait is StartWait as a duration.
func (m MCP) Wait() time.Duration { return duration(m.StartWait, 2*time.Second) }

// Idle is IdleTimeout as a duration.
func (m MCP) Idle() time.Duration { return duration(m.IdleTimeout, 5*time.Minute) }

// Call is CallTimeout as a duration.
func (m MCP) Call() time.Duration { return duration(m.CallTimeout, 10*time.Minute) }
