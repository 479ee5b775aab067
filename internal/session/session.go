// Package session is one conversation and the tree of tasks under it.
//
// A [Session] owns the session's folder while it is open: the log, the supervisor, the
// mailboxes, and at most one main agent ([Main]). It is the [control.API] of its own process.
// Opening adopts or ends the tasks that an earlier host left. A caller that sees that nothing
// runs any more finds every notification in the mailbox. Closing ends everything in order.
//
// The package does not listen on sockets, print, or read settings files.
package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/snapshot"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/activity"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/approvals"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/diskspace"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/lease"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/internal/session/requests"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/schedule"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/services"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/internal/session/work"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// remoteLive limits how many remote tasks are polled at the same time.
const remoteLive = 200

// placedLive limits how many tasks are offered to workers, or at work there, at the same time. Each has an open file.
const placedLive = 10_000

// Limits of one session. The zero value means the defaults.
type Limits struct {
	Depth            int   // of nested agents; default 3
	LiveAgents       int   // running at the same time; more wait; default 10
	PerRoot          int   // agents in one tree; default 200
	PerSession       int   // agents; default 1,000
	SpawnRate        int   // agents that one tree may start within a minute; default 60
	MessageHops      int   // messages in a row by which agents answer each other; default 20
	LiveShells       int   // default 1,000
	LiveMonitors     int   // more wait; default 200
	OutputBytes      int64 // of one task's output file; default 5 GB
	OutputChars      int   // of output shown to a model; default 32,000
	NestedBackground bool  // agents of agents may run in the background
	NoBackground     bool  // nothing an agent starts runs in the background
	NoMonitors       bool  // monitors are disabled
	QuoteFrom        int   // agents at work from which on they are told what they will likely use; 0: never

	HeldTasks int           // ended tasks in memory; older ones are read from the log; default 5,000
	HeldFor   time.Duration // minimum time in memory after the end; default 30 s

	UserQuota int64 // bytes of the outputs of all sessions of the user; 0: no limit
	MinFree   int64 // bytes that must be free for a start; 0: none
	Processes int   // of one command, which is ended beyond it; 0: no limit

	Retention ended.Retention // of ended sessions; not applied by a command in the foreground

	StallAfter time.Duration // without output, after which the output of a background command is checked; default 45 s

	MultiTurn   bool          // background agents wait for further messages after an answer
	IdleTimeout time.Duration // how long they wait at most; default 10 min

	WaitForTasks time.Duration // how long an agent waits for its tasks after an answer; default 10 min

	TeammateGrace time.Duration // for a teammate to finish when a model ends it; default 30 s

	WakeWindow string  // the part of a day in which parked agents are woken; see package daypart
	WakeBudget float64 // US dollars that they may spend after a wake; 0: any
}

func (l Limits) filled() Limits {
	fill := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	fill(&l.Depth, 3)
	fill(&l.LiveAgents, 10)
	fill(&l.PerRoot, 200)
	fill(&l.PerSession, 1000)
	fill(&l.SpawnRate, 60)
	fill(&l.MessageHops, 20)
	fill(&l.LiveShells, 1000)
	fill(&l.LiveMonitors, 200)
	fill(&l.OutputChars, 32_000)
	fill(&l.HeldTasks, 5000)
	if l.StallAfter <= 0 {
		l.StallAfter = 45 * time.Second
	}
	if l.IdleTimeout <= 0 {
		l.IdleTimeout = 10 * time.Minute
	}
	if l.WaitForTasks <= 0 {
		l.WaitForTasks = 10 * time.Minute
	}
	if l.TeammateGrace <= 0 {
		l.TeammateGrace = 30 * time.Second
	}
	return l
}

