package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// What a session is for; see [control.Info].
const (
	RoleBackground = control.RoleBackground
	RoleRun        = control.RoleRun
	RolePrompt     = control.RolePrompt
)

// MainConfig is what a main agent is made of.
type MainConfig struct {
	Agent        string   // a sort of agent of the catalog; empty: the main agent
	Model        string   // empty: the session's
	System       string   // instead of the usual system prompt
	AppendSystem string   // behind it
	MaxTurns     int      // model replies for one prompt; 0: 50
	Tools        []string // names; nil: all
	Thinking     agent.Thinking
	Autopilot    bool // it is reminded to go on until it calls task_complete
	Reminders    int  // of the autopilot, for one prompt; 0: 5

	// Begin and Done are told of every turn, in order, on the main agent's
	// goroutine.
	Begin func(origin string)
	Done  func(conversation.Turn)
}

// Main is the main agent of a session: its conversation, and what the agent is made of.
type Main struct {
	*conversation.Conversation
	s           *Session
	environment *agentEnvironment
	shut        func() error // closes the transcript

	model string   // that it began with, as the user is shown it
	tools []string // names
	done  string   // name of the tool that ends the work on autopilot

	configuring sync.Mutex // held while its settings change

	prompted atomic.Int64 // prompts of the user that were given to the model
	atEnd    atomic.Bool  // what the conversation teaches is consolidated at its end
}

// OpenMain puts the main agent together, with the conversation that the session
// has had so far. There is one per session.
func (s *Session) OpenMain(ctx context.Context, cfg MainConfig) (*Main, error) {
	me := caller{s: s, id: s.cfg.Info.Session, cwd: s.cfg.Info.Project, env: s.cfg.Agents.Env, rules: s.cfg.Agents.Rules,
		tools: cfg.Tools, maxTurns: cfg.MaxTurns}
	def, err := s.mainDefinition(cfg)
	if err != nil {
		return nil, err
	}
	def.Tools, me.spawns = environment.Spawnable(def.Tools)
	me.tools = environment.Subset(me.tools, def.Tools, def.DisallowedTools, environment.ToolNames(s.cfg.Agents.Tools)...)
	me.barred, me.own = environment.Bar(nil, def.DisallowedTools), s.ownServers(def, me)
	me.rules.Mode = environment.Narrower(me.rules.Mode, permission.Mode(def.PermissionMode))
	if me.maxTurns == 0 {
		me.maxTurns = def.MaxTurns
	}
	me.model = s.cfg.Agents.Model
	choice, err := s.choose(me, subagent.Input{Model: cfg.Model}, def)
	if err != nil {
		return nil, err
	}
	s.say(me.id, choice.Notes...)
	me.model = choice.Name
	me.live = &live{model: choice.Name, mode: me.rules.Mode}
	k, err := s.newEnvironment(me, def, s.cfg.Place.Transcript())
	if err != nil {
		return nil, err
	}
	k.cfg.Thinking = cfg.Thinking
	m := &Main{s: s, environment: k, model: k.cfg.ModelName}
	m.atEnd.Store(s.cfg.Agents.Memory.AtEnd)
	if err := m.open(ctx, cfg); err != nil {
		k.close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = m
	s.pulse.configured(m.settings())
	return m, nil
}

// open opens the conversation.
func (m *Main) open(ctx context.Context, cfg MainConfig) error {
	s, k := m.s, m.environment
	auto := conversation.NewAutopilot(cfg.Reminders, k.hooks.Stop)
	m.done = auto.Tool().Spec().Name
	if err := k.rules(append(slices.Clone(k.cfg.Tools), auto.Tool())); err != nil { // it may be offered later
		return err
	}
	for _, tool := range k.cfg.Tools {
		m.tools = append(m.tools, tool.Spec().Name)
	}
	t, history, err := agent.OpenTranscript(s.cfg.Place.Transcript(), agent.Meta{Version: s.cfg.Info.Version,
		Cwd: k.me.cwd, AgentName: mainName, SessionID: string(s.cfg.Info.Session), Sync: s.cfg.Power})
	if err != nil {
		return err
	}
	box, err := s.box(ctx, k.me.id)
	if err != nil {
		return errors.Join(err, t.Close())
	}
	m.shut, k.cfg.Transcript, k.resumed = t.Close, t, len(history.Messages) > 0
	s.activity.Begin(k.me.id, "", false).Follow(&k.cfg)
	m.Conversation, err = conversation.Open(conversation.Config{
		ID: k.me.id, Agent: k.cfg, History: history.Messages, Box: box, Post: s.sup.Post,
		Session: conversationSession{s}, Hooks: mainHooks{m}, Feed: &s.feed,
		Mail:      func(withheld func(mailbox.Mail) bool) agent.Mail { return &mail{s: s, box: box, skip: withheld} },
		Autopilot: auto, Driven: cfg.Autopilot, Begin: cfg.Begin, Done: cfg.Done,
	})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	return nil
}

// mainDefinition is the main agent, or a sort of agent in its place.
func (s *Session) mainDefinition(cfg MainConfig) (subagent.Definition, error) {
	def := subagent.Definition{Name: mainName, Prompt: mainPrompt}
	if cfg.Agent != "" {
		named, err := s.cfg.Agents.Catalog().Find(cfg.Agent)
		if err != nil {
			return def, err
		}
		named.Name = mainName
		def = named
	}
	if cfg.System != "" {
		def.Prompt = cfg.System
	}
	if cfg.AppendSystem != "" {
		def.Prompt += "\n\n" + cfg.AppendSystem
	}
	return def, nil
}

// say tells the user something about an agent.
func (s *Session) say(from task.ID, notes ...string) {
	for _, n := range notes {
		if s.cfg.Agents.Tell != nil {
			s.cfg.Agents.Tell(from, n)
		}
	}
}

// Model is the full name of the agent's model.
func (m *Main) Model() string { return m.model }

// Tools are the names of the agent's tools.
func (m *Main) Tools() []string {
	if m.Mode() != conversation.AutopilotMode {
		return m.tools
	}
	return append(slices.Clip(m.tools), m.done)
}

// Waited are the tasks that [conversation.Conversation.Settle] waits for now.
func (m *Main) Waited() (tasks []task.Record) {
	for _, r := range m.s.sup.Living() {
		if m.s.isWaitedFor(r) {
			tasks = append(tasks, r)
		}
	}
	return tasks
}

func (s *Session) isWaitedFor(r task.Record) bool {
	return r.WaitedFor() && !s.rests(r) && r.ID != s.cfg.Info.Session
}

// lastHooks is how long hooks that hear of the session's end may take.
const lastHooks = 10 * time.Second

// close tells hooks of the end and closes the conversation.
func (m *Main) close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastHooks, task.ErrClosing)
	defer cancel()
	m.environment.runner.SessionEnd(ctx, "other")
	m.environment.close()
	return m.shut()
}

