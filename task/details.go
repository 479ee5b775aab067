package task

import "time"

// StepStatus is the state of a step of a workflow.
type StepStatus string

// The statuses of steps.
const (
	StepPending   StepStatus = "pending"
	StepRunning   StepStatus = "running"
	StepCompleted StepStatus = "completed"
	StepFailed    StepStatus = "failed"
	StepKilled    StepStatus = "killed"
	StepSkipped   StepStatus = "skipped" // its condition did not hold, or a step it needs failed
)

// Step is how far one step of a workflow has come.
type Step struct {
	ID      string     `json:"id"`
	Needs   []string   `json:"needs,omitempty"` // steps that it waits for
	Status  StepStatus `json:"status"`
	Task    ID         `json:"task_id,omitempty"` // of the latest attempt
	Attempt int        `json:"attempt,omitempty"` // from 1
	Error   string     `json:"error,omitempty"`   // one line
	Start   time.Time  `json:"start_time,omitzero"`
	End     time.Time  `json:"end_time,omitzero"`
}

// MonitorCount counts the work of a monitor.
type MonitorCount struct {
	Lines    int64 `json:"lines"`    // read
	Events   int64 `json:"events"`   // lines that matched
	Notified int64 `json:"notified"` // events sent to the owner
	Dropped  int64 `json:"dropped"`  // events beyond the rate limit
}

// MCPState is a task of an MCP server as the server last reported it.
type MCPState struct {
	Server   string    `json:"server"`
	Tool     string    `json:"tool"`
	TaskID   string    `json:"mcp_task_id,omitempty"` // the server's
	Status   string    `json:"status,omitempty"`      // the server's word
	Message  string    `json:"message,omitempty"`
	Progress float64   `json:"progress,omitempty"`
	Total    float64   `json:"total,omitempty"`
	Warnings []string  `json:"warnings,omitempty"` // of the stream of events; the newest few
	Created  time.Time `json:"created_at,omitzero"`
	Updated  time.Time `json:"updated_at,omitzero"`
}

// RemoteSession is the session in which a remote agent works.
type RemoteSession struct {
	ID   string `json:"session_id"`
	Type string `json:"remote_task_type"`
	Host string `json:"host,omitempty"` // of the service, without secrets
}

// Team identifies a teammate.
type Team struct {
	AgentID string `json:"agent_id"` // name@team
	Name    string `json:"agent_name"`
	Team    string `json:"team_name"`
	Color   string `json:"color,omitempty"`
}
