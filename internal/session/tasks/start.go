package tasks

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Kinds is the work that clients of a session can start.
type Kinds interface {
	// ChildEnv returns the environment of the commands of a client.
	ChildEnv(env []string) []string
	// Command is a command before its start.
	Command(r control.StartRequest, spec task.Spec, client shell.Client) (supervise.Starting, error)
	// Other is other work before its start. Without a driver it has begun already, and has a record.
	Other(ctx context.Context, r control.StartRequest, spec task.Spec) (supervise.Starting, task.Record, error)
}

// ChildEnv returns the environment of commands.
func (s *Session) ChildEnv(env []string) []string { return process.ChildEnv(env) }

// Command is a command before its start.
func (s *Session) Command(r control.StartRequest, spec task.Spec, client shell.Client) (supervise.Starting, error) {
	if r.On != "" || r.ByModel || r.Shell.Sandbox {
		return supervise.Starting{}, noAgents("start a command of a model, in a sandbox or on another machine")
	}
	d, input := s.shell.Command(client, CommandOf(r))
	spec.Input = input
	Describe(r, &spec)
	return supervise.Starting{Driver: d, Spec: spec}, nil
}

// CommandOf returns the command of a request.
func CommandOf(r control.StartRequest) shell.Command {
	return shell.Command{Args: r.Shell.Args, Line: r.Shell.Line, Cwd: r.Cwd, TTY: r.Shell.TTY}
}

// Describe fills in what the request of a command says of its task.
func Describe(r control.StartRequest, spec *task.Spec) {
	spec.Pool, spec.TTY, spec.Retries, spec.Command = ShellPool, r.Shell.TTY, r.Shell.Retries, r.Shell.Line
	if spec.Command == "" {
		spec.Command = shell.Quote(r.Shell.Args...)
	}
	if spec.Description == "" {
		spec.Description = lifecycle.Shortened(spec.Command, task.MaxDescription)
	}
}

// Other is refused.
func (s *Session) Other(
	context.Context, control.StartRequest, task.Spec,
) (start supervise.Starting, rec task.Record, err error) {
	return start, rec, noAgents("start anything but commands")
}

// Start starts commands for a client.
func (s *Session) Start(ctx context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	return s.StartAll(ctx, s, reqs)
}

// StartAll starts tasks of these kinds for a client.
func (s *Session) StartAll(ctx context.Context, k Kinds, reqs []control.StartRequest) ([]control.Started, error) {
	out := make([]control.Started, len(reqs))
	begins := make([]func(), 0, len(reqs))
	var batch []supervise.Starting
	var places []int
	for i, r := range reqs {
		client := shell.Client{Env: k.ChildEnv(r.Env)}
		if r.Check() == nil && r.Shell != nil && r.Lease == "" { // commands become durable together
			w, err := k.Command(r, specOf(r, true), client)
			if err != nil {
				out[i].Error = Refusal(err)
				continue
			}
			batch, places = append(batch, w), append(places, i)
			continue
		}
		rec, begin, err := s.record(ctx, k, r, client, true)
		if begin != nil {
			begins = append(begins, begin)
		}
		if err != nil {
			out[i].Error = NotStarted(err)
			continue
		}
		out[i].Task = &rec
	}
	for n, r := range s.Tree.Tasks.RecordAll(ctx, batch) {
		if r.Err != nil {
			out[places[n]].Error = NotStarted(r.Err)
			continue
		}
		out[places[n]].Task, begins = &r.Task, append(begins, r.Begin)
	}
	for _, begin := range begins {
		begin()
	}
	return out, nil
}

// StartForeground starts a task for a client that shows it.
func (s *Session) StartForeground(
	ctx context.Context, k Kinds, r control.StartRequest, client shell.Client,
) (task.Record, error) {
	rec, begin, err := s.record(ctx, k, r, client, false)
	if begin != nil {
		begin()
	}
	return rec, err
}

// specOf is what a request says of its task, whatever its kind.
func specOf(r control.StartRequest, background bool) task.Spec {
	return task.Spec{
		Name:         r.Name,
		Description:  r.Description,
		Backgrounded: background,
		Keep:         r.Keep,
		Timeout:      r.Timeout,
		Cwd:          r.Cwd,
		Schedule:     r.Schedule,
	}
}

// record records a task, which waits for begin. Work that has begun already has a nil begin, as an error has.
func (s *Session) record(
	ctx context.Context, k Kinds, r control.StartRequest, client shell.Client, background bool,
) (rec task.Record, begin func(), err error) {
	if err := r.Check(); err != nil {
		return task.Record{}, nil, err
	}
	lease, err := s.leases.open(r.Lease)
	if err != nil {
		return task.Record{}, nil, err
	}
	var start supervise.Starting
	if r.Shell != nil {
		start, err = k.Command(r, specOf(r, background), client)
	} else {
		start, rec, err = k.Other(ctx, r, specOf(r, background))
	}
	if err == nil && start.Driver != nil {
		rec, begin, err = s.Tree.Tasks.Record(ctx, start.Driver, start.Spec)
	}
	if err == nil && begin != nil { // a task that has not begun cannot be awaited
		start := begin
		begin = func() {
			start()
			lease.add(ctx, rec.ID)
		}
	} else if err == nil {
		lease.add(ctx, rec.ID)
	}
	return rec, begin, err
}
