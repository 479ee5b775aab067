// Package drover runs the background work of coding agents inside a Go program.
//
// A [Runtime] is one session. Shell commands, agents, workflows, monitors and work of
// your own are its tasks: each has one record, one life cycle, one output file and one
// way to stop it. The drover command sees and steers them from any terminal while the
// program works (`drover ps`, `logs`, `wait`, `stop`), and shows them afterwards.
//
//	rt, err := drover.Open(ctx, drover.Config{})
//	…
//	defer rt.Close()
//	t, err := rt.Shell(ctx, drover.Shell{Line: "go test ./...", Name: "tests"})
//	…
//	t, err = rt.Wait(ctx, t.ID)
//	fmt.Println(t.Status, *t.ExitCode)
//
// # Start
//
// [Runtime.Shell], [Runtime.Agent], [Runtime.Workflow] and [Runtime.Monitor] start work
// and return when it is durably recorded. [Runtime.Start] does so for work of your own,
// a [task.Driver], which may have a kind of its own. [Runtime.Agents] makes a
// [subagent.Manager] that starts agents with definitions and hooks of your program.
//
// # Watch and steer
//
// [Runtime.List], [Runtime.Get] and [Runtime.Stats] show the tasks, [Runtime.Events]
// yields every change in order. [Runtime.Wait] waits for an end, [Runtime.Result] reads the
// answer. [Runtime.Send] writes to an agent, [Runtime.Interrupt] ends its turn,
// [Runtime.Pause] and [Runtime.Resume] pause and continue a task with all below it,
// [Runtime.Stop] ends a tree and reports the end of each task.
//
// # Bring your own
//
// [Config.Model] is any [agent.Model], [Config.Tools] are tools for all agents,
// [Config.Answer] answers the questions of agents, [Config.Logger] gets the messages for a
// person. [Config.Isolated] reads no settings of the user and opens no socket, for tests.
//
// # Promises
//
// When a start returns, its task is recorded durably. Every task reaches exactly one end.
// [Runtime.Close] leaves nothing running that the runtime has started. The commands of a
// program that dies without closing continue to run, unless [Config.Keeper] ends them; see
// [RunKeeper]. The package does not judge the work of agents, and asks people only by
// [Config.Answer].
package drover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// Config configures a runtime. The zero Config works in the working folder of the
// program, with the state folder and the settings of the user of the drover command.
type Config struct {
	Dir   string // the project's folder; default: the working folder
	Home  string // state folder; default: $DROVER_HOME, or as the drover command
	Title string // how `drover sessions` shows it

	// Model answers for agents that name no other model. Default: the model that
	// ModelName names.
	Model agent.Model

	// ModelName is an alias, a full name, or script:FILE; default: the model of the user's
	// settings. With Model it is the name of Model in records and definitions; default:
	// "program". The program decides about its own model: the name means Model even if
	// another model or an alias has it too, and models.available in the settings need not list
	// it. That setting still holds for every other model that an agent names.
	ModelName string

	// Env is given to commands, without the keys of model providers, which
	// are read from it for agents. Default: os.Environ().
	Env []string

	// Isolated says that nothing of the user is read (settings, definitions of agents,
	// skills, instructions, hooks, MCP servers, memory), and that no socket is opened:
	// the drover command cannot reach the runtime. Home is then a temporary folder by
	// default, which Close removes.
	Isolated bool

	// Keeper starts the process that ends all commands when this program dies, such as
	// [Keeper]() or {"drover", "keeper", "--helper"}. Default: none.
	Keeper []string

	// Allow are calls that agents may make without a question, such as
	// "Bash(go test:*)".
	Allow []string

	// Answer is called for each question: an agent's call that no rule decides, or a
	// driver's [task.Host.Ask]. Several questions may be open at once; Answer is then
	// called by several goroutines. ctx ends when the question is closed, by another answer
	// or by permissions.askTimeout of the settings (10 minutes by default), which denies it,
	// and when the runtime closes; Close waits for Answer to return. After an error, or a
	// reply that [task.Question.Check] refuses, Logger gets a warning and the question stays
	// open for the drover command in a terminal. Default: calls that no rule allows are denied.
	Answer func(ctx context.Context, q task.Question) (task.Reply, error)

	// Limits replace the limits of the user's settings where they are not 0.
	Limits Limits

	// Tools are further tools for all agents. One value serves all agents, by several
	// goroutines at once. A tool that is not [agent.ReadOnly] needs a rule in Allow,
	// such as its name.
	Tools []agent.Tool

	// Logger gets messages about settings and agents for a person, with the attribute
	// "task". Default: they are discarded.
	Logger *slog.Logger
}

