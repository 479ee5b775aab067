package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/hook"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/skill"
	"github.com/drover-dev/drover/internal/agentenv/todo"
	"github.com/drover-dev/drover/internal/agentenv/worktree"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/skilltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/todotools"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// mainName is how the main agent is called where agents have names.
const mainName = "main"

// agentEnvironment is what one agent has of its own while its conversation is open: its
// tools with their state, its gate, its hooks, what it has been told.
type agentEnvironment struct {
	me        caller
	def       subagent.Definition // of the main agent: its name only
	runner    *hook.Runner
	hooks     *hook.Loop
	gate      *permission.Gate
	wide      *permission.Gate // of a teammate whose plan was approved; nil: there is none
	newGate   func(permission.Mode) (*permission.Gate, error)
	used      *skill.Ledger
	granted   granted // by the command whose prompt is worked on; of the main agent
	reminders *environment.Reminders
	limits    *budget.Limits
	servers   *servers.Agent
	cfg       agent.Config

	resumed bool   // it goes on with an earlier conversation
	place   string // what an isolated agent is told of where it works
}

// newEnvironment makes that of an agent. transcript is where its conversation is kept.
// The caller closes it.
func (s *Session) newEnvironment(
	me caller,
	def subagent.Definition,
	transcript string,
) (_ *agentEnvironment, err error) {
	k := &agentEnvironment{me: me, def: def, used: &skill.Ledger{}, limits: s.budgets.Limits(me.id, me.maxTurns)}
	choice, err := s.cfg.Agents.Models.Find(me.model, home.Lookup(me.env), me.origin())
	if err != nil {
		return nil, err
	}
	k.servers = s.servers.Open(
		servers.AgentConfig{
			Access:     me.access(),
			Ask:        k.ask,
			Attended:   s.cfg.Agents.AskWait > 0,
			Limit:      s.cfg.Limits.OutputChars,
			Report:     func(text string) { s.say(me.id, text) },
			ReportOnce: s.sayOnce,
			RunTask:    k.mcpTask,
		},
	)
	tools := append(k.tools(), k.servers.Tools()...)
	defer func() {
		if err != nil {
			k.servers.Close()
		}
	}()
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Spec().Name
	}
	if err = k.rules(tools); err != nil {
		return nil, err
	}
	k.reminders = s.reminders(me, def.CriticalReminder, func(name string) bool { return slices.Contains(names, name) })
	k.reminders.Add(environment.List{Name: "limits", Head: "Most of a limit of your work is used:", Items: k.limits.Due,
		Foot: "\n\nBring what matters to an end, and hand back what you have before it is reached."})
	k.reminders.Add(environment.List{Name: "mcp", Head: "MCP servers:", Items: k.servers.Late})
	k.runner = hook.NewRunner(me.hooks(def), k.base(tools, transcript))
	s.mu.Lock()
	s.runners[k.runner] = struct{}{}
	s.mu.Unlock()
	k.hooks = hook.NewLoop(k.runner, k.background)
	if m := me.mate; m != nil {
		k.hooks.Teammate(m.team.Name, m.team.Team, m.ends)
	}
	k.cfg = agent.Config{
		Model:     choice.Model,
		ModelName: choice.Name,
		Tools:     tools,
		MaxTurns:  me.maxTurns,
		System: systemPrompt(
			def,
			me,
			s.cfg.Agents.Notes,
			s.started,
		),
		Gate:       hook.NewGate(k.runner, judge{k}),
		Hooks:      k.hooks,
		Reminders:  k.reminders,
		Compaction: k.compaction(choice.Name),
		Agent:      def.Name,
		AgentID:    string(me.id),
		SessionID:  string(s.cfg.Info.Session),
	}
	k.cfg.HandBack = me.depth > 0
	if me.depth == 0 {
		k.cfg.AgentID = ""
	}
	k.cfg.Hold = func(ctx context.Context) error { return s.sup.Hold(ctx, me.id) }
	if me.host != nil {
		k.cfg.Hold = me.host.Hold
	}
	k.cfg.Meter = s.budgets.Meter(me.id, me.parent, def.Name, me.depth > 0)
	k.cfg.On = func(e agent.Event) {
		reached(e)
		k.edited(e)
		k.limits.On(e)
		s.hops.on(me.id, e)
		if s.cfg.Agents.On != nil {
			s.cfg.Agents.On(me.id, e)
		}
	}
	s.edits.Open(me.id)
	return k, nil
}

