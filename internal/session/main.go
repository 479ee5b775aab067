package session

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

//go:embed main.md
var mainPrompt string

// Values of the role of a session; see [control.Info].
const (
	RoleBackground = control.RoleBackground
	RoleRun        = control.RoleRun
	RolePrompt     = control.RolePrompt
)

// MainConfig configures a main agent.
type MainConfig struct {
	Agent        string   // a type of agent of the catalog; empty: the main agent
	Model        string   // empty: the session's
	System       string   // replaces the usual system prompt
	AppendSystem string   // appended to the system prompt
	MaxTurns     int      // model replies for one prompt; 0: 50
	Tools        []string // names; nil: all
	Thinking     agent.Thinking
	Autopilot    bool // autopilot: it is reminded to continue until it calls task_complete
	Reminders    int  // reminders of the autopilot for one prompt; 0: 5

	Schema *usertools.Schema // each answer is a value of it; nil: answers are text

	// DropUnused says that the session leaves nothing if no prompt has come, as a hosted
	// conversation does.
	DropUnused bool

	// Begin and Done are called at every turn, in order, on the main agent's goroutine.
	Begin func(origin string)
	Done  func(conversation.Turn)
}

// Main is the main agent of a session: its conversation, and what the agent is made of.
type Main struct {
	*conversation.Conversation
	s          *Session
	now        atomic.Pointer[agents.Environment]
	transcript *agent.Transcript
	auto       *conversation.Autopilot
	moving     sync.Mutex // held while a turn is moved to the background

	model string   // as shown to the user
	tools []string // names
	done  string   // name of the tool that ends the work on autopilot

	dropUnused bool // see [MainConfig]

	learnings *dreams.Learnings
}