// Config configures a session. Place and Info are required.
type Config struct {
	Place  home.Session
	Info   control.Info // Session, Project, Role, Version, Socket
	Limits Limits
	Power  bool // every acknowledged event survives a power cut
	Keeper *keeper.Link
	Copier []string // holds the terminals of commands; see [shell.Config]
	Agents Agents

	Sandbox sandboxes.Config // of commands that models start; Env and Report are the session's

	// Hub connects to the hub of workers. nil: there is none.
	Hub     func(ctx context.Context) (*link.Link, error)
	Workers bool          // models are told that agents can work at its workers
	Lease   time.Duration // of workers; see [placement.Config]

	// Ended is told the number of the newest event of the log, before the log is closed: who reads
	// the log to its end may do so now. nil: nobody is told.
	Ended func(last task.Seq)
}

// Agents configures the agents of a session.
type Agents struct {
	Models  *provider.Finder
	Model   string                  // when nobody asks for another
	Instead []string                // models that answer when one is overloaded or cannot be reached, in this order
	Policy  choose.Policy           // which model an agent gets
	Catalog func() subagent.Catalog // as it is now
	Rules   policy.Rules            // Mode, lists of rules, further folders
	Env     []string                // of the process that started the session

	// RuleSources says where the rules are from, for people.
	RuleSources RuleSources

	// Wrap changes what the loop of an agent is made of, before it is; nil: nothing is changed.
	Wrap func(id task.ID, c *agent.Config)
	// Work is Instead of [supervise.Config].
	Work func(d task.Driver, spec task.Spec) (task.Driver, task.ID)
	// Told is that of [supervise.Config].
	Told func(task.Message)
	// Mail is that of [supervise.Config].
	Mail func(ctx context.Context, m task.Message, post func() (task.Seq, error)) (task.Seq, error)
	// Tape stands between the agents and what is outside of the session; nil: nothing does.
	Tape environment.Tape

	// Foreign are those of the rules that were written for another program. One
	// that is not understood bans its whole tool, and stops nobody.
	Foreign []string

	// Client completes the environment of a client with the settings of providers, as Env has
	// them already, and removes the variables with keys that the user has named. nil: the
	// environment is unchanged.
	Client func(env []string) []string

	Notes string // of the project and the user; part of every system prompt

	Hooks    *hook.Set            // nil: disabled
	Accounts *usage.Accounts      // nil: usage is not counted
	Budget   usage.Budget         // of each top-level agent with all below it; needs Accounts
	Skills   func() skill.Catalog // read at each use; nil: none
	Todos    *todo.Store          // nil: no to-do list

	Commands func() command.Catalog // read at each use; nil: those of the program

	Remote services.Config // services of remote agents

	Worktrees *worktree.Store // of isolated agents; nil: agents cannot be isolated

	Memory Memory

	Web   *webtool.Fetcher // nil: no pages are fetched
	Tools []agent.Tool     // of the program that holds the session; shared by all agents
	MCP   *servers.Config  // nil: no MCP servers

	Sees   func(model string) bool          // a model sees images; nil: all do
	Window func(model string) (int64, bool) // context window of a model in tokens; nil: unknown
	Share  float64                          // share of the window at which a conversation is compacted

	// BudgetWall is how long each top-level agent may work; 0: no limit.
	BudgetWall time.Duration
	// KeepRule stores an allow rule that the user wants to keep for later sessions. nil: it is
	// not stored.
	KeepRule func(ctx context.Context, rule string) error
	// AskWait is how long a question waits for an answer before the call is denied; 0: nobody
	// can answer.
	AskWait time.Duration
	// FormWait is the same for forms of MCP servers, where it is longer.
	FormWait time.Duration
	// Summaries is the interval at which the summary of a running agent is renewed; 0: never.
	Summaries time.Duration
	// StallAfter is how long a working agent may be silent before its owner is notified; 0: no
	// limit.
	StallAfter time.Duration
	// Tell is called with messages for the user. The ID is as for On. It may be called by
	// several goroutines. nil: messages are dropped.
	Tell func(from task.ID, text string)
	// On is called with the events of the conversations of the session: the ID is that of the
	// agent's task, or of the session for the main agent. It is called by one goroutine at a
	// time for each agent.
	On func(from task.ID, e agent.Event)
	// OnHook is told of hooks that begin and end, by several goroutines. nil: nobody is.
	OnHook func(from task.ID, r hook.Ran)
}

