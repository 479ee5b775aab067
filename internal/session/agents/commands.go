package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/task"
)

// Names of the pools.
const (
	MonitorPool = "monitors"
	RemotePool  = "remote"
	WorkerPool  = "workers" // of tasks on other machines: they need no process here
)

// Command is a command before its start.
func (s *Set) Command(r control.StartRequest, spec task.Spec, client shell.Client) (supervise.Starting, error) {
	if r.On != "" {
		return s.commandAt(r, spec, client)
	}
	var start sandboxes.Start
	if r.ByModel || r.Shell.Sandbox {
		var err error
		wish := sandboxes.Wish{Folders: []string{r.Cwd}}
		if r.Shell.Sandbox {
			wish.Mode, wish.Tell = sandboxes.Best, !r.ByModel
			if len(r.Shell.Folders) > 0 && !r.ByModel {
				wish.Folders = r.Shell.Folders
			}
		}
		if start, err = s.sandboxes.Command(wish); err != nil {
			return supervise.Starting{}, control.Refuse(control.Unavailable, err.Error(), "")
		}
	}
	client.Fork, client.Made, client.Env, spec.Sandbox = start.Fork, start.Made, start.Environ(client.Env), start.Held
	made := s.kinds.Command(client, tasks.CommandOf(r))
	spec.Input = made.Input
	tasks.Describe(r, &spec)
	err := s.banned(r, spec.Command)
	_ = failpoint.Hit("start/judged")
	return supervise.Starting{Driver: made.Driver, Spec: spec}, err
}

// commandAt is a command for a worker before its start.
func (s *Set) commandAt(r control.StartRequest, spec task.Spec, client shell.Client) (supervise.Starting, error) {
	refuse := func(why, fix string) (supervise.Starting, error) {
		return supervise.Starting{}, control.Refuse(control.Invalid, why, fix)
	}
	if err := fleetwire.CheckName("worker", r.On); err != nil {
		return refuse(err.Error(), "`drover workers` lists them")
	}
	if r.ByModel {
		return refuse("a command that a model has chosen, at a worker: nothing here says which bounds hold there",
			"leave out on")
	}
	if r.Shell.TTY && client.Tee != nil {
		return refuse("a command with a terminal at a worker, in the foreground",
			"add -d, and type into it with `drover send`")
	}
	var env []string
	for _, name := range r.EnvNames {
		value, ok := lookup(r.Env, name)
		if !ok {
			return refuse(fmt.Sprintf("the variable %.80q is not set", name), "set it, or leave it out")
		}
		env = append(env, name+"="+value)
	}
	want := placement.Want{
		Job: fleetwire.Job{Name: r.Name, Description: r.Description, Args: r.Shell.Args, Line: r.Shell.Line,
			TTY: r.Shell.TTY, Sandbox: r.Shell.Sandbox, Env: env},
	}
	if client.Tee != nil {
		want.Tee = client.Tee.Stdout
	}
	if !r.NoFolder {
		want.Folder, want.Untracked, want.Sync = r.Cwd, r.Untracked, r.Sync
	}
	made := s.kinds.CommandAt(want, tasks.CommandOf(r))
	tasks.Describe(r, &spec)
	spec.On, spec.Input, spec.Pool = r.On, made.Input, WorkerPool
	return supervise.Starting{Driver: made.Driver, Spec: spec}, s.banned(r, spec.Command)
}