func (k *agentEnvironment) close() {
	k.runner.Close()
	k.servers.Close()
	s := k.me.s
	s.edits.Close(k.me.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, k.runner)
}

// start is told to hooks, and gives what a subagent reads before its prompt: what
// they say, where it works, and its opening.
func (k *agentEnvironment) start(ctx context.Context) string {
	return join([]string{k.hooks.Start(ctx), k.place, k.opening()})
}

// opening is what an agent reads first: the skills of its definition, and how it
// is to begin. One that goes on has read it.
func (k *agentEnvironment) opening() string {
	if k.resumed {
		return ""
	}
	var parts []string
	if find := k.me.s.cfg.Agents.Skills; find != nil {
		for _, name := range k.def.Skills {
			one, ok := find().Find(name)
			if !ok {
				k.me.s.say(k.me.id, fmt.Sprintf("agent %s: there is no skill %q", k.def.Name, name))
				continue
			}
			k.used.Record(one, time.Now())
			parts = append(parts, fmt.Sprintf("<skill name=%q>\n%s\n</skill>", one.Name, strings.TrimSpace(one.Body)))
		}
	}
	return join(append(parts, k.def.InitialPrompt))
}

// join puts texts that are not empty below each other.
func join(parts []string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n\n")
}

// rules makes the gate, with the rules of skills that the agent has used.
func (k *agentEnvironment) rules(tools []agent.Tool) error {
	k.newGate = func(mode permission.Mode) (*permission.Gate, error) {
		r := k.rulesFor(tools)
		r.Mode = mode
		return k.me.s.gate(r)
	}
	var err error
	if k.gate, err = k.newGate(k.me.rules.Mode); err != nil || !k.me.widens() {
		return err
	}
	k.wide, err = k.newGate(k.me.mate.wide)
	return err
}

func (k *agentEnvironment) rulesFor(tools []agent.Tool) permission.Rules {
	r := k.me.rules
	r.Cwd, r.Tools, r.Bash, r.More = k.me.cwd, tools, bashCwd(
		tools,
	), func() []string { return slices.Concat(k.used.Rules(), k.granted.allowed(), k.me.s.always.all()) }
	r.Only = k.granted.restricted
	r.Headless = k.me.s.cfg.Agents.AskWait <= 0
	r.Answer = k.ask
	return r
}

// rule is the gate as it is now.
func (k *agentEnvironment) rule() *permission.Gate {
	if k.wide != nil && k.me.mate.approved.Load() {
		return k.wide
	}
	if k.me.live != nil {
		if _, _, gate := k.me.live.get(); gate != nil {
			return gate
		}
	}
	return k.gate
}

// gate makes one of rules, and tells the user what is wrong with those that were
// written for another program.
func (s *Session) gate(r permission.Rules) (*permission.Gate, error) {
	gate, notes, err := environment.NewGate(r, s.cfg.Agents.Foreign)
	for _, note := range notes {
		s.sayOnce(note)
	}
	return gate, err
}

// sayOnce tells the user something that would be the same for each agent.
func (s *Session) sayOnce(note string) {
	s.mu.Lock()
	again := s.noted[note]
	if s.noted == nil {
		s.noted = map[string]bool{}
	}
	s.noted[note] = true
	s.mu.Unlock()
	if !again {
		s.say(s.cfg.Info.Session, note)
	}
}

// ask puts a question of the agent to whoever can answer.
func (k *agentEnvironment) ask(ctx context.Context, q task.Question) (task.Reply, error) {
	s := k.me.s
	if s.cfg.Agents.AskWait <= 0 {
		return task.Reply{Reason: "nobody is there to answer"}, nil
	}
	q.Agent = k.def.Name
	k.runner.Notify(ctx, "permission_prompt", "", fmt.Sprintf("%s asks about %s", k.def.Name, q.Tool))
	s.say(k.me.id, fmt.Sprintf("%s asks whether it may use %s: see `drover approvals`", k.def.Name, q.Tool))
	q.Until = time.Now().Add(s.cfg.Agents.AskWait).UTC() // hooks take none of the time of who answers
	if k.me.host != nil {
		return k.me.host.Ask(ctx, q)
	}
	return s.sup.Ask(ctx, k.me.id, q)
}

