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
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/remote"
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
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/activity"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/idle"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/requests"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/schedule"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/task"
)

// Bounds of a session.
const (
	liveShells = 1000
	heldTasks  = 5000   // ended tasks in memory
	remoteLive = 200    // remote tasks that are polled
	placedLive = 10_000 // tasks that are offered to workers, or at work there; each has an open file
	queued     = 1000   // tasks of one pool that wait
)

// Config configures a session. Place, Info and Options are required.
type Config struct {
	Place   home.Session
	Info    control.Info // Session, Project, Role, Version, Socket
	Options options.Options
	Agents  agents.Config
	Keeper  *keeper.Link
	Copier  []string         // holds the terminals of commands; see [shell.Config]
	Sandbox sandboxes.Config // of commands that models start; Env and Report are the session's

	// Hub connects to the hub of workers. nil: none.
	Hub func(ctx context.Context) (*link.Link, error)

	HeldTasks int           // ended tasks in memory; older ones are read from the log; 0: 5,000
	HeldFor   time.Duration // minimum time in memory after the end; 0: 30 s

	// Ended is called with the number of the newest event of the log, before the log is closed: who reads
	// the log to its end may do so now. nil: not called.
	Ended func(last task.Seq)
}

// Session is an open session. Its methods may be called by several goroutines.
type Session struct {
	*requests.Tasks // the task requests of clients

	cfg    Config
	tree   *tree.Tree // what its parts share
	log    *journal.Journal
	sup    *supervise.Supervisor
	unlock func()

	life context.Context // ends when Close begins
	end  context.CancelFunc
	jobs sync.WaitGroup // joined by Close

	space     *upkeep.Space
	servers   *servers.Servers // MCP servers
	remote    *remote.Driver   // of agents elsewhere
	fleet     *placement.Fleet // workers on other machines
	sandboxes *sandboxes.Sandboxes
	mail      *messages.Mailboxes
	idle      *idle.Watch      // whether anything is left to do
	budgets   *budget.Budgets  // of agents
	activity  *activity.Watch  // of running tasks
	snapshots *snapshot.Writer // of the log
	agents    *agents.Set
	dreams    *dreams.Dreams
	upkeep    *upkeep.Upkeep
	audience  *conversation.Audience // attached clients

	schedules   *schedule.Clock // nil: it has none
	unscheduled error           // why a background session has none

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
	cfg.Info = carried(cfg.Place, cfg.Info)
	cfg.Info.StartTime = time.Now().UTC()
	if err := environment.CheckTools(cfg.Agents.Tools); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	if cfg.Agents.Seam == nil {
		cfg.Agents.Seam = environment.Unrecorded{}
	}
	s := &Session{cfg: cfg, over: make(chan struct{})}
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
			err = stored.Explain(cfg.Place, err)
		}
	}()
	_ = failpoint.Hit("session/locked")
	if err := s.openLog(); err != nil {
		return nil, err
	}
	s.compose()
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
		s.tree.Say(err.Error())
		s.schedules, s.unscheduled = nil, err
	}
	s.start()
	return s, nil
}

// openLog opens the log. An error says so if it was lost.
func (s *Session) openLog() (err error) {
	place, id := s.cfg.Place, s.cfg.Info.Session
	if s.log, err = journal.Open(place.DB(), journal.Options{Power: s.cfg.Options.Power()}); err != nil {
		return fmt.Errorf("open session %s: %w", id, err)
	}
	if err := stored.Lost(place, s.log); err != nil {
		_ = s.log.Close()
		return fmt.Errorf("open session %s: %w", id, err)
	}
	return nil
}

// compose makes the parts of the session, which do nothing before start.
func (s *Session) compose() {
	cfg, opt := s.cfg, s.cfg.Options
	report := tree.NewReporter(cfg.Info.Session, cfg.Agents.Tell)
	say := func(text string) { report.Say(cfg.Info.Session, text) }
	s.space = upkeep.NewSpace(cfg.Place, opt.Tasks, say)
	s.sup = supervise.New(s.supervision())
	s.tree = &tree.Tree{Info: cfg.Info, Place: cfg.Place, Options: opt, Tasks: s.sup, Log: s.log, Report: report}

	s.servers = servers.New(s.life, cfg.Agents.MCP, cfg.Place)
	s.remote = s.newRemote()
	s.fleet = s.newFleet()
	s.sandboxes = s.newSandboxes()
	s.boundServers()
	kinds := builtin.New(s.shellConfig(), s.fleet,
		mcptask.Config{Open: s.servers.OpenTask, AskWait: max(cfg.Agents.AskWait, cfg.Agents.FormWait)}, s.remote)

	s.mail = messages.New(s.tree)
	s.idle = idle.New(s.tree, s.mail)
	s.budgets = budget.New(s.sup, cfg.Place, cfg.Agents.Accounts, opt.Agents)
	s.activity = activity.New(s.sup, s.log.Grown, cfg.Place, opt)
	s.snapshots = snapshot.New(s.log, s.sup.Ended)

	s.agents = agents.New(s.tree, cfg.Agents, kinds, s.mail, s.idle, s.activity, s.budgets, s.servers,
		s.sandboxes, s.space, cfg.Keeper)
	s.dreams = dreams.New(s.tree, cfg.Agents, s.agents, kinds, s.budgets, s.remembered)
	s.Tasks = requests.New(s.tree, s.mail, s.idle, s.activity, s.space, s.agents, s.dreams, cfg.Agents.Worktrees)
	s.upkeep = upkeep.New(cfg.Place, s.sup, s.keeperLost(), say)
}

