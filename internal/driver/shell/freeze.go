package shell

import (
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

var _ task.Freezer = (*Driver)(nil)

// Freeze stops the group of a command; processes that left the group continue.
// A stop of the task still ends it.
func (d *Driver) Freeze(p task.Process) error { return process.FreezeGroup(identity(p)) }

// Thaw lets it go on.
func (d *Driver) Thaw(p task.Process) error { return process.ThawGroup(identity(p)) }

func identity(p task.Process) process.Identity {
	return process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}
}
