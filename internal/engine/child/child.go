// Package child converts between process groups and tasks, for the drivers that run commands.
//
// It owns the rules by which the end of a group becomes the result of a task, and the time that
// a stop waits. It starts no process, and ends only processes that a host or a stop has left running.
package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// How long a process may take to end after TERM, unless the stop says otherwise.
const (
	Grace        = 2 * time.Second
	ClosingGrace = time.Second // when the host closes, which has 2 s in all
)

// Keeper ends groups when this host dies. Its methods may be called by several goroutines.
type Keeper interface {
	// Ready returns when the keeper would see this host die. It is called before anything is
	// started.
	Ready() error
	// Watch names a group by its leader, says whether it outlives this host, and where its exit
	// is written then.
	Watch(leader process.Identity, task string, keep bool, exitFile string) error
	// Forget says that a group has ended, by its leader: its number alone may be another
	// process's by now.
	Forget(leader process.Identity) error
}

// Marks are the variables by which the processes of a task are found.
func Marks(rec task.Record, host process.Identity) []string {
	return []string{process.MarkTask + "=" + string(rec.ID), process.MarkSession + "=" + string(rec.Session),
		process.MarkHost + "=" + host.Mark()}
}

// Record is the process of a task as its record has it, and Identity the other way round.
func Record(id process.Identity) task.Process {
	return task.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}
}

// Identity is the identity of the process that a record names.
func Identity(p task.Process) process.Identity {
	return process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}
}

// Freezer implements [task.Freezer] for drivers whose tasks are process groups. What has left
// the group is not frozen. A stop ends a frozen group.
type Freezer struct{}

// Freeze stops the group until Thaw.
func (Freezer) Freeze(p task.Process) error { return process.FreezeGroup(Identity(p)) }

// Thaw resumes the group.
func (Freezer) Thaw(p task.Process) error { return process.ThawGroup(Identity(p)) }

// Note adds the report of the end of a group to a result.
func Note(res *task.Result, id task.ID, report process.Report) {
	for _, s := range report.Sent {
		res.Signals = append(res.Signals,
			task.SignalSent{Signal: process.SignalName(s.Signal), AfterMS: s.After.Milliseconds()})
	}
	if text := report.Note(); text != "" {
		res.Notes = append(res.Notes, text)
	}
	for _, l := range report.Left {
		res.Left = append(res.Left,
			task.Survivor{Task: id, PID: l.PID, Start: l.Start, Boot: l.Boot, Command: l.Command, Why: l.Why})
	}
}

// Exited adds the end of the leader to a result.
func Exited(res *task.Result, e process.Exit) {
	res.ExitCode, res.Signal = &e.Code, process.SignalName(e.Signal)
}

// Verdict is the error of a command that ended by itself; nil for exit code 0.
func Verdict(code int, signal string) error {
	switch {
	case signal != "":
		return &task.FailError{Reason: task.ReasonSignal, Err: errors.New("ended by " + signal)}
	case code != 0:
		return &task.FailError{Reason: task.ReasonExit, Err: fmt.Errorf("exit code %d", code)}
	}
	return nil
}

// GraceOf is how long a stop with this cause waits after TERM.
func GraceOf(cause error) time.Duration {
	var stop *task.StopError
	switch {
	case errors.As(cause, &stop) && stop.Grace != nil:
		return max(0, *stop.Grace)
	case errors.Is(cause, task.ErrClosing):
		return ClosingGrace
	}
	return Grace
}

// Clear ends the remaining processes of a task whose host died.
func Clear(ctx context.Context, rec task.Record, table *process.Table) process.Report {
	of := func(p process.Proc) bool {
		return p.PID == rec.Process.PID && p.Start == rec.Process.Start || p.Carries(process.MarkTask, string(rec.ID))
	}
	return process.EndAll(context.WithoutCancel(ctx), process.Choice{Root: of},
		process.Ending{Grace: Grace, Table: table, Hangup: rec.TTY})
}

// Patience is a context that ends after d, and by nothing else.
func Patience(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}
