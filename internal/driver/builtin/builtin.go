// Package builtin has the list of all kinds of tasks.
//
// It creates the drivers of a session and their inputs. No other package names a driver, but package tasks, which has
// commands alone. It starts nothing.
package builtin

import (
	"encoding/json"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/driver/workflow"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Kinds makes drivers.
type Kinds struct {
	Fleet *placement.Fleet // nil: no task is done by workers

	shell    *shell.Driver
	monitors *monitor.Driver
	remote   *remote.Driver  // nil: no work is done elsewhere
	mcp      *mcptask.Driver // nil: no call of a tool is a task
	others   acpclient.Config
}

// New makes the kinds of one session. A nil fleet has no workers, and a nil elsewhere no agents on
// other machines; calls makes no driver without Open.
func New(c shell.Config, fleet *placement.Fleet, calls mcptask.Config, elsewhere *remote.Driver) *Kinds {
	k := &Kinds{Fleet: fleet, remote: elsewhere, shell: shell.New(c),
		monitors: monitor.New(c.Keeper)}
	k.others.Keeper, k.others.Table = c.Keeper, new(process.Table)
	if calls.Open != nil {
		k.mcp = mcptask.New(calls)
	}
	return k
}

// Work is a driver with its input.
type Work struct {
	Driver task.Driver
	Input  json.RawMessage
}

// Command is a shell command of a client.
func (k *Kinds) Command(client shell.Client, c shell.Command) Work {
	d, input := k.shell.Command(client, c)
	return Work{Driver: d, Input: input}
}

// CommandAt is a shell command that a worker runs.
func (k *Kinds) CommandAt(want placement.Want, c shell.Command) Work {
	d, input := k.shell.Command(shell.Client{}, c)
	return Work{Driver: k.Fleet.Driver(d, &want), Input: input}
}

// Agent is a subagent that assemble puts together.
func (k *Kinds) Agent(assemble subagent.Assemble, in subagent.Input) Work {
	return Work{Driver: subagent.New(assemble), Input: encode(in)}
}

// Teammate is an agent that assemble puts together and that stays for messages.
func (k *Kinds) Teammate(assemble subagent.Assemble, in subagent.Input) Work {
	return Work{Driver: subagent.NewTeammate(assemble), Input: encode(in)}
}

// AgentOfOthers is an agent of another vendor. assemble puts its conversation together, with the
// agent as its model, which it opens. version is the version of this program.
func (k *Kinds) AgentOfOthers(
	version string, teammate bool, assemble func(*acpclient.Agent) subagent.Assemble, in subagent.Input,
) Work {
	c := k.others
	c.Version = version
	d := acpclient.New(c, func(a *acpclient.Agent) task.Driver {
		if teammate {
			return subagent.NewTeammate(assemble(a))
		}
		return subagent.New(assemble(a))
	})
	return Work{Driver: d, Input: encode(in)}
}

// Dream is a consolidation of memory. A later host does not adopt one whose host died:
// the next process that looks at the lock on disk restores it.
func (k *Kinds) Dream(c dream.Config, in dream.Input) Work {
	return Work{Driver: dream.New(c), Input: encode(in)}
}

// Monitor is something that a client watches.
func (k *Kinds) Monitor(client monitor.Client, w monitor.Watch) Work {
	return Work{Driver: k.monitors.For(client, w), Input: encode(w)}
}

// MCPTask is a call of a tool that runs as a task at its server. made is called when the
// server has made the task, with the server's immediate text for a model.
func (k *Kinds) MCPTask(made func(immediate string), c mcptask.Call) Work {
	return Work{Driver: k.mcp.For(made), Input: encode(c)}
}

// Elsewhere reports whether agents can work elsewhere without a named service.
func (k *Kinds) Elsewhere() bool { return k.remote != nil && k.remote.Usable() }

// Remote is work of an agent elsewhere. env is the environment of a client, which may have tokens that the session does
// not have.
func (k *Kinds) Remote(r control.RemoteRequest, env []string) (Work, error) {
	d, job, err := k.remote.Job(r, env)
	return Work{Driver: d, Input: encode(job)}, err
}

// Workflow is a workflow; steps performs its steps. A later host does not adopt a workflow
// whose host died: somebody gives it a further run.
func (k *Kinds) Workflow(steps workflow.Steps, in workflow.Input) Work {
	return Work{Driver: workflow.New(steps), Input: encode(in)}
}

// For returns the driver that can say what became of old work of a kind, or nil for a kind whose work
// ends with its host. Agents go on by [Kinds.Adopting].
func (k *Kinds) For(kind task.Kind) task.Driver {
	switch {
	case kind == task.LocalBash && k.Fleet != nil:
		return k.Fleet.Driver(k.shell, nil)
	case kind == task.LocalBash:
		return k.shell
	case kind == task.MonitorMCP:
		return k.monitors
	case kind == task.RemoteAgent && k.remote != nil:
		return k.remote
	case kind == task.MCPTask && k.mcp != nil:
		return k.mcp
	}
	return nil
}

// Adopting is For in a session that can put its agents together again, as far as they are adopted.
func (k *Kinds) Adopting(kind task.Kind, assemble subagent.Assemble, adopts func(task.Record) bool) task.Driver {
	if kind == task.LocalAgent {
		return subagent.NewAdopting(assemble, adopts)
	}
	return k.For(kind)
}

// encode cannot fail: inputs are structs of strings and numbers.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
