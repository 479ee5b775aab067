// Package tasks is an open session of tasks: its folder, its log, the supervisor, and the requests of clients about
// tasks.
//
// A [Session] owns the folder of the session while it is open. It is a [control.API] that starts commands, and work of
// the program that opened it; it lists tasks, waits for them, stops them, steers them and answers their questions. It
// owns the leases of clients: no task of a lease is left running when the client has released it, or has not held it
// within [LeaseWait]. A refusal is a [control.Error] that says what to do instead. Closing ends everything in order.
//
// The package knows no agents, models, settings and sockets. Package session adds agents to a session of tasks.
package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/snapshot"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// Bounds of a session.
const (
	liveShells = 1000
	heldTasks  = 5000 // ended tasks in memory
)

// ShellPool is the name of the pool of commands.
const ShellPool = "shells"

// Config configures a session. Place, Info and Options are required.
type Config struct {
	Place   home.Session
	Info    control.Info // Session, Project, Role, Version, Socket
	Options options.Options
	Keeper  *keeper.Link
	Copier  []string // holds the terminals of commands; see [shell.Config]

	// Tell is called with messages for the user about a task, or about the session, by several goroutines. nil: messages
	// are dropped.
	Tell func(about task.ID, text string)

	HeldTasks int           // ended tasks in memory; older ones are read from the log; 0: 5,000
	HeldFor   time.Duration // minimum time in memory after the end; 0: 30 s

	// Ended is called with the number of the newest event of the log, before the log is closed: who reads
	// the log to its end may do so now. nil: not called.
	Ended func(last task.Seq)

	More More // what more than commands the session has; nil: nothing
}

// More is what a session does beyond commands. Only Supervise is called before New has returned.
type More interface {
	// Supervise completes the configuration of the supervisor.
	Supervise(c *supervise.Config, log *journal.Journal)
	// Mark adds to the record of a live task what is not recorded.
	Mark(r task.Record) task.Record
	// Waits returns the input that a command waits for, and since when.
	Waits(r task.Record) (line string, since time.Time, ok bool)
}

// commands is a session that does nothing but commands.
type commands struct{}

func (commands) Supervise(*supervise.Config, *journal.Journal)          {}
func (commands) Mark(r task.Record) task.Record                         { return r }
func (commands) Waits(task.Record) (line string, at time.Time, ok bool) { return "", at, false }

// Session is an open session. Its methods may be called by several goroutines.
type Session struct {
	control.Refusing
	Tree      *tree.Tree
	Space     *Space
	Snapshots *snapshot.Writer // of the log
	Life      context.Context  // ends when Close begins

	cfg    Config
	more   More
	shell  *shell.Driver
	unlock func()
	end    context.CancelFunc
	chores sync.WaitGroup  // of Begin; joined by Finish
	alone  context.Context // ends with a cause; see Alone
	lose   context.CancelCauseFunc
	leases leases

	mu     sync.Mutex // guards the fields below, and the description on disk
	title  string     // see Entitle
	closed bool

	ends    sync.Mutex    // guards the fields below
	changed chan struct{} // closed and replaced when a task ends
	state   control.State
}

// Open opens a new session that does nothing but commands, and creates its folder. The error wraps [home.ErrLocked] if
// the session is open in another process.
func Open(cfg Config) (*Session, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if s.Tree.Log.Last() > 0 {
		err = fmt.Errorf("open session %s: it is not new, and this kind of session continues no tasks", cfg.Info.Session)
	} else {
		err = s.Begin()
	}
	if err != nil {
		return nil, errors.Join(err, s.Abandon())
	}
	return s, nil
}

