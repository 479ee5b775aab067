package agents

import (
	"os"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/skilltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/todotools"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/internal/tool/webtool"
)

// tools creates the tools of the agent, with their own state.
func (k *Environment) tools() []agent.Tool {
	me, s := k.Me, k.s
	rt := k.runtime()
	dirs := slices.Clone(me.Rules.Dirs)
	written := dirs
	if me.Depth == 0 {
		written = append(slices.Clip(dirs), s.Place.Reports())
	}
	may := func(path string) bool { return k.Gate().MayRead(path) }
	outside := func(tool, real string) bool { return k.Gate().MayUse(tool, real) }
	shells := shelltool.Config{Shells: rt, Root: me.Cwd, TempDir: s.Place.Scratch(),
		OutputLimit: s.Options.Tasks.OutputLength, Sandbox: s.sandboxes.On(me.sandbox),
		Functions: slices.ContainsFunc(me.Env, func(kv string) bool {
			return strings.HasPrefix(kv, "BASH_FUNC_") || strings.HasPrefix(kv, "BASH_ENV=")
		})}
	if me.workspace != nil {
		shells.TempDir, shells.Far = "", true // a command there cannot write into a file of this machine
	}
	all := []agent.Tool{shelltool.New(shells)}
	here := append([]string{s.Place.Tasks(), s.Place.HookOutputs()}, s.memoryDirs()...)
	onFiles := files.New(confine.Area{Root: me.Cwd, Dirs: written, Outside: outside,
		MayOpen: func(f *os.File, change bool) bool { return k.Gate().MayOpen(f, change) }}, here...)
	onFiles = append(onFiles, search.New(confine.Area{Root: me.Cwd, Dirs: dirs, Outside: outside, MayRead: may})...)
	all = append(all, k.atWorkspace(onFiles, here)...)
	all = append(
		all,
		tasktools.New(
			tasktools.Config{Tasks: rt, OutputLimit: s.Options.Tasks.OutputLength,
				Remote: s.kinds.Elsewhere(), Workers: s.cfg.Workers,
				Solo: me.Tools != nil && !slices.Contains(me.Tools, "SendMessage")},
		)...)
	all = append(all, tasktools.NewList(rt), tasktools.NewSend(rt), tasktools.NewRead(rt, s.Options.Tasks.OutputLength))
	all = append(all, usertools.NewIntent())
	all = append(all, k.monitorTool(all)...)
	if me.teammate != nil && me.Rules.Mode == policy.Plan {
		all = append(all, tasktools.NewSubmitPlan(planner{k}))
	}
	if me.live != nil { // in every mode: a list of tools that changes voids the cache of the provider
		all = append(all, tasktools.NewExitPlanMode(mainPlanner{k}))
	}
	if s.cfg.Skills != nil {
		all = append(all, skilltool.New(s.cfg.Skills, k.used))
	}
	if s.cfg.Todos != nil {
		all = append(
			all,
			todotools.New(todotools.Config{
				Store:  s.cfg.Todos,
				Caller: rt.name(),
				Main:   me.Depth == 0,
				Hooks:  todoHooks{k},
				Assign: s.Assign,
			})...)
	}
	if s.cfg.Web != nil {
		all = append(all, webtool.New(s.cfg.Web))
	}
	if me.Depth == 0 && s.cfg.AskWait > 0 {
		all = append(all, usertools.NewAsk(k.ask))
	}
	all = append(all, s.cfg.Tools...)
	all = append(all, k.board()...)
	if me.workspace == nil { // steps of a workflow work in a folder of this machine
		all = append(all, k.workflowTool(rt))
	}
	deepest := me.Depth >= s.Options.Limits.Depth
	return slices.DeleteFunc(all, func(t agent.Tool) bool {
		name := t.Spec().Name
		return me.Tools != nil && !slices.Contains(me.Tools, name) || deepest && name == "Agent"
	})
}

// bashCwd finds the tool that keeps a working folder from call to call: paths of its commands
// are judged relative to it.
func bashCwd(tools []agent.Tool) func() string {
	for _, t := range tools {
		if c, ok := t.(interface{ Cwd() string }); ok {
			return c.Cwd
		}
	}
	return nil
}

// board returns the board tool of an agent whose definition names it.
func (k *Environment) board() []agent.Tool {
	store := k.s.cfg.Memory
	if store == nil || !slices.Contains(k.Me.Tools, boardtool.Name) {
		return nil
	}
	return []agent.Tool{boardtool.New(store, k.Me.name())}
}

// reached adds fail points to calls of tools: the agent does not know them.
func reached(e agent.Event) {
	switch e.Kind {
	case agent.ToolStartEvent:
		_ = failpoint.Hit("call/begun")
	case agent.ToolDoneEvent:
		_ = failpoint.Hit("call/done")
	}
}

// memoryDirs are folders that agents may read as memory.
func (s *Set) memoryDirs() []string {
	if s.cfg.Memory == nil {
		return nil
	}
	return []string{s.cfg.Memory.Dir()}
}