// Session is an open session. Its methods may be called by several goroutines.
type Session struct {
	*requests.Tasks // the task requests of clients

	cfg     Config
	log     *journal.Journal
	sup     *supervise.Supervisor
	tree    *tree.Tree
	kinds   *builtin.Kinds
	fleet   *placement.Fleet
	unlock  func()
	started time.Time

	life context.Context // ends when Close begins
	end  context.CancelFunc

	idle *idle.Watch // whether anything is left to do

	activity *activity.Watch // of running tasks
	upkeep   *upkeep.Upkeep
	audience *conversation.Audience // attached clients

	mail      *messages.Mailboxes
	checkouts *environment.Checkouts // of isolated agents
	report    *environment.Reporter

	space     *diskspace.Guard
	snapshots *snapshot.Writer // of the log

	budgets *budget.Budgets // of agents
	dreams  *dreams.Dreams
	servers *servers.Servers // MCP servers

	agents    *agents.Set
	work      *work.Work
	services  *services.Services // of remote work
	leases    *lease.Leases
	parking   *parking.Lot
	schedules *schedule.Clock // nil: it has none

	unscheduled error          // why a background session has none
	jobs        sync.WaitGroup // joined by Close
	approvals   *approvals.Approvals
	sandboxes   *sandboxes.Sandboxes

	title atomic.Pointer[string] // see Entitle; nil: none was given

	hurried atomic.Bool
	hurry   sync.WaitGroup // cancels hooks; Close waits
	over    chan struct{}  // closed when Close ends

	mu     sync.Mutex // guards the fields below
	main   *Main
	closed bool
}

