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
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/activity"
	"github.com/drover-dev/drover/internal/session/approvals"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/diskspace"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/session/work"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Pool is the name of the pool of agents.
const Pool = "agents"

// MainName is the name of the main agent in messages and as an owner.
const MainName = "main"

// Limits of agents.
type Limits struct {
	Depth            int  // of nested agents
	OutputChars      int  // of output shown to a model
	NestedBackground bool // agents of agents may run in the background
	NoBackground     bool // nothing that an agent starts runs in the background
	NoMonitors       bool // monitors are disabled
	QuoteFrom        int  // a start that makes so many, or a multiple, be at work says what they will likely use; 0: never

	MultiTurn     bool          // background agents wait for further messages after an answer
	IdleTimeout   time.Duration // how long they wait at most
	WaitForTasks  time.Duration // how long an agent waits for its tasks after an answer
	TeammateGrace time.Duration // for a teammate to finish when a model ends it
}

// Config configures the agents of a session.
type Config struct {
	Session task.ID
	Project string
	Version string
	Started time.Time // the session was opened
	Place   home.Session
	Sync    bool         // acknowledged data survives a power cut
	Ready   func() error // ensures that a keeper runs before a process is started; nil: not needed
	Limits  Limits

	Models  *provider.Finder
	Model   string                  // when nobody asks for another
	Instead []string                // models that answer when one is overloaded or cannot be reached, in this order
	Policy  choose.Policy           // which model an agent gets
	Catalog func() subagent.Catalog // as it is now
	Rules   permission.Rules
	Env     []string // of the process that started the session
	Notes   string   // of the project and the user; part of every system prompt
	Hooks   *hook.Set
	Skills  func() skill.Catalog // read at each use; nil: none
	Todos   *todo.Store          // nil: no to-do list
	Memory  *memory.Store        // nil: memory is disabled
	Web     *webtool.Fetcher     // nil: no pages are fetched
	Tools   []agent.Tool         // of the program that holds the session; shared by all agents
	Remote  bool                 // there is a service for remote agents
	Workers bool                 // there is a hub, and models may place agents at its workers
	Window  func(model string) (int64, bool)
	Sees    func(model string) bool // images; nil: all models do
	Share   float64                 // share of the window at which a conversation is compacted

	RuleSources RuleSources // of Rules, for people

	KeepParked bool // parked agents go on under the next host

	AskWait time.Duration // that a question waits for somebody; 0: nobody can answer
	// FormWait is the same for forms of MCP servers, where it is longer.
	FormWait time.Duration
	On       func(from task.ID, e agent.Event)
	OnHook   func(from task.ID, r hook.Ran) // by several goroutines; nil: nobody is told
	Seam     environment.Seam
}

// Parts are the parts of a session that its agents use.
type Parts struct {
	Tasks     *supervise.Supervisor
	Log       *journal.Journal
	Kinds     *builtin.Kinds
	Tree      *tree.Tree
	Mailboxes *messages.Mailboxes
	Idle      *idle.Watch
	Budgets   *budget.Budgets
	Servers   *servers.Servers
	Activity  *activity.Watch
	Checkouts *environment.Checkouts
	Edits     *environment.Edits
	Approvals *approvals.Approvals
	Report    *environment.Reporter
	Gates     environment.Gates
	Work      *work.Work
	Space     *diskspace.Guard
	Sandboxes *sandboxes.Sandboxes
	Parking   *parking.Lot
	Fleet     *placement.Fleet
}

// Set is the agents of one session. Its methods may be called by several goroutines.
type Set struct {
	Parts
	cfg Config

	teams    sync.Mutex // held over the start of a teammate
	counting sync.Mutex // held over a start that counts the agents at work; taken behind teams
	spills   sync.Mutex // held while a hook gets an output file

	mu        sync.Mutex // guards the fields below
	main      *Environment
	runners   map[*hook.Runner]struct{}           // open environments
	turns     map[task.ID]context.CancelCauseFunc // of subagents
	teammates map[task.ID]*teammate               // at work
}

// New returns an empty set.
func New(cfg Config, parts Parts) *Set {
	s := &Set{
		Parts:     parts,
		cfg:       cfg,
		runners:   map[*hook.Runner]struct{}{},
		turns:     map[task.ID]context.CancelCauseFunc{},
		teammates: map[task.ID]*teammate{},
	}
	s.useParked()
	return s
}

// SetMain sets the main agent, whose conversation is now open.
func (s *Set) SetMain(k *Environment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = k
}

// mainAgent returns the main agent; nil: there is none.
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
