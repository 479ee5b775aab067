package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/tool/findtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Environment is the state of one agent while its conversation is open: its tools with their
// state, its gate, its hooks, and the reminders it has received.
type Environment struct {
	s         *Set
	Me        Caller
	def       subagent.Definition // of the main agent: its name only
	Runner    *hook.Runner
	Hooks     *hook.Loop
	narrow    *policy.Gate
	gated     chan struct{} // closed when there is a gate
	wide      *policy.Gate  // of a teammate with an approved plan; nil: none
	newGate   func(policy.Mode) (*policy.Gate, error)
	used      *skill.Ledger
	Granted   Granted // of the main agent
	reminders *environment.Reminders
	limits    *budget.Limits
	Servers   *servers.Agent
	Config    agent.Config

	waited atomic.Bool // for a call, longer than longCall

	Resumed bool   // it continues an earlier conversation
	place   string // text about its place for an isolated agent
}

// newEnvironment creates the environment of an agent. transcript is the path of its
// conversation. The caller closes it.
func (s *Set) newEnvironment(
	ctx context.Context, me Caller, def subagent.Definition, transcript string,
) (_ *Environment, err error) {
	me.sandbox = sandboxes.Stricter(me.sandbox, sandboxes.Mode(def.Sandbox))
	k := &Environment{s: s, Me: me, def: def, used: &skill.Ledger{}, gated: make(chan struct{}),
		limits: s.budgets.Limits(me.ID, me.MaxTurns)}
	choice, access := provider.Choice{Name: cmp.Or(me.Model, def.Name)}, me.access()
	if def.ACP == nil {
		if choice, err = s.cfg.Models.Find(me.Model, home.Lookup(me.Env), me.origin()); err != nil {
			return nil, err
		}
	} else { // it has its own
		access = servers.Access{Tools: []string{}}
	}
	k.openServers(ctx, access)
	defer func() {
		if err != nil {
			k.Servers.Close()
		}
	}()
	tools, deferred := append(k.tools(), k.Servers.Tools()...), []string(nil)
	if !slices.Contains(def.DisallowedTools, findtool.Search) {
		tools, deferred = environment.Defer(tools, k.loaded)
	}
	if err = k.MakeGate(tools); err != nil {
		return nil, err
	}
	close(k.gated)
	k.remindOf(tools)
	k.openHooks(k.base(tools, transcript))
	k.Config = k.config(choice.Name)
	if def.ACP == nil {
		k.Config.Tools, k.Config.Deferred = tools, deferred
		if err = k.useModel(choice); err != nil {
			return nil, err
		}
	}
	s.edits.Open(me.ID)
	return k, nil
}

// openServers connects the agent to its MCP servers.
func (k *Environment) openServers(ctx context.Context, access servers.Access) {
	s, id := k.s, k.Me.ID
	k.Servers = s.servers.Open(ctx, servers.AgentConfig{
		Access:     access,
		Ask:        k.ask,
		Attended:   s.wait(task.Form) > 0,
		First:      k.Me.Depth == 0 && s.mainAgent() == nil,
		Limit:      s.Options.Tasks.OutputLength,
		Report:     func(text string) { s.Report.Say(id, text) },
		ReportOnce: s.Report.Once,
		RunTask:    k.mcpTask,
		Sample:     k.sample,
		Reach:      k.reachServer,
	})
}

// remindOf makes the reminders of an agent that has these tools.
func (k *Environment) remindOf(tools []agent.Tool) {
	names := environment.ToolNames(tools)
	k.reminders = k.s.reminders(k.Me, k.def.CriticalReminder,
		func(name string) bool { return slices.Contains(names, name) })
	k.remindOfPlanMode(names)
	k.reminders.Add(environment.List{Name: "limits", Head: "Most of a limit of your work is used:", Items: k.limits.Due,
		Foot: "\n\nBring what matters to an end, and hand back what you have before it is reached."})
	k.reminders.Add(environment.List{Name: "mcp", Head: "MCP servers:", Items: k.Servers.Late})
}

// openHooks starts what runs the hooks of the agent.
func (k *Environment) openHooks(base hook.Base) {
	s := k.s
	k.Runner = hook.NewRunner(s.hooksOf(k.def), base)
	s.mu.Lock()
	s.runners[k.Runner] = struct{}{}
	s.mu.Unlock()
	k.Hooks = hook.NewLoop(k.Runner, k.background)
	if m := k.Me.teammate; m != nil {
		k.Hooks.Teammate(m.team.Name, m.team.Team, m.ends)
	}
}

