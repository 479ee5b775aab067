package subagent

import "github.com/drover-dev/drover/task"

// NewTeammate makes a driver of agents that stay for messages, as tasks of kind
// in_process_teammate. How long one stays is decided by the Rest of its assembly.
func NewTeammate(a Assemble) *Driver { return &Driver{kind: task.InProcessTeammate, assemble: a} }
