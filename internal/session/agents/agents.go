// Package agents starts the agents of a session and executes what they request.
//
// [Set] owns the running agents: their turns, the teams, the hooks that run for them. It
// resolves what an agent gets ([Set.Resolve]), starts it, and resumes an agent that has ended.
// [Environment] is the state of one agent while its conversation is open, and [Runtime]
// executes the requests of one agent's tools. An agent never gets more than its starter has:
// tools, rules, models, budget.
//
// The package does not talk to clients; package session does, and passes their requests on.
package agents

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/activity"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Pool is the name of the pool of agents.
const Pool = "agents"

// MainName is the name of the main agent in messages and as an owner.
const MainName = "main"

// Program is what the program that holds a session brings for its agents: a command line, or a
// program that embeds Drover.
type Program struct {
	Tools    []agent.Tool // shared by all agents
	Fallback []string     // models that answer when one is overloaded or cannot be reached, in this order

	// AskWait is how long a question waits for an answer before the call is denied; 0: no one
	// can answer.
	AskWait time.Duration
	// FormWait is the same for forms of MCP servers, where it is longer.
	FormWait time.Duration

	// On is called with the events of the conversations of the session: the ID names the
	// task of the agent, or the session for the main agent. It is called by one goroutine at a
	// time for each agent. nil: events are dropped.
	On func(from task.ID, e agent.Event)
	// OnHook is called with hooks that begin and end, by several goroutines; nil: not needed.
	OnHook func(from task.ID, r hook.Ran)
}

// Config is what the agents of a session are made of, by the files of the user and the project.
type Config struct {
	Program
	Models  *provider.Finder
	Policy  choose.Policy           // which model an agent gets
	Catalog func() subagent.Catalog // as it is now
	Rules   policy.Rules            // mode, lists of rules, further folders
	Foreign []string                // rules that were written for another program; see [environment.Gates]
	Env     []string                // of the process that started the session
	Notes   string                  // of the project and the user; part of every system prompt

	RuleSources RuleSources // of Rules, for people

	// Client completes the environment of a client with the settings of providers, as Env has
	// them already, and removes the variables with keys that the user has named. nil: the
	// environment is unchanged.
	Client func(env []string) []string

	Hooks     *hook.Set              // nil: disabled
	Accounts  *usage.Accounts        // nil: usage is not counted
	Skills    func() skill.Catalog   // read at each use; nil: none
	Commands  func() command.Catalog // read at each use; nil: the built-in ones
	Todos     *todo.Store            // nil: no to-do list
	Memory    *memory.Store          // nil: memory is disabled
	Worktrees *worktree.Store        // of isolated agents; nil: agents cannot be isolated
	Web       *webtool.Fetcher       // nil: no pages are fetched
	MCP       *servers.Config        // nil: no MCP servers
	RemoteEnv []string               // of the user, with the tokens of services of remote agents
	Workers   bool                   // there is a hub, and models may place agents at its workers

	// Window returns the context window of a model in tokens. nil: conversations are not compacted.
	Window func(model string) (int64, bool)
	// KeepRule stores an allow rule that the user wants to keep for later sessions. nil: it is
	// not stored.
	KeepRule func(ctx context.Context, rule string) error

	Seam environment.Seam // nil: [environment.Unrecorded]
}

// Set is the agents of one session. Its methods may be called by several goroutines.
type Set struct {
	*tree.Tree
	cfg Config

	kinds     *builtin.Kinds
	mail      *messages.Mailboxes
	idle      *idle.Watch
	activity  *activity.Watch
	budgets   *budget.Budgets
	servers   *servers.Servers
	sandboxes *sandboxes.Sandboxes
	space     *tasks.Space
	keeper    *keeper.Link // nil: none

	Parking   *parking.Queue
	checkouts *environment.Checkouts
	edits     *environment.Edits
	gates     environment.Gates

	teams    sync.Mutex // held over the start of a teammate
	counting sync.Mutex // held over a start that counts the agents at work; taken after teams
	spills   sync.Mutex // held while a hook gets an output file

	mu        sync.Mutex // guards the fields below
	main      *Environment
	runners   map[*hook.Runner]struct{}           // open environments
	turns     map[task.ID]context.CancelCauseFunc // of subagents
	teammates map[task.ID]*teammate               // at work
	allowed   []string                            // rules that the user has allowed permanently
}

// New returns an empty set. A nil link is a session without a keeper.
func New(
	s *tree.Tree, cfg Config, kinds *builtin.Kinds, mail *messages.Mailboxes, idle *idle.Watch,
	activity *activity.Watch, budgets *budget.Budgets, servers *servers.Servers,
	boxes *sandboxes.Sandboxes, space *tasks.Space, link *keeper.Link,
) *Set {
	edits := &environment.Edits{}
	window, err := daypart.Parse(s.Options.Limits.WakeWindow)
	if err != nil { // the settings have checked it; a program may not have
		s.Say(fmt.Sprintf("limits.wakeWindow is ignored: %v", err))
	}
	leave := func(id task.ID, text string) { s.Report.Say(id, text) }
	return &Set{
		Tree: s, cfg: cfg, kinds: kinds, mail: mail, idle: idle, activity: activity, budgets: budgets,
		servers: servers, sandboxes: boxes, space: space, keeper: link,
		Parking:   parking.New(window, s.Options.Limits.WakeBudget),
		checkouts: environment.NewCheckouts(cfg.Worktrees, cfg.Seam, edits, leave),
		edits:     edits,
		gates:     environment.Gates{Foreign: cfg.Foreign, Report: s.Report},
		runners:   map[*hook.Runner]struct{}{},
		turns:     map[task.ID]context.CancelCauseFunc{},
		teammates: map[task.ID]*teammate{},
	}
}

// Start removes what crashes have left of the checkouts of agents, until ctx ends or Close.
func (s *Set) Start(ctx context.Context) { s.checkouts.Start(ctx, s.Info.Session, s.Alive) }

// Swept is closed when those are removed.
func (s *Set) Swept() <-chan struct{} { return s.checkouts.Swept() }

// Close ends what Start began. No agent may be at work.
func (s *Set) Close() { s.checkouts.Close() }

// Driver returns the driver that continues work of an earlier host, or nil for a kind whose work
// ended with its host.
func (s *Set) Driver(kind task.Kind) task.Driver {
	return s.kinds.Adopting(kind, s.goOn, s.GoesOn)
}

// AllowAlways keeps an allow rule for the session, and stores it for later ones. It applies to the
// next call, before the call that was asked about continues.
func (s *Set) AllowAlways(ctx context.Context, rule string) error {
	if s.cfg.KeepRule == nil {
		return errors.New("this session keeps no rules")
	}
	if err := s.cfg.KeepRule(ctx, rule); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.allowed, rule) {
		s.allowed = append(s.allowed, rule)
	}
	return nil
}

// AllowedAlways returns the rules that the user has allowed permanently.
func (s *Set) AllowedAlways() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.allowed)
}

// SetMain sets the main agent, whose conversation is now open.
func (s *Set) SetMain(k *Environment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = k
}

// mainAgent returns the main agent; nil: none.
func (s *Set) mainAgent() *Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.main
}

// Runners returns the hooks of all open agents.
func (s *Set) Runners() iter.Seq[*hook.Runner] {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := slices.Collect(maps.Keys(s.runners))
	return slices.Values(open)
}