// config is what the loop of every agent has, also of another vendor's.
func (k *Environment) config(model string) agent.Config {
	s, me := k.s, k.Me
	c := agent.Config{
		ModelName: model,
		MaxTurns:  me.MaxTurns,
		Gate:      hook.NewGate(k.Runner, judge{k}),
		Hooks:     k.Hooks,
		Sees:      choose.Sees,
		Meter:     s.budgets.Meter(me.ID, me.parent, k.def.Name, me.Depth > 0),
		Agent:     k.def.Name,
		SessionID: string(s.Info.Session),

		WaitWhilePaused: func(ctx context.Context) error {
			if h, ok := me.live.task(); ok {
				return h.WaitWhilePaused(ctx)
			}
			return s.Tasks.WaitWhilePaused(ctx, me.ID)
		},
		On: func(e agent.Event) {
			reached(e)
			k.edited(e)
			if e.Kind == agent.ToolDoneEvent && e.Duration > longCall {
				k.waited.Store(true)
			}
			k.limits.On(e)
			s.mail.On(me.ID, e)
			if s.cfg.On != nil {
				s.cfg.On(me.ID, e)
			}
		},
	}
	if me.Depth > 0 {
		c.AgentID = string(me.ID)
	}
	if me.Host != nil {
		c.WaitWhilePaused = me.Host.WaitWhilePaused
	}
	return c
}

// useModel adds what the loop of our own agents has: a model with others in its place,
// instructions, reminders, compaction.
func (k *Environment) useModel(choice provider.Choice) (err error) {
	s, me, c := k.s, k.Me, &k.Config
	c.Model, c.System, c.Reminders = choice.Model, s.systemPrompt(k.def, me), k.reminders
	c.Compaction, c.Clearing = k.compaction(choice.Name), &agent.Clearing{Keep: k.keepResult}
	if c.Fallback, err = s.fallbacks(me, choice.Name); err != nil {
		return err
	}
	if len(c.Fallback) == 0 { // else the last of those parks
		c.Model = s.parkable(me, choice.Model, choice.Provider)
	}
	c.HandBack, c.SharedHead, c.Waits = me.Depth > 0, me.Depth > 0, k.waits
	return nil
}

// loaded reports whether each request of the agent holds the schema of a tool, although most
// agents do not need it: its definition names it, or a reminder tells the agent to use it.
func (k *Environment) loaded(tool string) bool {
	switch tool {
	case "Skill":
		return len(k.s.cfg.Skills().All()) > 0
	case "SendMessage":
		return k.Me.teammate != nil
	case task.ExitPlanMode:
		return k.Me.Rules.Mode == policy.Plan
	}
	return slices.Contains(k.Me.named, tool)
}

