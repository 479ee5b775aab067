// Package builtin has the list of all kinds of tasks.
//
// It creates the drivers of a session and their inputs; no other package names a
// driver. It starts nothing.
package builtin

import (
	"encoding/json"

	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Kinds makes drivers.
type Kinds struct {
	monitors *monitor.Driver

	shell  *shell.Driver
	remote *remote.Driver   // nil: no work is done elsewhere
	agents *subagent.Driver // of agents that an earlier host has left; nil: none go on
	mcp    *mcptask.Driver
	others acpclient.Config
	fleet  *placement.Fleet // nil: no task is done by workers
}

// New makes the kinds of one session.
func New(c shell.Config) *Kinds {
	k := &Kinds{shell: shell.New(c), monitors: monitor.New(c.Keeper)}
	k.others.Keeper, k.others.Table = c.Keeper, new(process.Table)
	return k
}

// Work is a driver and what it is started with.
type Work struct {
	Driver task.Driver
	Input  json.RawMessage
}

// Command is a shell command of a client.
func (k *Kinds) Command(client shell.Client, c shell.Command) Work {
	d, input := k.shell.Command(client, c)
	return Work{Driver: d, Input: input}
}

// UseFleet makes workers do tasks. It is called once, before For is.
func (k *Kinds) UseFleet(f *placement.Fleet) { k.fleet = f }

// CommandAt is a shell command that a worker runs.
func (k *Kinds) CommandAt(want placement.Want, c shell.Command) Work {
	d, input := k.shell.Command(shell.Client{}, c)
	return Work{Driver: k.fleet.Driver(d, &want), Input: input}
}

// Agent is a subagent that assemble puts together.
func (k *Kinds) Agent(assemble subagent.Assemble, in subagent.Input) Work {
	return Work{Driver: subagent.New(assemble), Input: encode(in)}
}

// UseParked makes the driver of parked agents that an earlier host has left. It is called once,
// before For is.
func (k *Kinds) UseParked(assemble subagent.Assemble, adopts func(task.Record) bool) {
	k.agents = subagent.NewAdopting(assemble, adopts)
}

// For returns the driver that can say what became of old work of a kind, or nil
// when nobody can.
func (k *Kinds) For(kind task.Kind) task.Driver {
	if kind == task.LocalBash && k.fleet != nil {
		return k.fleet.Driver(k.shell, nil)
	}
	if kind == task.LocalBash {
		return k.shell
	}
	if kind == task.MonitorMCP {
		return k.monitors
	}
	if kind == task.RemoteAgent && k.remote != nil {
		return k.remote
	}
	if kind == task.LocalAgent && k.agents != nil {
		return k.agents
	}
	if kind == task.MCPTask && k.mcp != nil {
		return k.mcp
	}
	return nil
}

// encode cannot fail: inputs are structs of strings and numbers.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
