package placement

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// Want is a task for a worker. Its [task.Spec] says for which.
type Want struct {
	Job fleetwire.Job
	Tee io.Writer // gets the output too; nil: none

	// Folder is the folder of the task, absolute, whose checkout travels with it. Empty, or not in a checkout:
	// none does. Untracked are patterns of untracked files that travel. Sync makes the files of
	// the folder travel, which must not be in a checkout then.
	Folder    string
	Untracked []string
	Sync      bool

	In *Workspace // a command runs there, and brings no folder; nil: anywhere

	// EndedIn is called before the end of a command with the directory in which it has ended; nil: it is not needed.
	EndedIn func(cwd string)
}

// Auto is the On that any worker fits.
const Auto = "auto"

// Driver is a driver of the fleet for one kind of task: it starts tasks on workers, takes up
// those that an earlier host has left there, and leaves all others to the driver of this machine.
type Driver struct {
	fleet *Fleet
	here  task.Driver
	want  *Want // nil: of an earlier host
}

var (
	_ task.Launcher  = (*Driver)(nil)
	_ task.Adopter   = (*Driver)(nil)
	_ task.Suspender = (*Driver)(nil)
)

// Driver returns the driver that does what another one would do on this machine.
func (f *Fleet) Driver(here task.Driver, want *Want) *Driver { return &Driver{f, here, want} }

// Kind is the kind of the driver of this machine.
func (d *Driver) Kind() task.Kind { return d.here.Kind() }

// Launches makes a task begin when a worker has it; see [task.Launcher].
func (d *Driver) Launches() {}

// Check refuses what the driver of this machine would refuse.
func (d *Driver) Check(input json.RawMessage) error {
	if d.want != nil && len(d.want.Job.Args) == 0 && d.want.Job.Line == "" {
		return errors.New("read command: it is empty")
	}
	return d.here.Check(input)
}

// Adopts takes up kept tasks at workers, and what the driver of this machine takes up.
func (d *Driver) Adopts(r task.Record) bool {
	if r.Worker != "" {
		return r.Keep
	}
	a, ok := d.here.(task.Adopter)
	return ok && a.Adopts(r)
}

// Freeze calls the driver of this machine; a task at a worker is paused by [Driver.Suspend].
func (d *Driver) Freeze(p task.Process) error {
	if f, ok := d.here.(task.Freezer); ok {
		return f.Freeze(p)
	}
	return nil
}

// Thaw calls the driver of this machine.
func (d *Driver) Thaw(p task.Process) error {
	if f, ok := d.here.(task.Freezer); ok {
		return f.Thaw(p)
	}
	return nil
}

// Suspend has the worker pause or resume the task.
func (d *Driver) Suspend(id task.ID, paused bool) error {
	w := d.fleet.find(id)
	if w == nil {
		return nil
	}
	kind := fleetwire.Resume
	if paused {
		kind = fleetwire.Pause
	}
	return w.command(fleetwire.Command{Kind: kind})
}

// Steer types into the terminal of a task at a worker.
func (d *Driver) Steer(ctx context.Context, id task.ID, text string) error {
	if w := d.fleet.find(id); w != nil {
		return w.command(fleetwire.Command{Kind: fleetwire.Type, Text: text})
	}
	s, ok := d.here.(task.Steerer)
	if !ok {
		return errors.New("the task takes no messages")
	}
	return s.Steer(ctx, id, text)
}

// Run offers the task to workers and follows it to its end, or takes it up where an earlier host
// has left it.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	rec := h.Record()
	if d.want == nil && rec.Worker == "" {
		return d.here.Run(ctx, h)
	}
	w := newWork(d.fleet, h, rec, d.want)
	defer w.close()
	return w.run(ctx)
}
