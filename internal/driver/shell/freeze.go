package shell

import (
	"errors"
	"syscall"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

var _ task.Freezer = (*Driver)(nil)

// Freeze makes the group of a command stand still; what left the group goes on.
// A stop of the task ends it all the same.
func (d *Driver) Freeze(p task.Process) error { return signal(p, syscall.SIGSTOP) }

// Thaw lets it go on.
func (d *Driver) Thaw(p task.Process) error { return signal(p, syscall.SIGCONT) }

func signal(p task.Process, sig syscall.Signal) error {
	err := process.SignalGroup(process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}, sig)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	return err
}
