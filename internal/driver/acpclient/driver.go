package acpclient

import (
	"context"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// Config is shared by the agents of a host. Its zero value works.
type Config struct {
	Keeper  child.Keeper   // nil: processes outlive a host that dies
	Version string         // of this program, for agents
	Table   *process.Table // nil: one of its own
}

// Driver runs one agent as a task. The embedded driver runs the conversation with the agent as its model.
type Driver struct {
	task.Driver
	agent *Agent
}

var (
	_ task.Launcher = (*Driver)(nil)
	_ task.Freezer  = (*Driver)(nil)
)

// New makes an agent that is not open, and the driver that runs it once. hold makes the driver of the
// conversation, which opens the agent.
func New(c Config, hold func(*Agent) task.Driver) *Driver {
	if c.Table == nil {
		c.Table = new(process.Table)
	}
	a := &Agent{cfg: c, patience: usual()}
	return &Driver{Driver: hold(a), agent: a}
}

// Launches implements [task.Launcher]: the task begins with its process.
func (d *Driver) Launches() {}

// Run runs the conversation, then ends everything that the agent has started.
func (d *Driver) Run(ctx context.Context, h task.Host) (res task.Result, err error) {
	defer func() { // also in a panic
		d.agent.end(ctx, child.GraceOf(context.Cause(ctx)))
		d.agent.report(ctx, &res)
	}()
	return d.Driver.Run(ctx, h)
}

// Freeze suspends the processes of the agent.
func (d *Driver) Freeze(task.Process) error { return d.agent.signal(process.FreezeGroup) }

// Thaw resumes them.
func (d *Driver) Thaw(task.Process) error { return d.agent.signal(process.ThawGroup) }
