// Package session is one conversation and the tree of tasks under it.
//
// A [Session] adds agents to a session of tasks, which package tasks has: mailboxes, servers, sandboxes, and at most
// one main agent ([Main]). It is the [control.API] of its own process.
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

	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/failpoint"
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
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// Bounds of a session.
const (
	remoteLive = 200    // remote tasks that are polled
	placedLive = 10_000 // tasks that are offered to workers, or at work there; each has an open file
	queued     = 1000   // tasks of one pool that wait
)

// Config configures a session. What the tasks of the session need is in the embedded Config; its More is the
// session's.
type Config struct {
	tasks.Config
	Agents  agents.Config
	Sandbox sandboxes.Config // of commands that models start; Env and Report are the session's

	// Hub connects to the hub of workers. nil: none.
	Hub func(ctx context.Context) (*link.Link, error)
}

// Session is an open session. Its methods may be called by several goroutines.
type Session struct {
	*requests.Tasks // the session of tasks, and what clients request of its agents

	cfg  Config
	tree *tree.Tree // what its parts share
	log  *journal.Journal
	sup  *supervise.Supervisor

	life context.Context // ends when Close begins
	jobs sync.WaitGroup  // joined by Close

	servers   *servers.Servers // MCP servers
	remote    *remote.Driver   // of agents elsewhere
	fleet     *placement.Fleet // workers on other machines
	sandboxes *sandboxes.Sandboxes
	mail      *messages.Mailboxes
	idle      *idle.Watch     // whether anything is left to do
	budgets   *budget.Budgets // of agents
	activity  *activity.Watch // of running tasks
	agents    *agents.Set
	dreams    *dreams.Dreams
	audience  *conversation.Audience // attached clients

	schedules   *schedule.Clock // nil: it has none
	unscheduled error           // why a background session has none

	hurried atomic.Bool
	hurry   sync.WaitGroup // cancels hooks; Close waits
	over    chan struct{}  // closed when Close ends

	mu   sync.Mutex // guards main
	main *Main
}

// Open opens the session, and creates it if it is new. The error wraps [home.ErrLocked] if the
// session is open in another process.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if err := environment.CheckTools(cfg.Agents.Tools); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	if cfg.Agents.Seam == nil {
		cfg.Agents.Seam = environment.Unrecorded{}
	}
	s := &Session{cfg: cfg, over: make(chan struct{})}
	cfg.More = beyond{s}
	base, err := tasks.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	s.compose(base)
	_ = failpoint.Hit("session/opened")
	if err = s.takeIn(ctx); err != nil {
		err = stored.Explain(cfg.Place, fmt.Errorf("open session %s: %w", cfg.Info.Session, err))
	} else {
		err = base.Begin(s.chores()...)
	}
	if err != nil {
		return nil, errors.Join(err, base.Abandon())
	}
	if err := s.openSchedules(); err != nil { // the tasks of the session are not held up by that
		s.tree.Say(err.Error())
		s.schedules, s.unscheduled = nil, err
	}
	s.start()
	return s, nil
}

// compose makes the parts of the session, which do nothing before start.
func (s *Session) compose(base *tasks.Session) {
	cfg := s.cfg
	s.cfg.Info, s.tree, s.log, s.sup, s.life = base.Tree.Info, base.Tree, base.Tree.Log, base.Tree.Tasks, base.Life
	s.audience = conversation.NewAudience(s.abandoned)
	s.servers = servers.New(s.life, cfg.Agents.MCP, cfg.Place)
	s.remote = s.newRemote()
	s.fleet = s.newFleet()
	s.sandboxes = s.newSandboxes()
	s.boundServers()
	kinds := builtin.New(base.ShellConfig(), s.fleet,
		mcptask.Config{Open: s.servers.OpenTask, AskWait: max(cfg.Agents.AskWait, cfg.Agents.FormWait)}, s.remote)

	s.mail = messages.New(s.tree)
	s.idle = idle.New(s.tree, s.mail)
	s.budgets = budget.New(s.sup, cfg.Place, cfg.Agents.Accounts, cfg.Options.Agents)
	s.activity = activity.New(s.sup, s.log.NextCommit, cfg.Place, cfg.Options)

	s.agents = agents.New(s.tree, cfg.Agents, kinds, s.mail, s.idle, s.activity, s.budgets, s.servers,
		s.sandboxes, base.Space, cfg.Keeper)
	s.dreams = dreams.New(s.tree, cfg.Agents, s.agents, kinds, s.budgets, s.remembered)
	s.Tasks = requests.New(base, s.mail, s.idle, s.agents, s.dreams, cfg.Agents.Worktrees)
}