// OpenMain creates the main agent, with the conversation of the session so far. There is one
// per session.
func (s *Session) OpenMain(ctx context.Context, cfg MainConfig) (*Main, error) {
	def, err := mainDefinition(cfg, s.Catalog())
	if err != nil {
		return nil, err
	}
	k, err := s.agents.OpenMain(ctx, def, cfg.Tools, cfg.Model, cfg.MaxTurns)
	if err != nil {
		return nil, err
	}
	m := &Main{s: s, model: k.Config.ModelName, dropUnused: cfg.DropUnused}
	m.now.Store(k)
	m.learnings = dreams.NewLearnings(s.cfg.Agents.Memory, s.cfg.Options.Memory)
	if err := m.open(ctx, cfg); err != nil {
		k.Close()
		return nil, err
	}
	s.agents.SetMain(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = m
	s.idle.Follow(m.Conversation)
	s.idle.Configured(k.Settings(m.Conversation))
	return m, nil
}

// environment is what the agent has now. A turn that is moved to the background takes its
// own along.
func (m *Main) environment() *agents.Environment { return m.now.Load() }

// open opens the conversation.
func (m *Main) open(ctx context.Context, cfg MainConfig) error {
	s, k := m.s, m.environment()
	var structured *conversation.Structured
	if cfg.Schema != nil {
		structured = conversation.NewStructured(cfg.Schema)
		k.Config.Tools = append(slices.Clip(k.Config.Tools), structured.Tool())
	}
	k.Config.Hooks = structured.Hooks(k.Hooks)
	m.auto = conversation.NewAutopilot(cfg.Reminders,
		func(ctx context.Context, res agent.TurnResult, blocked int) string {
			return m.environment().Config.Hooks.Stop(ctx, res, blocked)
		})
	m.done = m.auto.Tool().Spec().Name
	if err := k.MakeGate(append(slices.Clone(k.Config.Tools), m.auto.Tool())); err != nil { // it may be offered later
		return err
	}
	k.Config.Thinking = cfg.Thinking
	for _, tool := range k.Config.Tools {
		m.tools = append(m.tools, tool.Spec().Name)
	}
	t, history, err := agent.OpenTranscript(s.cfg.Place.Transcript(), agent.Meta{Version: s.cfg.Info.Version,
		Cwd: k.Me.Cwd, AgentName: agents.MainName, SessionID: string(s.cfg.Info.Session), Sync: s.cfg.Options.Power()})
	if err != nil {
		return err
	}
	past, newest, err := s.past(ctx, len(history.Messages))
	if err != nil {
		return errors.Join(err, t.Close())
	}
	box, err := s.mail.Open(ctx, k.Me.ID)
	if err != nil {
		return errors.Join(err, t.Close())
	}
	m.transcript, k.Config.Transcript, k.Resumed = t, t, len(history.Messages) > 0
	s.activity.Begin(k.Me.ID, "", false).Follow(&k.Config)
	m.Conversation, err = conversation.Open(conversation.Config{
		ID: k.Me.ID, Agent: k.Config, History: history.Messages,
		Past: past, Newest: newest, Log: s.log, Box: box, Post: s.sup.Post,
		Image:   s.image,
		Session: s.idle, Hooks: mainHooks{m}, Feed: &s.audience.Feed,
		Mail:      func(withheld func(mailbox.Mail) bool) agent.Mail { return s.mail.Reader(box, withheld, nil) },
		Wrap:      s.cfg.Agents.Seam.Agent,
		Autopilot: m.auto, Driven: cfg.Autopilot, Structured: structured, Begin: cfg.Begin, Done: cfg.Done,
	})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	s.jobs.Go(s.tellViewers)
	return nil
}

// Bounds of what viewers see of earlier hosts.
const (
	pastMessages = 50
	pastEvents   = 500
)

// past returns the pieces of earlier hosts for viewers of a conversation of so many messages. Events after newest
// follow them.
func (s *Session) past(ctx context.Context, messages int) (past []control.Piece, newest task.Seq, err error) {
	if newest = s.log.Last(); messages == 0 {
		return nil, newest, nil
	}
	records, err := agent.Tail(s.cfg.Place.Transcript(), pastMessages)
	if err != nil {
		return nil, newest, err
	}
	events, err := s.log.Latest(ctx, conversation.ReportedVerbs(), pastEvents)
	return conversation.Past(records, events), newest, err
}

// tellViewers tells viewers of the conversation what happens to tasks, until the session ends.
func (s *Session) tellViewers() {
	for {
		committed := s.log.NextCommit()
		if s.audience.Feed.CatchUp(s.life, s.log) != nil {
			return // the session ends, or reports the fault of its log itself
		}
		select {
		case <-committed:
		case <-s.life.Done():
			return
		}
	}
}

// mainDefinition is the definition of the main agent, or of an agent type in its place.
func mainDefinition(cfg MainConfig, known subagent.Catalog) (subagent.Definition, error) {
	def := subagent.Definition{Name: agents.MainName, Prompt: mainPrompt}
	if cfg.Agent != "" {
		named, err := known.Find(cfg.Agent)
		if err != nil {
			return def, err
		}
		named.Name = agents.MainName
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

// Model is the full name of the agent's model.
func (m *Main) Model() string { return m.model }

// Tools are the names of the agent's tools.
func (m *Main) Tools() []string {
	if m.Mode() != conversation.AutopilotMode {
		return m.tools
	}
	return append(slices.Clip(m.tools), m.done)
}

// Waited returns the tasks that [conversation.Conversation.Settle] waits for now.
func (m *Main) Waited() []task.Record { return m.s.idle.WaitedFor() }

// lastHooks limits the hooks at the end of the session.
const lastHooks = 10 * time.Second

// close runs the hooks of the end and closes the conversation.
func (m *Main) close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastHooks, task.ErrClosing)
	defer cancel()
	m.environment().Runner.SessionEnd(ctx, "other")
	m.CloseMoved()
	m.environment().Close()
	return m.transcript.Close()
}

// unused reports whether the conversation was opened and closed without a prompt.
func (m *Main) unused() bool {
	if m == nil || !m.Hosted() && !m.dropUnused || m.environment().Resumed {
		return false
	}
	at, _ := m.State()
	return at.Turns == 0 && m.s.log.Last() == 0
}

// Servers are the MCP servers of the main agent, as they stand now.
func (m *Main) Servers() []servers.Status { return m.environment().Servers.Status() }

// mainHooks are the hooks of the main agent, and its commands.
type mainHooks struct{ *Main }

func (h mainHooks) Start(ctx context.Context) string {
	return h.environment().StartMain(ctx)
}

func (h mainHooks) Prompt(ctx context.Context, prompt string) (string, error) {
	h.learnings.Prompted()
	h.s.mail.Worked(h.environment().Me.ID)
	k := h.environment()
	said, err := h.s.cfg.Agents.Seam.Texts(ctx, k.Me.ID, environment.PromptTexts, func() ([]string, error) {
		text, err := k.Runner.UserPromptSubmit(ctx, prompt)
		return []string{text}, err
	})
	return strings.Join(said, "\n\n"), err
}

func (h mainHooks) Failed(ctx context.Context, err error, answer string) {
	h.environment().Runner.StopFailure(ctx, err, answer)
}

// HostMain runs the conversation as a task; see [conversation.Conversation.HostBy].
func (s *Session) HostMain(m *Main, ceiling time.Duration) { m.HostBy(mainHost{m}, ceiling) }

// mainHost runs the main agent as a task of its session.
type mainHost struct{ *Main }

func (h mainHost) Begin(ctx context.Context, prompt string, d task.Driver) error {
	s := h.s
	spec := task.Spec{ID: s.cfg.Info.Session, AgentType: task.MainSession, Model: h.model,
		Description: excerpt.Line(prompt, 60), Prompt: prompt, Cwd: s.cfg.Info.Project, Backgrounded: true}
	var err error
	if _, again := s.sup.Get(spec.ID); again {
		_, err = s.sup.Resume(ctx, spec.ID, d, spec)
	} else {
		_, err = s.sup.Start(ctx, d, spec)
	}
	if err != nil {
		return tasks.NotStarted(err)
	}
	s.Entitle("") // after its first prompt
	return nil
}

func (h mainHost) Wait(ctx context.Context) error {
	_, err := h.s.sup.Wait(ctx, []task.ID{h.s.cfg.Info.Session}, false)
	return err
}

func (h mainHost) Attached() (bool, context.Context) { return h.s.audience.Now() }

func (h mainHost) Cost() func() (float64, bool) { return h.s.budgets.Cost(h.s.cfg.Info.Session) }

func (h mainHost) Parting(ctx context.Context) {
	p, ok := h.Main.Handover(home.Lookup(h.environment().Me.Env))
	if !ok || ctx.Err() != nil {
		return
	}
	// The host exits when nothing is left to do, so nothing has to outlive it.
	if err := h.s.agents.Consolidate(ctx, p.Prompt, p.Model); err != nil {
		h.s.tree.Report.Say(p.Session, fmt.Sprintf("what this conversation has taught is not consolidated: %v", err))
	}
}

// Handover returns the input of the agent that consolidates the learnings of the conversation,
// if that is enabled. It is called when the conversation has ended.
func (m *Main) Handover(env func(string) string) (dreams.Handover, bool) {
	who := dreams.Handover{
		Session: m.s.cfg.Info.Session, Transcript: m.s.cfg.Place.Transcript(), Model: m.environment().Me.ModelName(),
	}
	return m.learnings.Handover(who, m.Messages(), env)
}
