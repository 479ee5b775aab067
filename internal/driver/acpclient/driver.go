package acpclient

import (
	"context"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// Config is what the agents of a host share. Its zero value works.
type Config struct {
	Keeper  child.Keeper   // nil: what the host leaves is ended by nobody
	Version string         // of this program, as agents are told
	Table   *process.Table // nil: one of its own
}

// Driver runs one agent as a task. The driver inside holds the conversation, with the agent as
// its model.
type Driver struct {
	task.Driver
	agent *Agent
}

var (
	_ task.Launcher = (*Driver)(nil)
	_ task.Freezer  = (*Driver)(nil)
)

// New makes an agent that is not open, and the driver that runs it once. hold makes the driver
// of the conversation, which opens the agent.
func New(c Config, hold func(*Agent) task.Driver) *Driver {
	if c.Table == nil {
		c.Table = new(process.Table)
	}
	a := &Agent{cfg: c, patience: usual()}
	return &Driver{Driver: hold(a), agent: a}
}

// Launches makes the task begin with its process; see [task.Launcher].
func (d *Driver) Launches() {}

// Run holds the conversation, and then ends all that the agent has started.
func (d *Driver) Run(ctx context.Context, h task.Host) (res task.Result, err error) {
	defer func() { // also while a panic goes by
		d.agent.end(ctx, child.GraceOf(context.Cause(ctx)))
		d.agent.report(ctx, &res)
	}()
	return d.Driver.Run(ctx, h)
}

// Freeze makes the processes of the agent stand still.
func (d *Driver) Freeze(task.Process) error { return d.agent.signal(process.FreezeGroup) }

// Thaw lets them go on.
func (d *Driver) Thaw(task.Process) error { return d.agent.signal(process.ThawGroup) }