// tools makes the tools of the agent, with a state of their own.
func (k *agentEnvironment) tools() []agent.Tool {
	me, s := k.me, k.me.s
	rt := &runtime{caller: me, learned: func(id task.ID) { k.reminders.Know(taskList, string(id)) }}
	dirs := slices.Clone(me.rules.Dirs)
	written := dirs
	if me.depth == 0 {
		written = append(slices.Clip(dirs), s.cfg.Place.Reports())
	}
	may := func(path string) bool { return k.rule().MayRead(path) }
	all := []agent.Tool{
		shelltool.New(
			shelltool.Config{Shells: rt, Root: me.cwd, TempDir: s.cfg.Place.Tasks(), OutputLimit: s.cfg.Limits.OutputChars},
		),
	}
	all = append(
		all,
		files.New(
			files.Config{
				Root:     me.cwd,
				Dirs:     written,
				ReadDirs: append([]string{s.cfg.Place.Tasks(), s.cfg.Place.HookOutputs()}, s.cfg.Agents.Memory.dirs()...),
				MayRead:  may,
				MayOpen:  func(f *os.File, change bool) bool { return k.rule().MayOpen(f, change) },
			},
		)...)
	all = append(all, search.New(search.Config{Root: me.cwd, Dirs: dirs, MayRead: may})...)
	all = append(
		all,
		tasktools.New(
			tasktools.Config{Tasks: rt, OutputLimit: s.cfg.Limits.OutputChars, Remote: s.cfg.Agents.Remote.Usual != ""},
		)...)
	all = append(all, tasktools.NewList(rt), tasktools.NewSend(rt), tasktools.NewRead(rt, s.cfg.Limits.OutputChars))
	all = append(all, usertools.NewIntent())
	all = append(all, k.monitorTool(rt, all)...)
	if me.mate != nil && me.rules.Mode == permission.Plan {
		all = append(all, tasktools.NewPlan(planner{k}))
	}
	if s.cfg.Agents.Skills != nil {
		all = append(all, skilltool.New(skilltool.Config{Skills: s.cfg.Agents.Skills, Used: k.used}))
	}
	if s.cfg.Agents.Todos != nil {
		all = append(
			all,
			todotools.New(
				todotools.Config{
					Store:  s.cfg.Agents.Todos,
					Caller: rt.name(),
					Main:   me.depth == 0,
					Hooks:  todoHooks{k},
					Assign: s.assign,
				},
			)...)
	}
	if s.cfg.Agents.Web != nil {
		all = append(all, webtool.New(s.cfg.Agents.Web))
	}
	if me.depth == 0 && s.cfg.Agents.AskWait > 0 {
		all = append(all, usertools.NewAsk(k.ask))
	}
	all = append(all, s.cfg.Agents.Tools...)
	all = append(all, k.board()...)
	all = append(all, k.workflowTool(rt))
	deepest := me.depth >= s.cfg.Limits.Depth
	return slices.DeleteFunc(all, func(t agent.Tool) bool {
		name := t.Spec().Name
		return me.tools != nil && !slices.Contains(me.tools, name) || deepest && name == "Agent"
	})
}

// bashCwd finds the tool that carries a working folder over from call to call:
// paths of its commands are judged from there.
func bashCwd(tools []agent.Tool) func() string {
	for _, t := range tools {
		if c, ok := t.(interface{ Cwd() string }); ok {
			return c.Cwd
		}
	}
	return nil
}