// Open opens the session, and creates it if it is new. The error wraps [home.ErrLocked] if the
// session is open in another process.
func Open(ctx context.Context, cfg Config) (_ *Session, err error) {
	cfg.Limits = cfg.Limits.filled()
	cfg.Info = carried(cfg.Place, cfg.Info)
	if err := environment.CheckTools(cfg.Agents.Tools); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	s := &Session{
		cfg:     cfg,
		started: time.Now().UTC(),
		over:    make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.audience = conversation.NewAudience(s.abandoned)
	if err := cfg.Place.Ensure(); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	if s.unlock, err = cfg.Place.Lock(); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	defer func() {
		if err != nil {
			s.end()
			s.unlock()
			err = archive.Explain(cfg.Place, err)
		}
	}()
	_ = failpoint.Hit("session/locked")
	if err := s.openLog(); err != nil {
		return nil, err
	}
	s.assemble()
	_ = failpoint.Hit("session/opened")
	if err := s.takeIn(ctx); err != nil {
		s.sup.Close()
		return nil, errors.Join(fmt.Errorf("open session %s: %w", cfg.Info.Session, err), s.log.Close())
	}
	if err := s.writeInfo(nil); err != nil {
		s.sup.Close()
		return nil, errors.Join(err, s.log.Close())
	}
	_ = failpoint.Hit("session/shown")
	if err := s.openSchedules(); err != nil { // the tasks of the session are not held up by that
		s.report.Say(cfg.Info.Session, err.Error())
		s.schedules, s.unscheduled = nil, err
	}
	s.start()
	return s, nil
}

// openLog opens the log. An error says so if it was lost.
func (s *Session) openLog() (err error) {
	place, id := s.cfg.Place, s.cfg.Info.Session
	if s.log, err = journal.Open(place.DB(), journal.Options{Power: s.cfg.Power}); err != nil {
		return fmt.Errorf("open session %s: %w", id, err)
	}
	if err := archive.Lost(place, s.log); err != nil {
		_ = s.log.Close()
		return fmt.Errorf("open session %s: %w", id, err)
	}
	return nil
}

// assemble makes the parts of the session, which stand still until start.
func (s *Session) assemble() {
	cfg := s.cfg
	s.report = environment.NewReporter(cfg.Info.Session, cfg.Agents.Tell)
	report := func(text string) { s.report.Say(cfg.Info.Session, text) }
	s.space = diskspace.New(
		diskspace.Config{
			Place:        cfg.Place,
			QuotaBytes:   cfg.Limits.UserQuota,
			MinFreeBytes: cfg.Limits.MinFree,
			Report:       report,
		},
	)
	sc := shell.Config{ExitFile: cfg.Place.ExitFile, Copier: cfg.Copier, Keys: cfg.Place.KeysFile, Grown: s.space.Grown,
		MaxProcesses: cfg.Limits.Processes}
	if cfg.Keeper != nil {
		sc.Keeper = cfg.Keeper
	}
	edits := &environment.Edits{}
	s.checkouts = environment.NewCheckouts(
		cfg.Agents.Worktrees,
		cfg.Agents.Tape,
		edits,
		func(about task.ID, text string) { s.report.Say(about, text) },
	)
	s.servers = servers.New(s.life, cfg.Agents.MCP, cfg.Place)
	s.kinds = builtin.New(sc)
	s.useRemote()
	s.kinds.UseMCPTasks(mcptask.Config{Open: s.servers.OpenTask, AskWait: max(cfg.Agents.AskWait, cfg.Agents.FormWait)})
	s.sup = supervise.New(supervise.Config{
		Session:    cfg.Info.Session,
		Log:        s.log,
		Output:     s.output,
		OutputPath: cfg.Place.Output,
		Recorded:   func(n lifecycle.Notification) { s.budgets.Ended(n.Task) },
		Ended:      s.ended,
		Unseen: func(ctx context.Context, owner task.ID) ([]lifecycle.Notification, error) {
			unread, _, _, err := s.log.Mail(ctx, owner, 0)
			return unread, err
		},
		Room:    s.space.Admit,
		Held:    cfg.Limits.HeldTasks,
		Grace:   cfg.Limits.HeldFor,
		Recall:  s.log.Newest,
		Instead: cfg.Agents.Work,
		Told:    cfg.Agents.Told,
		Mail:    cfg.Agents.Mail,
		Unsaved: s.space.Saved,
		Pools: map[string]supervise.Pool{
			agents.Pool: {Size: cfg.Limits.LiveAgents, Queue: 1000, Depth: cfg.Limits.Depth, PerRoot: cfg.Limits.PerRoot,
				PerSession: cfg.Limits.PerSession, Rate: cfg.Limits.SpawnRate},
			work.ShellPool:   {Size: cfg.Limits.LiveShells},
			work.MonitorPool: {Size: cfg.Limits.LiveMonitors, Queue: 1000},
			work.RemotePool:  {Size: remoteLive, Queue: 1000},
			work.WorkerPool:  {Size: placedLive},
		},
	})
	s.tree = tree.New(cfg.Info.Session, s.sup, s.log)
	s.mail = messages.New(messages.Config{Tasks: s.sup, Log: s.log, Place: cfg.Place,
		OutputChars: cfg.Limits.OutputChars, Hops: cfg.Limits.MessageHops})
	s.idle = idle.New(idle.Config{Session: cfg.Info.Session, Tasks: s.sup, Log: s.log, Tree: s.tree, Mailboxes: s.mail})
	s.leases = lease.New(s.sup)
	window, err := daypart.Parse(cfg.Limits.WakeWindow)
	if err != nil { // the settings have checked it; a program may not have
		report(fmt.Sprintf("limits.wakeWindow is ignored: %v", err))
	}
	s.parking = parking.New(parking.Config{Window: window, Budget: cfg.Limits.WakeBudget})
	s.approvals = approvals.New(s.sup, cfg.Agents.KeepRule)
	s.budgets = budget.New(
		budget.Config{
			Accounts: cfg.Agents.Accounts,
			Top:      cfg.Agents.Budget,
			TopWall:  cfg.Agents.BudgetWall,
			Tasks:    s.sup,
			Place:    cfg.Place,
		},
	)
	s.dreams = s.newDreams()
	chores := upkeep.Config{
		Place:     cfg.Place,
		Tasks:     s.sup,
		Report:    report,
		Brief:     cfg.Info.Role == RoleRun,
		Retention: cfg.Limits.Retention,
	}
	if cfg.Keeper != nil {
		chores.KeeperLost = cfg.Keeper.Lost()
	}
	if m := cfg.Agents.Memory; m.Auto && m.Store != nil {
		chores.Dreams = s.dreamTimer()
	}
	s.upkeep = upkeep.New(chores)
	s.activity = activity.New(activity.Config{Tasks: s.sup, Grown: s.log.Grown, Place: cfg.Place,
		CommandQuiet: cfg.Limits.StallAfter, AgentSilent: cfg.Agents.StallAfter, Summaries: cfg.Agents.Summaries})
	s.snapshots = snapshot.New(s.log, s.sup.Ended)
	s.openAgents(edits)
}

// boundServers starts the MCP servers of the project in the sandbox.
func (s *Session) boundServers() {
	m := s.cfg.Agents.MCP
	if m == nil || m.Pool == nil {
		return
	}
	folders := append([]string{s.cfg.Place.Project().Folder()}, s.cfg.Agents.Rules.Dirs...)
	m.Pool.Bound(func(name string, _ mcpclient.Server) (process.Bounds, error) {
		start, err := s.sandboxes.Command(sandboxes.Wish{
			Folders: folders, Line: name, Name: mcpclient.Outside + name,
			Reach: func(ctx context.Context, host string, port int, name string) error {
				return s.servers.Reach(ctx, name, host, port)
			},
		})
		if err != nil || start.Fork == nil {
			return nil, err
		}
		return start, nil
	})
}

// newSandboxes bounds the commands of the session. What Drover stores is hidden from them, but for
// outputs and checkouts.
func (s *Session) newSandboxes() *sandboxes.Sandboxes {
	c, place := s.cfg.Sandbox, s.cfg.Place
	root := place.Project().Root()
	c.Hidden = append(slices.Clone(c.Hidden), root.Dir())
	if s.cfg.Info.Socket != "" {
		c.Hidden = append(c.Hidden, filepath.Dir(s.cfg.Info.Socket))
	}
	c.Scratch = place.Scratch()
	if w := s.cfg.Agents.Worktrees; w != nil {
		if err := w.Ensure(); err != nil { // what is not there when the first command starts is not shown
			s.report.Say(s.cfg.Info.Session, err.Error())
		}
	}
	c.Shown = append(slices.Clone(c.Shown), place.Tasks(), c.Scratch, root.Worktrees(), root.Workspaces())
	c.Report = s.report.Once
	if self, err := process.Identify(os.Getpid()); err == nil {
		// It needs nothing else, and who is inside could try to read what it has.
		c.Env = append(c.Env, process.MarkSession+"="+string(s.cfg.Info.Session), process.MarkHost+"="+self.Mark())
	}
	return sandboxes.New(c)
}

// start lets the parts work that have work of their own, until life ends.
func (s *Session) start() {
	cfg := s.cfg
	s.checkouts.Start(s.life, cfg.Info.Session, func(id task.ID) bool {
		r, ok := s.sup.Get(id)
		return ok && !r.Status.Terminal()
	})
	s.activity.Start(s.life)
	s.snapshots.Start(s.life)
	s.space.Start(s.life)
	if store := cfg.Agents.Memory.Store; store != nil { // a host may have died during a dream
		if err := store.Recover(); err != nil {
			s.report.Say(cfg.Info.Session, err.Error())
		}
	}
	s.upkeep.Start(s.life)
	if c := s.schedules; c != nil {
		s.jobs.Go(func() { c.Run(s.life) })
	}
}

// openAgents creates what the session needs to start agents and other work.
func (s *Session) openAgents(edits *environment.Edits) {
	a, l := s.cfg.Agents, s.cfg.Limits
	gates := environment.Gates{Foreign: a.Foreign, Report: s.report}
	s.sandboxes = s.newSandboxes()
	s.boundServers()
	s.fleet = s.newFleet()
	s.work = work.New(work.Config{Kinds: s.kinds, Fleet: s.fleet, Gates: gates, Rules: a.Rules, Servers: s.servers,
		Services:   s.services,
		NoMonitors: l.NoMonitors, Client: a.Client, Sandboxes: s.sandboxes})
	cfg := agents.Config{
		Session: s.cfg.Info.Session, Project: s.cfg.Info.Project, Version: s.cfg.Info.Version, Started: s.started,
		Place: s.cfg.Place, Sync: s.cfg.Power,
		Limits: agents.Limits{Depth: l.Depth, OutputChars: l.OutputChars, NestedBackground: l.NestedBackground,
			NoBackground: l.NoBackground, NoMonitors: l.NoMonitors, QuoteFrom: l.QuoteFrom,
			MultiTurn: l.MultiTurn, IdleTimeout: l.IdleTimeout, WaitForTasks: l.WaitForTasks,
			TeammateGrace: l.TeammateGrace},
		Models: a.Models, Model: a.Model, Instead: a.Instead, Policy: a.Policy, Catalog: a.Catalog, Rules: a.Rules,
		Env: a.Env, Notes: a.Notes, RuleSources: a.RuleSources,
		Hooks: a.Hooks, Skills: a.Skills, Todos: a.Todos, Memory: a.Memory.Store, Web: a.Web, Tools: a.Tools,
		KeepParked: s.cfg.Info.Role == RoleBackground,
		Remote:     a.Remote.Usual != "", Workers: s.cfg.Workers, Sees: a.Sees, Window: a.Window, Share: a.Share,
		AskWait: a.AskWait, FormWait: a.FormWait, Wrap: a.Wrap, Tape: a.Tape,
		On: a.On, OnHook: a.OnHook,
	}
	if s.cfg.Keeper != nil {
		cfg.Ready = s.cfg.Keeper.Ready
	}
	s.agents = agents.New(cfg, agents.Parts{
		Tasks: s.sup, Log: s.log, Kinds: s.kinds, Tree: s.tree, Mailboxes: s.mail, Idle: s.idle, Budgets: s.budgets,
		Servers: s.servers, Activity: s.activity, Checkouts: s.checkouts, Edits: edits, Approvals: s.approvals,
		Report: s.report, Gates: gates, Work: s.work, Space: s.space, Sandboxes: s.sandboxes, Parking: s.parking,
		Fleet: s.fleet,
	})
	s.Tasks = requests.New(requests.Config{
		Session: s.cfg.Info.Session, Role: s.cfg.Info.Role, Place: s.cfg.Place, NoBackground: l.NoBackground,
		Sees:       a.Sees,
		Supervisor: s.sup, Log: s.log, Tree: s.tree, Mailboxes: s.mail, Idle: s.idle, Activity: s.activity,
		Space: s.space, Agents: s.agents, Work: s.work, Leases: s.leases, Dreams: s.dreams,
	})
}

// Alone returns a context that ends when the session has lost its keeper and has therefore
// stopped its commands, or has lost its folder and has stopped everything. Its cause states
// which. No further command can be started then.
func (s *Session) Alone() context.Context { return s.upkeep.Lost() }

// Retire refuses every further start and every further client, if no task is alive, no client is
// attached and there are no schedules; it reports whether it does.
func (s *Session) Retire() bool {
	return s.audience.Retire(func() bool {
		if s.schedules == nil {
			return s.sup.Retire()
		}
		return s.schedules.Retire(s.sup.Retire)
	})
}

// takeIn passes the tasks of earlier hosts to the supervisor.
func (s *Session) takeIn(ctx context.Context) error {
	if s.log.Last() == 0 {
		return nil
	}
	left, err := s.snapshots.Read(ctx)
	if err != nil {
		return err
	}
	old := make([]supervise.Old, len(left.States))
	begun := archive.Begun(left.States, s.cfg.Place.ExitFile)
	for i, st := range left.States {
		old[i] = supervise.Old{Born: st.Born, Task: st.Task}
		if p, ok := begun[st.Task.ID]; ok {
			old[i].Begun = &p
		}
	}
	s.budgets.Restore(left.States, left.Ended)
	for _, st := range left.States {
		if s.goesOn(st.Task) && st.Task.Parked != nil {
			s.parking.Restore(*st.Task.Parked)
		}
	}
	s.sup.Remember(left.Ended)
	if err := s.sup.Adopt(ctx, old, s.kinds.For); err != nil {
		return err
	}
	_ = failpoint.Hit("session/adopted")
	if slices.ContainsFunc(left.States, func(st journal.State) bool { return placement.Misses(st.Task, time.Now()) }) {
		s.jobs.Go(func() { s.fleet.Listen(s.life) })
	}
	services.RemoveSidecars(s.cfg.Place, func(id task.ID) bool {
		r, known := s.sup.Get(id)
		return known && r.Status.Terminal()
	})
	if err := s.settleLost(ctx, left.States); err != nil {
		return err
	}
	s.endOrphans()
	return nil
}

// lostWait limits how long opening waits until the tasks that died with the earlier host are
// recorded as ended.
const lostWait = 5 * time.Second

// settleLost waits for those records, so that the notifications are delivered with the first
// prompt and not after its answer.
func (s *Session) settleLost(ctx context.Context, states []journal.State) error {
	var dead []task.ID
	for _, st := range states {
		if !st.Task.Status.Terminal() && (!st.Task.Keep || departed(st.Task)) && !s.goesOn(st.Task) {
			dead = append(dead, st.Task.ID)
		}
	}
	wait, cancel := context.WithTimeoutCause(ctx, lostWait, supervise.ErrTimeout)
	defer cancel()
	_, err := s.sup.Wait(wait, dead, false)
	if errors.Is(err, supervise.ErrTimeout) {
		return nil // it is delivered later
	}
	return err
}

// departed reports whether a command has ended although its end could not be recorded.
func departed(r task.Record) bool {
	p := r.Process
	return p != nil && !process.Alive(process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot})
}

