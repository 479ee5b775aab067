package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/tool/monitortool"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

const monitorPool = "monitors"

// monitorTool is the tool Monitor of the agent, which has the others already.
func (k *agentEnvironment) monitorTool(rt *runtime, tools []agent.Tool) []agent.Tool {
	me, s := k.me, k.me.s
	if s.cfg.Limits.NoMonitors || s.cfg.Limits.NoBackground {
		return nil
	}
	return []agent.Tool{
		monitortool.New(
			monitortool.Config{
				Monitors: &monitors{rt, k},
				Root:     me.cwd,
				Dirs:     append(slices.Clone(me.rules.Dirs), s.cfg.Place.Tasks()),
				Cwd:      bashCwd(tools),
				Commands: me.tools == nil || slices.Contains(me.tools, "Bash"),
			},
		),
	}
}

// monitors are those of an agent.
type monitors struct {
	rt *runtime
	k  *agentEnvironment
}

var _ monitortool.Monitors = (*monitors)(nil)

// Monitor implements [monitortool.Monitors].
func (m *monitors) Monitor(ctx context.Context, r monitortool.Request) (task.Record, error) {
	s := m.rt.s
	spec := m.rt.spec(r.ToolUseID, true)
	spec.Description, spec.Command, spec.Timeout, spec.Cwd = r.Description, r.Line, r.Timeout, r.Cwd
	w := s.monitor(&spec, monitor.Client{Env: shell.ChildEnv(m.rt.env), Subscribe: m.k.subscribe,
		MayOpen: func(f *os.File) bool { return m.k.rule().MayOpen(f, false) }},
		monitor.Watch{Line: r.Line, Cwd: r.Cwd, File: r.File, Server: r.Server, URI: r.URI, Match: r.Match})
	rec, err := s.sup.Start(ctx, w.Driver, spec)
	var limit *supervise.LimitError
	if errors.As(err, &limit) || errors.Is(err, supervise.ErrFrozen) || errors.Is(err, supervise.ErrClosing) {
		return rec, &toolkit.Refusal{Text: err.Error()}
	}
	if err == nil {
		m.rt.know(rec.ID)
	}
	return rec, err
}

// monitor completes what a monitor is started with.
func (s *Session) monitor(spec *task.Spec, c monitor.Client, w monitor.Watch) builtin.Work {
	work := s.kinds.Monitor(c, w)
	spec.Input, spec.Pool, spec.Priority = work.Input, monitorPool, task.Next
	if spec.Description == "" {
		spec.Description = firstLine(w.Subject(), 80)
	}
	return work
}

// startMonitor records a monitor for a client, which waits for begin.
func (s *Session) startMonitor(
	ctx context.Context,
	r control.StartRequest,
	spec task.Spec,
) (rec task.Record, begin func(), err error) {
	w, err := s.watched(r)
	if err != nil {
		return rec, nil, err
	}
	if spec.Cwd = w.Cwd; r.Monitor.Shell != nil {
		if spec.Command = w.Line; spec.Command == "" {
			spec.Command = shell.Quote(w.Args...)
		}
		if spec.Description == "" {
			spec.Description = lifecycle.Shortened(spec.Command, task.MaxDescription)
		}
		if err := s.banned(r, spec.Command); err != nil {
			return rec, nil, err
		}
	}
	work := s.monitor(&spec, monitor.Client{Env: s.childEnv(r.Env), Subscribe: s.subscribe}, w)
	if err := work.Driver.Check(spec.Input); err != nil {
		return rec, nil, &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	return s.sup.Record(ctx, work.Driver, spec)
}

// watched is what a client wants to watch, or why that is not possible.
func (s *Session) watched(r control.StartRequest) (monitor.Watch, error) {
	m := r.Monitor
	w := monitor.Watch{File: m.File, Server: m.Server, URI: m.URI, Match: m.Match}
	if m.Shell != nil {
		w.Args, w.Line, w.Cwd = m.Shell.Args, m.Shell.Line, r.Cwd
	}
	if w.File != "" && filepath.IsAbs(w.File) {
		w.File = filepath.Clean(w.File)
	}
	refuse := func(code control.Code, why, mend string) (monitor.Watch, error) {
		return w, &control.Error{Code: code, Message: why, Fix: mend}
	}
	switch {
	case s.cfg.Limits.NoMonitors:
		return refuse(control.Unavailable, "monitors are turned off", "set monitors.enabled to true in the settings")
	case r.Keep:
		return refuse(control.Invalid, "a monitor does not outlive its host", "leave out keep")
	}
	return w, nil
}

// EndMonitors stops all monitors, because nobody is left to be told, and returns
// those that were at work.
func (s *Session) EndMonitors(ctx context.Context) ([]task.Record, error) {
	var live []task.Record
	var ids []task.ID
	for _, r := range s.sup.Living() {
		if r.Traits().Work == task.ByEvents {
			live, ids = append(live, r), append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	_, err := s.sup.Stop(
		ctx,
		ids,
		supervise.StopRequest{
			Cause: task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Detail: "the conversation is over"},
		},
	)
	return live, err
}