// base is what hooks of the agent are told.
func (k *agentEnvironment) base(tools []agent.Tool, transcript string) hook.Base {
	me, s := k.me, k.me.s
	b := hook.Base{
		SessionID:      string(s.cfg.Info.Session),
		TranscriptPath: s.cfg.Place.Transcript(),
		Cwd:            me.cwd,
		Project:        s.cfg.Info.Project,
		PermissionMode: func() string { return string(cmp.Or(me.mode(), permission.Default)) },
		Effort:         k.def.Effort,
		Model:          me.model,
		Env:            me.env,
		Tools:          tools,
		Spill:          s.spillHook,
	}
	if me.depth > 0 {
		b.AgentID, b.AgentType, b.AgentTranscript = string(me.id), k.def.Name, transcript
		b.DisplayName, b.Description = cmp.Or(k.def.DisplayName, k.def.Name), k.def.Description
	}
	if s.cfg.Keeper != nil {
		b.Ready = s.cfg.Keeper.Ready
	}
	if s.cfg.Agents.Tell != nil {
		b.Tell = func(e hook.Event, text string) { s.cfg.Agents.Tell(me.id, fmt.Sprintf("hook %s: %s", e, text)) }
	}
	return b
}

// spillHook makes the file of a hook that prints too much for the memory. It counts as an
// output.
func (s *Session) spillHook(limit int64) (hook.Spill, error) {
	s.spills.Lock()
	defer s.spills.Unlock()
	path, err := s.cfg.Place.NewHookOutput()
	if err != nil {
		return nil, err
	}
	return spool.Reopen(path, spool.Options{Limit: limit, Below: s.cfg.Place.Below(), Take: s.space.Take})
}

// hooksOf is the hooks of the session and of an agent's definition.
func (s *Session) hooksOf(def subagent.Definition) *hook.Set {
	set := s.cfg.Agents.Hooks
	if set == nil {
		set, _ = hook.Load(nil)
	}
	if len(def.Hooks) == 0 {
		return set
	}
	data, err := json.Marshal(map[string]any{"hooks": def.Hooks})
	if err != nil {
		return set
	}
	own, problems := hook.Load([]hook.Source{{Path: "agent " + def.Name, Data: data, Trusted: true, Agent: true}})
	for _, p := range problems {
		s.say(s.cfg.Info.Session, p.String())
	}
	return set.Join(own)
}

// background is what a stop hook is told of the tasks that run.
func (k *agentEnvironment) background() []hook.Background {
	words := map[task.Work]string{task.ByCommand: "shell", task.ByEvents: "monitor", task.BySteps: "workflow"}
	var out []hook.Background
	for _, r := range k.me.s.tree.Background(k.me.id, k.me.depth == 0) {
		out = append(
			out,
			hook.Background{
				ID:          string(r.ID),
				Type:        cmp.Or(words[r.Traits().Work], "subagent"),
				Status:      string(r.Status),
				Description: r.Description,
				Command:     r.Command,
				AgentType:   r.AgentType,
				Name:        r.Name,
			},
		)
	}
	return out
}

// compaction is how the agent's conversation is kept short.
func (k *agentEnvironment) compaction(model string) *agent.Compaction {
	a := k.me.s.cfg.Agents
	c := &agent.Compaction{Share: a.Share, Restore: k.restore, Before: k.runner.PreCompact, After: k.runner.PostCompact}
	if a.Window != nil {
		c.Window, _ = a.Window(model)
	}
	return c
}

// restore is what the agent must not lose with its conversation.
func (k *agentEnvironment) restore(ctx context.Context) string {
	return join([]string{environment.RunningTasks(k.me.s.tree.Background(k.me.id, k.me.depth == 0)), k.todos(ctx),
		k.used.Restore()})
}

// todos is what is still to be done.
func (k *agentEnvironment) todos(ctx context.Context) string {
	store := k.me.s.cfg.Agents.Todos
	if store == nil {
		return ""
	}
	list, err := store.List(ctx)
	if err != nil {
		return "" // the tools will say so
	}
	var b strings.Builder
	for _, it := range list.Items {
		if it.Status == todo.Completed {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("## To-dos\n")
		}
		fmt.Fprintf(&b, "- %s %s (%s)\n", it.ID, excerpt.Line(it.Subject, environment.AboutChars), it.Status)
	}
	return strings.TrimRight(b.String(), "\n")
}

// judge is the rules as hooks see them.
type judge struct{ *agentEnvironment }