// output opens the output file of a task. A file that exists at the path of a new task was
// planted, and is refused.
func (s *Session) output(r task.Record, again bool) (supervise.OutputFile, error) {
	opt := spool.Options{Limit: s.cfg.Limits.OutputBytes, Below: s.cfg.Place.Below().For(r.OutputFile), Take: s.space.Take}
	open := spool.Open
	if again {
		open = spool.Reopen
	}
	f, err := open(r.OutputFile, opt)
	if again && errors.Is(err, os.ErrNotExist) { // the earlier run never began
		f, err = spool.Open(r.OutputFile, opt)
	}
	if err != nil {
		return nil, err
	}
	return s.budgets.Output(r, f), nil
}

// ended is called by the supervisor after every durable end.
func (s *Session) ended(task.Record, lifecycle.Notification) {
	s.idle.Change()
	s.snapshots.TaskEnded()
}

// Changed returns a channel that is closed when the next task ends.
func (s *Session) Changed() <-chan struct{} { return s.idle.Changed() }

// Grown returns a channel that is closed at the next event.
func (s *Session) Grown() <-chan struct{} { return s.log.Grown() }

// Newest returns the number of the newest event.
func (s *Session) Newest() task.Seq { return s.log.Last() }

// Since returns the existing events after a number, oldest first.
func (s *Session) Since(ctx context.Context, after task.Seq) ([]task.Event, error) {
	return s.log.Since(ctx, after)
}