func (k *Environment) Close() {
	k.Runner.Close()
	k.Servers.Close()
	s := k.s
	if _, moved := k.Me.live.task(); !moved { // else the conversation has it
		s.edits.Close(k.Me.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, k.Runner)
}

// start runs the start hooks, and returns the text before the prompt of a subagent: the output
// of the hooks, where it works, and its opening.
func (k *Environment) start(ctx context.Context) string {
	return k.first(ctx, func() string { return join([]string{k.Hooks.Start(ctx), k.place, k.opening()}) })
}

// first returns what the agent reads at its start.
func (k *Environment) first(ctx context.Context, text func() string) string {
	said, _ := k.s.cfg.Seam.Texts(ctx, k.Me.ID, environment.StartTexts, func() ([]string, error) {
		return []string{text()}, nil
	})
	return join(said)
}

// StartMain is start for the main agent.
func (k *Environment) StartMain(ctx context.Context) string {
	source := "startup"
	if k.Resumed {
		source = "resume"
	}
	return k.first(ctx, func() string { return join([]string{k.Runner.SessionStart(ctx, source), k.opening()}) })
}

// opening returns what an agent reads first: the skills of its definition, and its initial
// prompt. An agent that continues has read it already.
func (k *Environment) opening() string {
	if k.Resumed {
		return ""
	}
	var parts []string
	if find := k.s.cfg.Skills; find != nil {
		for _, name := range k.def.Skills {
			one, ok := find().Find(name)
			if !ok {
				k.s.Report.Say(k.Me.ID, fmt.Sprintf("agent %s: there is no skill %q", k.def.Name, name))
				continue
			}
			k.used.Record(one, time.Now())
			parts = append(parts, excerpt.Element("skill", strings.TrimSpace(one.Body), "name", one.Name))
		}
	}
	return join(append(parts, k.def.InitialPrompt))
}

// join joins non-empty texts with blank lines.
func join(parts []string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n\n")
}

// MakeGate makes the gate, with the rules of skills that the agent has used.
func (k *Environment) MakeGate(tools []agent.Tool) error {
	k.newGate = func(mode policy.Mode) (*policy.Gate, error) {
		r := k.rulesFor(tools)
		r.Mode = mode
		return k.s.gates.New(r)
	}
	var err error
	if k.narrow, err = k.newGate(k.Me.Rules.Mode); err != nil || !k.Me.widens() {
		return err
	}
	k.wide, err = k.newGate(k.Me.teammate.wide)
	return err
}

func (k *Environment) rulesFor(tools []agent.Tool) policy.Rules {
	r := k.Me.Rules
	r.Cwd, r.Tools = k.Me.Cwd, tools
	r.Bash = bashCwd(tools)
	r.Only = k.Granted.restricted
	r.More = func() []string { return slices.Concat(k.used.Rules(), k.Granted.allowed(), k.s.AllowedAlways()) }
	r.Headless = k.s.cfg.AskWait <= 0
	r.Answer = k.ask
	return r
}

// GateOf returns the current gate for a call: with what bounds the command that it starts. The first such
// call of a session opens the sandbox, which holds from then on.
func (k *Environment) GateOf(c agent.Call) *policy.Gate {
	gate := k.Gate()
	switch ws := k.Me.workspace; {
	case !gate.Starts(c):
		return gate
	case ws != nil:
		return gate.Within(policy.Bounds{Whole: ws.Bounded && k.s.sandboxes.Trusts(k.Me.sandbox)})
	}
	return gate.Within(k.s.sandboxes.Bounds(k.Me.sandbox))
}

// Gate returns the current gate, which does not know what bounds the commands.
func (k *Environment) Gate() *policy.Gate {
	if k.wide != nil && k.Me.teammate.approved.Load() {
		return k.wide
	}
	if k.Me.live != nil {
		if _, _, gate := k.Me.live.get(); gate != nil {
			return gate
		}
	}
	return k.narrow
}

// ask asks a question for the agent and waits for the answer.
func (k *Environment) ask(ctx context.Context, q task.Question) (task.Reply, error) {
	s := k.s
	wait := s.wait(q.Kind)
	if wait <= 0 {
		return task.Reply{Reason: "nobody is there to answer"}, nil
	}
	q.Agent = k.def.Name
	k.Runner.Notify(ctx, "permission_prompt", "", fmt.Sprintf("%s asks about %s", k.def.Name, q.Tool))
	s.Report.Say(k.Me.ID, fmt.Sprintf("%s asks whether it may use %s: see `drover approvals`", k.def.Name, q.Tool))
	q.Wait = wait
	if k.Me.Host != nil {
		return k.Me.Host.Ask(ctx, q)
	}
	if h, ok := k.Me.live.task(); ok {
		return h.Ask(ctx, q)
	}
	return s.Tasks.Ask(ctx, k.Me.ID, q)
}

// wait is how long a question waits for an answer; 0: no one can give an answer.
func (s *Set) wait(kind task.QuestionKind) time.Duration {
	if kind == task.Form {
		return max(s.cfg.AskWait, s.cfg.FormWait)
	}
	return s.cfg.AskWait
}

// runtime returns the runtime of the agent.
func (k *Environment) runtime() *Runtime {
	learned := func(id task.ID) { k.reminders.Know(taskList, string(id)) }
	return &Runtime{s: k.s, Caller: k.Me, learned: learned, reach: k.reach,
		writes: func(line string) []string { return k.Gate().Writes(line) }}
}

// edited is called for a call that has ended.
func (k *Environment) edited(e agent.Event) {
	if e.Kind != agent.ToolDoneEvent || e.Output.IsError || !environment.Writes(e.Call.Name) {
		return
	}
	var in struct {
		Path string `json:"file_path"`
	}
	if json.Unmarshal(e.Call.Input, &in) != nil || in.Path == "" {
		return
	}
	if path, ok := k.Me.within(in.Path); ok {
		k.s.edits.Record(worktree.Editor{Task: k.Me.ID, Name: k.Me.name()}, path)
	}
}

// access returns the servers that the agent may use.
func (me Caller) access() servers.Access {
	return servers.Access{Tools: me.Tools, Barred: me.barred, Own: me.own}
}

// subscribe lets the agent watch resources of its own servers.
func (k *Environment) subscribe(_ context.Context, server, uri string) (monitor.Subscription, error) {
	return subscription(k.Servers.Subscribe(server, uri))
}