// supervision configures the supervisor, which calls the parts of the session when tasks start and end.
func (s *Session) supervision() supervise.Config {
	cfg, limits := s.cfg, s.cfg.Options.Limits
	return supervise.Config{
		Session:    cfg.Info.Session,
		Log:        cfg.Agents.Seam.Log(s.log),
		Output:     s.output,
		OutputPath: cfg.Place.Output,
		Recorded:   func(n lifecycle.Notification) { s.budgets.Ended(n.Task) },
		Ended:      s.ended,
		Unseen: func(ctx context.Context, owner task.ID) ([]lifecycle.Notification, error) {
			unread, _, _, err := s.log.Mail(ctx, owner, 0)
			return unread, err
		},
		Room:    s.space.Admit,
		Held:    cmp.Or(cfg.HeldTasks, heldTasks),
		Grace:   cfg.HeldFor,
		Recall:  s.log.Newest,
		Prepare: cfg.Agents.Seam.Prepare,
		Unsaved: s.space.Saved,
		Pools: map[string]supervise.Pool{
			agents.Pool: {Size: limits.Live, Queue: queued, Depth: limits.Depth, PerRoot: limits.PerRoot,
				PerSession: limits.PerSession, Rate: limits.SpawnRate},
			agents.ShellPool:   {Size: liveShells},
			agents.MonitorPool: {Size: limits.Monitors, Queue: queued},
			agents.RemotePool:  {Size: remoteLive, Queue: queued},
			agents.WorkerPool:  {Size: placedLive},
		},
	}
}

// shellConfig configures the driver of commands.
func (s *Session) shellConfig() shell.Config {
	place := s.cfg.Place
	c := shell.Config{ExitFile: place.ExitFile, Copier: s.cfg.Copier, Keys: place.KeysFile, Grown: s.space.Add,
		MaxProcesses: s.cfg.Options.Tasks.MaxProcesses}
	if s.cfg.Keeper != nil {
		c.Keeper = s.cfg.Keeper
	}
	return c
}

// keeperLost is closed when the keeper has died; nil: the session has none.
func (s *Session) keeperLost() <-chan struct{} {
	if s.cfg.Keeper == nil {
		return nil
	}
	return s.cfg.Keeper.Lost()
}

// start lets the parts work that have work of their own, until life ends.
func (s *Session) start() {
	opt, store := s.cfg.Options, s.cfg.Agents.Memory
	s.agents.Start(s.life)
	s.activity.Start(s.life)
	s.snapshots.Start(s.life)
	s.space.Start(s.life)
	if store != nil { // a host may have died during a dream
		if err := store.Recover(); err != nil {
			s.tree.Say(err.Error())
		}
	}
	s.upkeep.Start(s.life, opt.Tasks.Retention, s.cfg.Info.Role == RoleRun)
	if store != nil && opt.Memory.Auto() {
		s.jobs.Go(func() { s.dreams.Run(s.life, s.idle) })
	}
	if c := s.schedules; c != nil {
		s.jobs.Go(func() { c.Run(s.life) })
	}
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

// newSandboxes bounds the commands of the session. Drover's files are hidden from them, except
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
		if err := w.Ensure(); err != nil { // a folder that is made after the first command starts is not shown
			s.tree.Say(err.Error())
		}
	}
	c.Shown = append(slices.Clone(c.Shown), place.Tasks(), c.Scratch, root.Worktrees(), root.Workspaces())
	c.Report = s.tree.Report.Once
	if self, err := process.Identify(os.Getpid()); err == nil {
		// It needs nothing else, and a command inside could try to read it.
		c.Env = append(c.Env, process.MarkSession+"="+string(s.cfg.Info.Session), process.MarkHost+"="+self.Mark())
	}
	return sandboxes.New(c)
}

// Alone returns a context that ends when the session has lost its keeper and has therefore
// stopped its commands, or has lost its folder and has stopped everything. Its cause states
// which. No further command can be started then.
func (s *Session) Alone() context.Context { return s.upkeep.Lost() }

// Retire refuses every further start and every further client, if no task is alive, no client is
// attached and the session has no schedules; it reports whether it does.
func (s *Session) Retire() bool {
	return s.audience.Retire(func() bool {
		if s.schedules == nil {
			return s.sup.Retire()
		}
		return s.schedules.Retire(s.sup.Retire)
	})
}

// output opens the output file of a task. A file that exists at the path of a new task was
// planted, and is refused.
func (s *Session) output(r task.Record, again bool) (supervise.OutputFile, error) {
	opt := spool.Options{Limit: s.cfg.Options.Tasks.OutputLimitBytes, Below: s.cfg.Place.Below().For(r.OutputFile),
		Take: s.space.Take}
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
	s.Tasks.Close()
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
	s.remote.Close()
	s.fleet.Close()
	s.jobs.Wait()
	_ = failpoint.Hit("close/ended")
	s.activity.Close()
	s.upkeep.Close()
	s.agents.Close()
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

// HastenHooks cancels running hooks after a short time, and all later ones: a signal has come, and
// its sender waits.
func (s *Session) HastenHooks() {
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