// writeInfo writes session.json.
func (s *Session) writeInfo(end *time.Time) error {
	info := s.info()
	info.EndTime = end
	if end != nil {
		info.DiskBytes, info.OutputBytes = archive.DiskBytes(s.cfg.Place)
		info.Live, info.PID = false, 0
	}
	return archive.WriteInfo(s.cfg.Place, info)
}

func (s *Session) info() control.Info {
	info := s.cfg.Info
	info.Dir = s.cfg.Place.Dir()
	info.StartTime = s.started
	info.PID = os.Getpid()
	info.Live = true
	info.Tasks.Live, info.Tasks.Total = s.sup.Live()
	if r, ok := s.sup.Get(info.Session); ok && info.Title == "" {
		info.Title = r.Description
	}
	if title := s.title.Load(); title != nil && info.Title == "" {
		info.Title = *title
	}
	return info
}

// Close ends everything in order: the main agent's turn, every task, the
// keeper's watch, the log. A second call does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	main := s.main
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.leases.Close()
	var errs []error
	if main != nil {
		main.End()
	}
	s.end()
	s.audience.Close()
	defer func() {
		s.mu.Lock()
		close(s.over)
		s.mu.Unlock()
		s.hurry.Wait()
	}()
	_ = failpoint.Hit("close/begun")
	s.sup.Close()
	s.services.Close()
	s.fleet.Close()
	s.parking.Close()
	s.jobs.Wait()
	_ = failpoint.Hit("close/ended")
	s.activity.Close()
	s.upkeep.Close()
	s.checkouts.Close()
	if main != nil {
		errs = append(errs, main.close())
	}
	s.servers.Close()
	s.sandboxes.Close()
	s.endProcesses()
	if s.cfg.Keeper != nil {
		errs = append(errs, s.cfg.Keeper.Close())
	}
	_ = failpoint.Hit("close/swept")
	s.space.Close()
	s.snapshots.Close()
	now := time.Now().UTC()
	void := main == nil && s.void() || main.unused()
	if s.cfg.Ended != nil {
		s.cfg.Ended(s.log.Last())
	}
	errs = append(errs, s.writeInfo(&now), s.log.Close())
	if void {
		errs = append(errs, s.cfg.Place.Below().RemoveAll(s.cfg.Place.Dir()))
	}
	s.unlock()
	return errors.Join(errs...)
}