func lookup(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) { // the last one counts
		if key, value, ok := strings.Cut(kv, "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}

// banned refuses the command of a guarded request that a rule denies.
func (s *Set) banned(r control.StartRequest, line string) error {
	if !r.ByModel {
		return nil
	}
	rules := s.cfg.Rules
	rules.Cwd = r.Cwd
	denial, err := s.deniedBy(rules, line)
	if denial != nil {
		err = control.Refuse(control.Invalid,
			fmt.Sprintf("the rule %s denies this command: %s", denial.Rule, denial.Reason), "")
	}
	return err
}

// deniedBy returns the denial of the first of some command lines that a rule denies; nil: none is.
func (s *Set) deniedBy(rules policy.Rules, lines ...string) (*policy.Verdict, error) {
	gate, err := s.gates.New(rules)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		input, err := json.Marshal(map[string]string{"command": line})
		if err != nil {
			return nil, fmt.Errorf("permissions: %w", err)
		}
		if v := gate.Decide(agent.Call{Name: "Bash", Input: input}); v.Decision == policy.Deny && v.Rule != "" {
			return &v, nil
		}
	}
	return nil, nil
}

// clientEnv returns the environment of a client for agents.
func (s *Set) clientEnv(env []string) []string {
	if s.cfg.Client == nil {
		return env
	}
	return s.cfg.Client(env)
}

// ChildEnv returns the environment of commands.
func (s *Set) ChildEnv(env []string) []string { return process.ChildEnv(s.clientEnv(env)) }

// monitor is a monitor before its start.
func (s *Set) monitor(spec task.Spec, c monitor.Client, what monitor.Watch) supervise.Starting {
	made := s.kinds.Monitor(c, what)
	spec.Input, spec.Pool, spec.Priority = made.Input, MonitorPool, task.Next
	if spec.Description == "" {
		spec.Description = excerpt.Line(what.Subject(), 80)
	}
	return supervise.Starting{Driver: made.Driver, Spec: spec}
}

// ClientMonitor prepares a monitor for a client.
func (s *Set) ClientMonitor(r control.StartRequest, spec task.Spec) (supervise.Starting, error) {
	what, err := s.watched(r)
	if err != nil {
		return supervise.Starting{}, err
	}
	if spec.Cwd = what.Cwd; r.Monitor.Shell != nil {
		spec.Command = cmp.Or(what.Line, shell.Quote(what.Args...))
		spec.Description = cmp.Or(spec.Description, lifecycle.Shortened(spec.Command, task.MaxDescription))
		if err := s.banned(r, spec.Command); err != nil {
			return supervise.Starting{}, err
		}
	}
	client := monitor.Client{Env: s.ChildEnv(r.Env), Subscribe: s.subscribe}
	if r.Monitor.Shell != nil && r.ByModel {
		bounded, err := s.sandboxes.Command(sandboxes.Wish{Folders: []string{r.Cwd}})
		if err != nil {
			return supervise.Starting{}, control.Refuse(control.Unavailable, err.Error(), "")
		}
		client.Fork, client.Made = bounded.Fork, bounded.Made
		client.Env, spec.Sandbox = bounded.Environ(client.Env), bounded.Held
	}
	start := s.monitor(spec, client, what)
	if err := start.Driver.Check(start.Spec.Input); err != nil {
		return supervise.Starting{}, control.Refuse(control.Invalid, err.Error(), "")
	}
	return start, nil
}

// watched returns the subject of a monitor of a client, or why it cannot be watched.
func (s *Set) watched(r control.StartRequest) (monitor.Watch, error) {
	m := r.Monitor
	what := monitor.Watch{File: m.File, Server: m.Server, URI: m.URI, Match: m.Match}
	if m.Shell != nil {
		what.Args, what.Line, what.Cwd = m.Shell.Args, m.Shell.Line, r.Cwd
	}
	if what.File != "" && filepath.IsAbs(what.File) {
		what.File = filepath.Clean(what.File)
	}
	refuse := func(code control.Code, why, fix string) (monitor.Watch, error) {
		return what, control.Refuse(code, why, fix)
	}
	switch {
	case !s.Options.Monitors.Enabled:
		return refuse(control.Unavailable, "monitors are turned off", "set monitors.enabled to true in the settings")
	case r.Keep:
		return refuse(control.Invalid, "a monitor does not outlive its host", "leave out keep")
	}
	return what, nil
}

// remoteWork is remote work before its start. env is the environment of a client that requests it.
func (s *Set) remoteWork(r control.RemoteRequest, spec task.Spec, env []string) (supervise.Starting, error) {
	made, err := s.kinds.Remote(r, env)
	if err != nil {
		return supervise.Starting{}, err
	}
	spec.Input, spec.Pool = made.Input, RemotePool
	spec.AgentType, spec.Model, spec.Prompt = r.AgentType, r.Model, r.Prompt
	if spec.Description == "" {
		spec.Description = excerpt.Line(r.Prompt, 60)
	}
	return supervise.Starting{Driver: made.Driver, Spec: spec}, nil
}

// ClientRemote prepares remote work for a client.
func (s *Set) ClientRemote(r control.StartRequest, spec task.Spec) (supervise.Starting, error) {
	if r.Keep {
		return supervise.Starting{}, control.Refuse(control.Invalid, "remote work goes on without its host anyway",
			"leave --keep out")
	}
	return s.remoteWork(*r.Remote, spec, r.Env)
}

// subscribe lets a client watch resources of the session's servers.
func (s *Set) subscribe(ctx context.Context, server, uri string) (monitor.Subscription, error) {
	return subscription(s.servers.Subscribe(ctx, server, uri))
}

// subscription converts a resource for a monitor, without a nil pointer in an interface.
func subscription(r *servers.Resource, err error) (monitor.Subscription, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}