// New locks the folder of a session and opens its log. The session starts nothing before Begin, which the caller calls
// when it has taken in what the log has, or Abandon.
func New(cfg Config) (_ *Session, err error) {
	cfg.Info = carried(cfg.Place, cfg.Info)
	cfg.Info.StartTime = time.Now().UTC()
	s := &Session{Refusing: noAgents, cfg: cfg, more: cmp.Or[More](cfg.More, commands{}), changed: make(chan struct{})}
	s.Life, s.end = context.WithCancel(context.Background())
	s.alone, s.lose = context.WithCancelCause(context.Background())
	if err := cfg.Place.Ensure(); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	if s.unlock, err = cfg.Place.Lock(); err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	_ = failpoint.Hit("session/locked")
	log, err := openLog(cfg)
	if err != nil {
		s.unlock()
		return nil, stored.Explain(cfg.Place, err)
	}
	report := tree.NewReporter(cfg.Info.Session, cfg.Tell)
	say := func(text string) { report.Say(cfg.Info.Session, text) }
	s.Space = NewSpace(cfg.Place, cfg.Options.Tasks, say)
	sup := supervise.New(s.supervision(log))
	s.Tree = &tree.Tree{Info: cfg.Info, Place: cfg.Place, Options: cfg.Options, Tasks: sup, Log: log, Report: report}
	s.Snapshots = snapshot.New(log, sup.Ended)
	s.shell = shell.New(s.ShellConfig())
	s.leases = leases{tasks: sup, named: map[string]*lease{}}
	return s, nil
}

// openLog opens the log. An error says so if it was lost.
func openLog(cfg Config) (*journal.Journal, error) {
	log, err := journal.Open(cfg.Place.DB(), journal.Options{Power: cfg.Options.Power()})
	if err != nil {
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	if err := stored.Lost(cfg.Place, log); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("open session %s: %w", cfg.Info.Session, err)
	}
	return log, nil
}

// supervision configures the supervisor.
func (s *Session) supervision(log *journal.Journal) supervise.Config {
	c := supervise.Config{
		Session:    s.cfg.Info.Session,
		Log:        log,
		Output:     s.output,
		OutputPath: s.cfg.Place.Output,
		Ended:      s.noted,
		Unseen: func(ctx context.Context, owner task.ID) ([]lifecycle.Notification, error) {
			unread, _, _, err := log.Mail(ctx, owner, 0)
			return unread, err
		},
		Room:    s.Space.Admit,
		Held:    cmp.Or(s.cfg.HeldTasks, heldTasks),
		Grace:   s.cfg.HeldFor,
		Recall:  log.Newest,
		Unsaved: s.Space.Saved,
		Pools:   map[string]supervise.Pool{ShellPool: {Size: liveShells}},
	}
	s.more.Supervise(&c, log)
	return c
}

// ShellConfig configures the driver of commands.
func (s *Session) ShellConfig() shell.Config {
	place := s.cfg.Place
	c := shell.Config{ExitFile: place.ExitFile, Copier: s.cfg.Copier, Keys: place.KeysFile, Written: s.Space.Add,
		MaxProcesses: s.cfg.Options.Tasks.MaxProcesses}
	if s.cfg.Keeper != nil {
		c.Keeper = s.cfg.Keeper
	}
	return c
}

// Begin shows the session to others and lets its parts work until Close. chores are further work until then, which ends
// with its context.
func (s *Session) Begin(chores ...func(ctx context.Context)) error {
	if err := s.writeInfo(nil); err != nil {
		return err
	}
	_ = failpoint.Hit("session/shown")
	s.Snapshots.Start(s.Life)
	s.Space.Start(s.Life)
	if k := s.cfg.Keeper; k != nil {
		s.chores.Go(func() { s.watchKeeper(s.Life, k.Lost()) })
	}
	for _, do := range chores {
		s.chores.Go(func() { do(s.Life) })
	}
	return nil
}

// Abandon closes a session that has not begun.
func (s *Session) Abandon() error {
	defer s.unlock()
	s.end()
	s.lose(nil)
	s.Tree.Tasks.Close()
	return s.Tree.Log.Close()
}

// Alone returns a context that ends when the session has lost its keeper and has therefore
// stopped its commands, or has lost its folder and has stopped everything. Its cause states
// which. No further command can be started then.
func (s *Session) Alone() context.Context { return s.alone }