// void reports whether this is the session of a prompt without any event, since its main agent
// could not be opened: a client that continues the last conversation does not mean it.
func (s *Session) void() bool {
	_, err := s.cfg.Place.Below().Lstat(s.cfg.Place.Transcript())
	return s.cfg.Info.Role == RolePrompt && s.log.Last() == 0 && errors.Is(err, os.ErrNotExist)
}

// hookGrace limits the hooks at ends after the process was signalled to exit.
const hookGrace = 500 * time.Millisecond

// Hurry cancels running hooks after a short time, and all later ones: a signal has come, and
// its sender waits.
func (s *Session) Hurry() {
	if s.hurried.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return // nothing runs any more, and Close waits or has waited
	default:
	}
	s.hurry.Go(func() {
		late := time.NewTimer(hookGrace)
		defer late.Stop()
		select {
		case <-late.C:
		case <-s.over:
			return
		}
		for r := range s.agents.Runners() {
			r.Close()
		}
	})
}

// endProcesses ends the processes that tasks of this session left outside their groups. Kept
// tasks are spared.
func (s *Session) endProcesses() {
	kept := map[task.ID]bool{}
	any, held := false, 0
	for _, r := range s.sup.List(0) {
		if held++; !r.Status.Terminal() {
			kept[r.ID] = true
		}
		any = any || r.Process != nil
	}
	if _, total := s.sup.Live(); !any && total == held {
		return
	}
	ended.EndProcesses(s.cfg.Info.Session, kept)
}

// endOrphans ends processes of earlier hosts that those did not record.
func (s *Session) endOrphans() {
	kept := map[task.ID]bool{}
	for _, r := range s.sup.List(0) {
		if r.Keep && !r.Status.Terminal() {
			kept[r.ID] = true
		}
	}
	ended.EndOrphans(s.cfg.Info.Session, kept)
}
