package agents

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/monitortool"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// monitorTool is the tool Monitor of an agent with the given other tools.
func (k *Environment) monitorTool(tools []agent.Tool) []agent.Tool {
	me, s := k.Me, k.s
	if !s.Options.Monitors.Enabled || s.Options.Tasks.DisableBackground || me.workspace != nil {
		return nil
	}
	return []agent.Tool{
		monitortool.New(monitortool.Config{
			Monitors: k.Monitors(),
			Area: confine.Area{Root: me.Cwd, Dirs: append(slices.Clone(me.Rules.Dirs), s.Place.Tasks()),
				Outside: func(tool, real string) bool { return k.Gate().MayUse(tool, real) }},
			Cwd:      bashCwd(tools),
			Unless:   func() string { return k.runtime().unless(true) },
			Commands: me.Tools == nil || slices.Contains(me.Tools, "Bash"),
		}),
	}
}

// Monitors starts monitors for the agent.
func (k *Environment) Monitors() monitortool.Monitors { return &monitors{k.runtime(), k} }

// monitors starts monitors for one agent.
type monitors struct {
	rt *Runtime
	k  *Environment
}

var _ monitortool.Monitors = (*monitors)(nil)

// Monitor implements [monitortool.Monitors].
func (m *monitors) Monitor(ctx context.Context, r monitortool.Request) (task.Record, error) {
	s := m.rt.s
	spec := m.rt.spec(r.ToolUseID, true)
	spec.Description, spec.Command, spec.Timeout, spec.Cwd = r.Description, r.Line, r.Timeout, r.Cwd
	var bounded sandboxes.Start
	if r.Line != "" {
		var err error
		if bounded, err = m.rt.bounded(r.Line, false); err != nil {
			return task.Record{}, &toolkit.Refusal{Text: err.Error()}
		}
	}
	spec.Sandbox = bounded.Held
	start := s.monitor(spec, monitor.Client{
		Env: bounded.Environ(process.ChildEnv(m.rt.Env)), Subscribe: m.k.subscribe, Fork: bounded.Fork, Made: bounded.Made,
		MayOpen: func(f *os.File) bool { return m.k.Gate().MayOpen(f, false) }},
		monitor.Watch{Line: r.Line, Cwd: r.Cwd, File: r.File, Server: r.Server, URI: r.URI, Match: r.Match})
	rec, err := s.Tasks.Start(ctx, start.Driver, start.Spec)
	if err != nil {
		return rec, refused(err)
	}
	m.rt.know(rec.ID)
	AwaitWatch(ctx, s.Tasks, s.Log, rec.ID)
	return rec, nil
}

// watchWait limits how long the start of a monitor waits until it is ready, since a server may
// be slow.
const watchWait = 5 * time.Second

// AwaitWatch returns when a monitor is ready, so that nothing after its start is missed; when
// it has ended or waits for a slot; or after watchWait.
func AwaitWatch(ctx context.Context, tasks *supervise.Supervisor, log *journal.Journal, id task.ID) {
	ctx, cancel := context.WithTimeout(ctx, watchWait)
	defer cancel()
	for {
		committed := log.NextCommit()
		r, _ := tasks.Get(id)
		command := r.Status == task.Running && r.Process != nil
		if command || r.Status.Terminal() || r.Progress != nil || r.Paused {
			return
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return
		}
	}
}
