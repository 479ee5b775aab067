package acpclient

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// Keeper is told of groups, so that they end when this host dies.
type Keeper interface {
	// Ready returns when the keeper would see this host die.
	Ready() error
	// Watch tells of a group by its leader.
	Watch(leader process.Identity, task string, keep bool, exitFile string) error
	// Forget tells that the group has ended.
	Forget(leader process.Identity) error
}

// Config is what the agents of a host share. Its zero value works.
type Config struct {
	Keeper  Keeper         // nil: what the host leaves is ended by nobody
	Version string         // of this program, as agents are told
	Table   *process.Table // nil: one of its own
}

// grace is how long an agent may take to go after TERM, unless the stop says otherwise, and
// closingGrace the same when the host closes.
const (
	grace        = 2 * time.Second
	closingGrace = time.Second
)

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
		d.agent.end(ctx, graceOf(context.Cause(ctx)))
		d.agent.report(ctx, &res)
	}()
	return d.Driver.Run(ctx, h)
}

// Freeze makes the processes of the agent stand still.
func (d *Driver) Freeze(task.Process) error { return d.agent.signal(process.FreezeGroup) }

// Thaw lets them go on.
func (d *Driver) Thaw(task.Process) error { return d.agent.signal(process.ThawGroup) }

func graceOf(cause error) time.Duration {
	var stop *task.StopError
	switch {
	case errors.As(cause, &stop) && stop.Grace != nil:
		return max(0, *stop.Grace)
	case errors.Is(cause, task.ErrClosing):
		return closingGrace
	}
	return grace
}
