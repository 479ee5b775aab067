package shell

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// exitWait is how long the parent of a kept command may take to write down how
// it ended, and exitTick how often that is looked for.
const (
	exitWait = 2 * time.Second
	exitTick = 5 * time.Millisecond
)

// adopt takes over what an earlier host started.
func (d *Driver) adopt(ctx context.Context, h task.Host, rec task.Record) (task.Result, error) {
	id := child.Identity(*rec.Process)
	if id.Boot != process.Boot() {
		return task.Result{}, lost(task.ByUnknown, task.ReasonReboot, "interrupted by a restart of the machine")
	}
	if !rec.Keep {
		return d.clear(ctx, rec)
	}
	g, err := process.Adopt(id)
	switch {
	case errors.Is(err, process.ErrGone):
		return d.departed(rec.ID, id, &task.Result{}, exitWait)
	case err != nil:
		return task.Result{}, errors.Join(task.ErrLost, err)
	}
	r := &run{d: d, g: g, id: rec.ID, keep: true, tty: rec.TTY}
	term := d.retake(rec)
	defer term.close()
	_ = failpoint.Hit("adopt/held")
	// A keeper that is not told leaves alone what another host has started, and
	// a running command must not be reported as lost.
	_ = r.watch()
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer d.caps.drop(d.caps.watch(h.Output(), g, rec.ID, cancel))
	defer term.guard(cancel)()
	_, err = g.Wait(limited)
	if err == nil {
		r.alone = true
		term.settle()
		r.end(ctx)
		r.release()
		return d.departed(rec.ID, id, &r.result, exitWait)
	}
	cause := context.Cause(limited)
	if cause == nil { // it could not be waited for
		cause = err
	}
	if errors.Is(cause, task.ErrClosing) {
		term.leave()
		g.Close()
		return task.Result{}, task.ErrDetached
	}
	r.stop(ctx, cause)
	r.release()
	if dep, err := d.await(rec.ID, id, exitWait); err == nil {
		r.result.ExitCode, r.result.Signal = &dep.ExitCode, dep.Signal
		r.result.Settle = d.settle(rec.ID)
	}
	return r.result, cause
}

// clear ends the processes left by a command that was not to outlive its host.
func (d *Driver) clear(ctx context.Context, rec task.Record) (task.Result, error) {
	report := child.Clear(ctx, rec, &d.table)
	d.unlay(rec.ID)
	var res task.Result
	child.Note(&res, rec.ID, report)
	detail := "its host died"
	if len(report.Sent) > 0 {
		detail = "its host died, and what it had left running was ended later"
	}
	return res, lost(task.ByKeeper, task.ReasonHostLost, detail)
}

// departed returns how a kept command ended without a host, or with a host other than
// its parent.
func (d *Driver) departed(id task.ID, leader process.Identity, res *task.Result,
	wait time.Duration) (task.Result, error) {
	dep, err := d.await(id, leader, wait)
	if err != nil {
		return *res, errors.Join(task.ErrLost, err)
	}
	_ = failpoint.Hit("adopt/noted")
	res.ExitCode, res.Signal = &dep.ExitCode, dep.Signal
	res.Settle = d.settle(id)
	return *res, child.Verdict(dep.ExitCode, dep.Signal)
}

// await reads the exit file, which may appear a moment after the exit.
func (d *Driver) await(id task.ID, leader process.Identity, wait time.Duration) (process.Departure, error) {
	path := d.exitFile(id, true)
	if path == "" {
		return process.Departure{}, errors.New("nobody noted how the command ended")
	}
	limit := child.Patience(wait)
	tick := time.NewTicker(exitTick)
	defer tick.Stop()
	for {
		dep, err := process.ReadDeparture(path, leader)
		if !errors.Is(err, os.ErrNotExist) {
			return dep, err
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			return process.Departure{}, errors.New("nobody noted how the command ended")
		}
	}
}

// settle removes an exit file whose content is durable elsewhere.
func (d *Driver) settle(id task.ID) func() {
	path := d.exitFile(id, true)
	return func() {
		_ = saferoot.Near(path).Remove(path)
		d.unlay(id)
	}
}

func lost(a task.Actor, why task.Reason, detail string) error {
	return errors.Join(task.ErrLost, &task.StopError{Cause: task.Cause{Actor: a, Reason: why, Detail: detail}})
}