// Limits bound the starts of agents. They may exceed the limits that settings can
// have.
type Limits struct {
	Live       int // agents at work at the same time; more wait
	Depth      int // agents below agents
	PerRoot    int // agents that one agent outside may start, with all below it
	PerSession int // agents of all
	SpawnRate  int // agents that one root may start within a minute
}

// over puts limits that are not 0 into settings.
func (l Limits) over(s *options.Limits) {
	s.Live, s.Depth, s.PerRoot = cmp.Or(l.Live, s.Live), cmp.Or(l.Depth, s.Depth), cmp.Or(l.PerRoot, s.PerRoot)
	s.PerSession, s.SpawnRate = cmp.Or(l.PerSession, s.PerSession), cmp.Or(l.SpawnRate, s.SpawnRate)
}

// Runtime is an open session. Its methods may be called by several goroutines.
type Runtime struct {
	s   *assemble.Session
	env []string
	dir string
	log *slog.Logger

	unanswer context.CancelCauseFunc // ends the goroutines of answers
	answers  sync.WaitGroup
	temp     string // is removed by Close; empty: nothing is
}

// Open opens a new session. The caller must close it.
func Open(ctx context.Context, c Config) (*Runtime, error) {
	rt := &Runtime{unanswer: func(error) {}}
	err := rt.open(ctx, c)
	if err != nil && rt.temp != "" {
		err = errors.Join(err, os.RemoveAll(rt.temp))
	}
	if err != nil {
		return nil, fmt.Errorf("open runtime: %w", err)
	}
	return rt, nil
}

func (rt *Runtime) open(ctx context.Context, c Config) (err error) {
	if isKeeper(os.Args) {
		return errors.New("this process was started as a keeper (call drover.RunKeeper at the beginning of main)")
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	rt.env = c.Env
	if rt.dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	root, err := rt.home(c)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if c.Logger != nil {
		log = c.Logger
	}
	rt.log = log
	sources := settings.Sources{}
	if !c.Isolated {
		sources = settings.Find(os.Getenv, rt.dir, "")
	}
	set, notes, err := settings.Load(sources)
	if err != nil {
		return err
	}
	for _, n := range notes {
		log.Warn(n.String())
	}
	c.Limits.over(&set.Limits)
	set.Add(settings.Source{Name: "the program", Allow: c.Allow})
	cfg := assemble.Config{
		Root:     root,
		Folder:   rt.dir,
		Role:     session.RoleRun,
		Title:    c.Title,
		Version:  "library",
		Env:      c.Env,
		Settings: set,
		Keeper:   c.Keeper,
		Model:    c.ModelName,
		Isolated: c.Isolated,
	}
	cfg.Tools, cfg.Tell = c.Tools, func(from task.ID, text string) { log.Info(text, "task", string(from)) }
	if c.Model != nil {
		cfg.Model = cmp.Or(c.ModelName, "program")
		cfg.Own = map[string]agent.Model{cfg.Model: c.Model}
	}
	if c.Answer != nil {
		cfg.AskWait = set.Permissions.AskTimeout
		cfg.Settings.Sandbox.AutoAllow = false // Answer expects the questions
	}
	if isKeeper(c.Keeper) {
		cfg.Starter = append(slices.Clone(c.Keeper), roomArg)
	}
	if rt.s, err = assemble.Open(ctx, cfg); err != nil {
		return err
	}
	rt.s.Serve()
	if c.Answer != nil {
		rt.answer(c.Answer)
	}
	return nil
}

// home is the state folder.
func (rt *Runtime) home(c Config) (home.Root, error) {
	switch {
	case c.Home != "":
		return home.At(c.Home), nil
	case !c.Isolated:
		return home.Find(os.Getenv)
	}
	dir, err := os.MkdirTemp("", "drover")
	rt.temp = dir
	return home.At(dir), err
}

// Close stops all running work, in order, and returns when nothing is left.
func (rt *Runtime) Close() error {
	rt.unanswer(task.ErrClosing)
	err := rt.s.Close()
	rt.answers.Wait()
	if rt.temp != "" {
		err = errors.Join(err, os.RemoveAll(rt.temp))
	}
	return err
}
