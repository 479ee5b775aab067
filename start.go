package drover

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Shell is a command. Exactly one of Line and Args is set.
type Shell struct {
	Line    string   // for bash
	Args    []string // a program with its arguments
	Name    string   // a name that works wherever an ID does
	Dir     string   // default: the folder of the runtime
	Timeout time.Duration
}

// Shell starts a command in the background and returns when it is durably
// recorded.
func (rt *Runtime) Shell(ctx context.Context, c Shell) (task.Record, error) {
	dir := rt.dir
	if c.Dir != "" {
		var err error
		if dir, err = filepath.Abs(c.Dir); err != nil {
			return task.Record{}, fmt.Errorf("start command: %w", err)
		}
	}
	started, err := rt.s.Start(ctx, []control.StartRequest{{Name: c.Name, Timeout: c.Timeout, Cwd: dir, Env: rt.env,
		Shell: &control.ShellRequest{Line: c.Line, Args: c.Args}}})
	if err == nil && started[0].Error != nil {
		err = started[0].Error
	}
	if err != nil {
		return task.Record{}, err
	}
	return *started[0].Task, nil
}

// Start starts work by a driver of the program, in the background, and returns
// when it is durably recorded. It is a task like any other: its driver's kind is
// one of [task.Kinds] or one of its own (see [task.Traited]), it is stopped with its parent and with the runtime, and
// everybody sees it. ID and Keep of spec must be empty.
func (rt *Runtime) Start(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	if spec.Cwd == "" {
		spec.Cwd = rt.dir
	}
	return rt.s.StartOwn(ctx, d, spec)
}