// Retire refuses every further start, if no task is alive; it reports whether it does.
func (s *Session) Retire() bool { return s.Tree.Tasks.Retire() }

// output opens the output file of a task. A file that exists at the path of a new task was
// planted, and is refused.
func (s *Session) output(r task.Record, again bool) (supervise.OutputFile, error) {
	opt := spool.Options{Limit: s.cfg.Options.Tasks.OutputLimitBytes, Below: s.cfg.Place.Below().For(r.OutputFile),
		Take: s.Space.Take}
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
	return f, nil
}

// noted is called by the supervisor after every durable end.
func (s *Session) noted(task.Record, lifecycle.Notification) {
	s.ends.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.ends.Unlock()
	s.Snapshots.TaskEnded()
}

// Changed returns a channel that is closed when the next task ends.
func (s *Session) Changed() <-chan struct{} {
	s.ends.Lock()
	defer s.ends.Unlock()
	return s.changed
}

// NextCommit returns a channel that is closed at the next event of the log.
func (s *Session) NextCommit() <-chan struct{} { return s.Tree.Log.NextCommit() }

// Newest returns the number of the newest event.
func (s *Session) Newest() task.Seq { return s.Tree.Log.Last() }

// Since returns the existing events after a number, oldest first.
func (s *Session) Since(ctx context.Context, after task.Seq) ([]task.Event, error) {
	return s.Tree.Log.Since(ctx, after)
}

// Close ends everything in order: every task, the keeper's watch, the log. A second call does nothing.
func (s *Session) Close() error {
	if !s.Leave() {
		return nil
	}
	s.End()
	s.Tree.Tasks.Close()
	return s.Finish(false)
}

// Leave begins to close: the leases of clients end, whose tasks are left to the supervisor. It reports whether this is
// the first call.
func (s *Session) Leave() bool {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if !again {
		s.leases.close()
	}
	return !again
}

// End ends Life.
func (s *Session) End() { s.end() }

// Finish closes the session when its tasks have ended. With void it removes the folder.
func (s *Session) Finish(void bool) error {
	s.chores.Wait()
	s.lose(nil)
	s.endProcesses()
	var errs []error
	if s.cfg.Keeper != nil {
		errs = append(errs, s.cfg.Keeper.Close())
	}
	_ = failpoint.Hit("close/swept")
	s.Space.Close()
	s.Snapshots.Close()
	now := time.Now().UTC()
	if s.cfg.Ended != nil {
		s.cfg.Ended(s.Tree.Log.Last())
	}
	s.mu.Lock()
	errs = append(errs, s.writeInfo(&now))
	s.mu.Unlock()
	errs = append(errs, s.Tree.Log.Close())
	if void {
		errs = append(errs, s.cfg.Place.Below().RemoveAll(s.cfg.Place.Dir()))
	}
	s.unlock()
	return errors.Join(errs...)
}

// endProcesses ends the processes that tasks of this session left outside their groups. Kept
// tasks are spared.
func (s *Session) endProcesses() {
	kept := map[task.ID]bool{}
	any, held := false, 0
	for _, r := range s.Tree.Tasks.List(0) {
		if held++; !r.Status.Terminal() {
			kept[r.ID] = true
		}
		any = any || r.Process != nil
	}
	if _, total := s.Tree.Tasks.Live(); !any && total == held {
		return
	}
	child.EndProcesses(s.cfg.Info.Session, kept)
}

// StartOwn starts a task with a driver of the embedding program, and returns when it is durably
// pending. It cannot outlive its host, since the next host does not have the driver.
func (s *Session) StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	switch {
	case spec.ID != "":
		return task.Record{}, errors.New("start task: its ID is made by the runtime, and cannot be given")
	case spec.Keep:
		return task.Record{}, errors.New("start task: it cannot be kept: the next session does not know its driver")
	}
	spec.Backgrounded = true
	return s.Tree.Tasks.Start(ctx, d, spec)
}