// beyond is what the session does beyond commands.
type beyond struct{ *Session }

var _ tasks.More = beyond{}

// Supervise implements [tasks.More].
func (b beyond) Supervise(c *supervise.Config, log *journal.Journal) {
	limits := b.cfg.Options.Limits
	c.Log = b.cfg.Agents.Seam.Log(log)
	c.Prepare = b.cfg.Agents.Seam.Prepare
	c.Recorded = func(n lifecycle.Notification) { b.budgets.Ended(n.Task) }
	output, ended := c.Output, c.Ended
	c.Output = func(r task.Record, again bool) (supervise.OutputFile, error) {
		f, err := output(r, again)
		if err != nil {
			return nil, err
		}
		return b.budgets.Output(r, f), nil
	}
	c.Ended = func(r task.Record, n lifecycle.Notification) {
		ended(r, n)
		b.idle.Change()
	}
	c.Pools[agents.Pool] = supervise.Pool{Size: limits.Live, Queue: queued, Depth: limits.Depth, PerRoot: limits.PerRoot,
		PerSession: limits.PerSession, Rate: limits.SpawnRate}
	c.Pools[agents.MonitorPool] = supervise.Pool{Size: limits.Monitors, Queue: queued}
	c.Pools[agents.RemotePool] = supervise.Pool{Size: remoteLive, Queue: queued}
	c.Pools[agents.WorkerPool] = supervise.Pool{Size: placedLive}
}

// Mark implements [tasks.More].
func (b beyond) Mark(r task.Record) task.Record { return b.activity.Mark(r) }

// Waits implements [tasks.More].
func (b beyond) Waits(r task.Record) (line string, since time.Time, ok bool) {
	return b.activity.Waits(r)
}

// chores are the work of a host beyond its tasks. A session that is one command must start fast, and has none.
func (s *Session) chores() []func(context.Context) {
	if s.cfg.Info.Role == RoleRun {
		return nil
	}
	root, keep := s.cfg.Place.Project().Root(), s.cfg.Options.Tasks.Retention
	chores := []func(context.Context){s.watchFolder, func(ctx context.Context) {
		if err := ended.EndLost(ctx, root); err != nil && ctx.Err() == nil {
			s.tree.Say(err.Error())
		}
	}}
	if !keep.KeepsAll() {
		chores = append(chores, func(ctx context.Context) { ended.Retain(ctx, root, keep, s.tree.Say) })
	}
	return chores
}

// start lets the parts work that have work of their own, until life ends.
func (s *Session) start() {
	opt, store := s.cfg.Options, s.cfg.Agents.Memory
	s.agents.Start(s.life)
	s.activity.Start(s.life)
	if store != nil { // a host may have died during a dream
		if err := store.Recover(); err != nil {
			s.tree.Say(err.Error())
		}
	}
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
	c.Scratch, c.Caches = place.Scratch(), filepath.Join(place.Project().Dir(), "caches")
	if w := s.cfg.Agents.Worktrees; w != nil {
		if err := w.Ensure(); err != nil { // a folder that is made after the first command starts is not shown
			s.tree.Say(err.Error())
		}
	}
	c.Shown = append(slices.Clone(c.Shown),
		place.Tasks(), c.Scratch, filepath.Join(c.Caches, "own"), root.Worktrees(), root.Workspaces())
	c.Report = s.tree.Report.Once
	if self, err := process.Identify(os.Getpid()); err == nil {
		// It needs nothing else, and a command inside could try to read it.
		c.Env = append(c.Env, process.MarkSession+"="+string(s.cfg.Info.Session), process.MarkHost+"="+self.Mark())
	}
	return sandboxes.New(c)
}

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

// Changed returns a channel that is closed when the next task ends, or becomes idle.
func (s *Session) Changed() <-chan struct{} { return s.idle.Changed() }

// Close ends everything in order: the main agent's turn, every task, the
// keeper's watch, the log. A second call does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	main := s.main
	s.mu.Unlock()
	if !s.Leave() {
		return nil
	}
	if main != nil {
		main.End()
	}
	s.End()
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
	s.agents.Close()
	var errs []error
	if main != nil {
		errs = append(errs, main.close())
	}
	s.servers.Close()
	s.sandboxes.Close()
	return errors.Join(append(errs, s.Finish(main == nil && s.void() || main.unused()))...)
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