// Judge implements [hook.Rules].
func (j judge) Judge(c agent.Call, word hook.Word) hook.Ruling {
	v := j.rule().Decide(c)
	_ = failpoint.Hit("call/judged")
	if word == hook.Allow {
		v = j.rule().Grant(c)
	}
	if word == hook.Ask && v.Decision == permission.Allow {
		return hook.Ruling{Word: hook.Ask, Reason: "a hook wants it to be asked about"}
	}
	return hook.Ruling{Word: hook.Word(v.Decision), Reason: v.Reason, Suggest: v.Suggest}
}

// Question implements [hook.Rules].
func (j judge) Question(ctx context.Context, c agent.Call, r hook.Ruling) (agent.Decision, error) {
	return j.rule().Ask(ctx, c, permission.Verdict{Decision: permission.Ask, Reason: r.Reason, Suggest: r.Suggest})
}

// todoHooks lets hooks refuse what happens to to-dos.
type todoHooks struct{ *agentEnvironment }

func (h todoHooks) Created(ctx context.Context, it todo.Item) error {
	return h.runner.TaskCreated(ctx, h.todo(it))
}

func (h todoHooks) Completed(ctx context.Context, it todo.Item) error {
	return h.runner.TaskCompleted(ctx, h.todo(it))
}

func (h todoHooks) todo(it todo.Item) hook.Todo {
	t := hook.Todo{ID: fmt.Sprint(int(it.ID)), Subject: it.Subject, Description: it.Description, Teammate: it.Owner}
	if name, team, ok := lifecycle.SplitTeam(it.Owner); ok {
		t.Teammate, t.Team = name, team
	}
	return t
}

// assign tells an agent that a to-do is its own. Who is no agent of the session
// is not told.
func (s *Session) assign(ctx context.Context, owner string, it todo.Item, by string) error {
	to := s.cfg.Info.Session
	if owner != mainName {
		r, err := s.tree.FindNear(owner, by)
		if err != nil || !r.Kind.IsAgent() {
			return nil
		}
		to = r.ID
	}
	text := fmt.Sprintf("To-do %s is yours now: %s", it.ID, it.Subject)
	if it.Description != "" {
		text += "\n" + it.Description
	}
	_, err := s.sup.Post(ctx, task.Message{To: to, From: by, Kind: task.TaskAssignment, Text: text})
	if errors.Is(err, task.ErrMailFull) {
		return &control.Error{
			Code:    control.Unavailable,
			Message: fmt.Sprintf("%s has too much unread mail to be told", owner),
		}
	}
	return err
}

// name is how the agent is called in messages and as the owner of to-dos.
func (rt *runtime) name() string {
	if rt.host == nil {
		return mainName
	}
	return rt.host.Record().Name
}

// edited is told of a call that has ended.
func (k *agentEnvironment) edited(e agent.Event) {
	if e.Kind != agent.ToolDoneEvent || e.Output.IsError || !environment.Writes(e.Call.Name) {
		return
	}
	var in struct {
		Path string `json:"file_path"`
	}
	if json.Unmarshal(e.Call.Input, &in) != nil || in.Path == "" {
		return
	}
	if path, ok := k.me.within(in.Path); ok {
		k.me.s.edits.Record(worktree.Editor{Task: k.me.id, Name: (&runtime{caller: k.me}).name()}, path)
	}
}

// access is which servers the agent may use.
func (me caller) access() servers.Access {
	return servers.Access{Tools: me.tools, Barred: me.barred, Own: me.own}
}

// subscribe lets the agent watch resources of its own servers.
func (k *agentEnvironment) subscribe(_ context.Context, server, uri string) (monitor.Subscription, error) {
	return subscription(k.servers.Subscribe(server, uri))
}

// subscribe lets a client watch resources of the session's servers.
func (s *Session) subscribe(ctx context.Context, server, uri string) (monitor.Subscription, error) {
	return subscription(s.servers.Subscribe(ctx, server, uri))
}

// subscription is a resource as a monitor takes it: not a nil one in an interface.
func subscription(r *servers.Resource, err error) (monitor.Subscription, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Servers are the MCP servers of the main agent, as they stand now.
func (m *Main) Servers() []servers.Status { return m.environment.servers.Status() }