// unused reports whether somebody has opened a conversation and left it without a
// word.
func (m *Main) unused() bool {
	if m == nil || !m.Hosted() || m.environment.resumed {
		return false
	}
	at, _ := m.State()
	return at.Turns == 0 && m.s.log.Last() == 0
}

// Definition returns the sort of agent that a name means.
func (s *Session) Definition(name string) (subagent.Definition, error) {
	return s.cfg.Agents.Catalog().Find(name)
}

// conversationSession is the session as the conversation sees it.
type conversationSession struct{ s *Session }

func (c conversationSession) Get(id task.ID) (task.Record, bool) { return c.s.sup.Get(id) }

// Background counts no agent that rests: it has done what it was asked.
func (c conversationSession) Background() (commands []task.ID, others int) {
	for _, r := range c.s.sup.Living() {
		switch {
		case !c.s.isWaitedFor(r):
		case r.Traits().Work == task.ByCommand:
			commands = append(commands, r.ID)
		default:
			others++
		}
	}
	return commands, others
}

func (c conversationSession) Alone() bool {
	working, _ := c.s.atWork()
	return working == 0
}

func (c conversationSession) Stop(ctx context.Context, ids []task.ID, cause task.Cause) (task.Receipt, error) {
	return c.s.sup.Stop(ctx, ids, supervise.StopRequest{Cause: cause})
}

func (c conversationSession) Changed() <-chan struct{}          { return c.s.Changed() }
func (c conversationSession) Grown() <-chan struct{}            { return c.s.Grown() }
func (c conversationSession) Moved()                            { c.s.pulse.moved() }
func (c conversationSession) Completed(done control.Completion) { c.s.pulse.complete(done) }

// mainHooks are the hooks of the main agent, and its commands.
type mainHooks struct{ *Main }

func (h mainHooks) Start(ctx context.Context) string {
	source := "startup"
	if h.environment.resumed {
		source = "resume"
	}
	return join([]string{h.environment.runner.SessionStart(ctx, source), h.environment.opening()})
}

func (h mainHooks) Prompt(ctx context.Context, prompt string) (string, error) {
	h.prompted.Add(1)
	h.s.hops.worked(h.environment.me.id)
	return h.environment.runner.UserPromptSubmit(ctx, prompt)
}

func (h mainHooks) Failed(ctx context.Context, err error, answer string) {
	h.environment.runner.StopFailure(ctx, err, answer)
}

// HostMain makes a task of the conversation; see [conversation.Conversation.HostBy].
func (s *Session) HostMain(m *Main, ceiling time.Duration) { m.HostBy(mainHost{m}, ceiling) }

// mainHost runs the main agent as a task of its session.
type mainHost struct{ *Main }

func (h mainHost) Begin(ctx context.Context, prompt string, d task.Driver) error {
	s := h.s
	spec := task.Spec{ID: s.cfg.Info.Session, AgentType: task.MainSession, Model: h.model,
		Description: firstLine(prompt, 60), Prompt: prompt, Cwd: s.cfg.Info.Project, Backgrounded: true}
	var err error
	if _, again := s.sup.Get(spec.ID); again {
		_, err = s.sup.Resume(ctx, spec.ID, d, spec)
	} else {
		_, err = s.sup.Start(ctx, d, spec)
	}
	if err != nil {
		return notStarted(err)
	}
	s.entitle()
	return nil
}

func (h mainHost) Wait(ctx context.Context) error {
	_, err := h.s.sup.Wait(ctx, []task.ID{h.s.cfg.Info.Session}, false)
	return err
}

func (h mainHost) Attached() (bool, context.Context) { return h.s.audience.now() }

func (h mainHost) Cost() func() (float64, bool) { return h.s.budgets.Cost(h.s.cfg.Info.Session) }

func (h mainHost) Parting(ctx context.Context) {
	p, ok := h.Main.Parting(home.Lookup(h.environment.me.env))
	if ok && ctx.Err() == nil {
		h.s.partInside(ctx, p)
	}
}

// entitle shows the session under its first prompt, if it was opened without one.
func (s *Session) entitle() {
	s.mu.Lock() // Close writes the last word, after it has taken the lock
	defer s.mu.Unlock()
	if s.cfg.Info.Title == "" && !s.closed {
		_ = s.writeInfo(nil) // Close writes it again
	}
}
