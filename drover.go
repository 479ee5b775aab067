// Package drover runs background work inside a Go program, as tasks.
//
// A [Runtime] is one session. Shell commands and work of your own are its tasks: each has
// one record, one life cycle, one output file and one way to stop it. The drover command
// sees and steers them from any terminal while the program works (`drover ps`, `logs`,
// `wait`, `stop`), and shows them afterwards.
//
//	rt, err := drover.Open(ctx, drover.Config{})
//	…
//	defer rt.Close()
//	t, err := rt.Shell(ctx, drover.Shell{Line: "go test ./...", Name: "tests"})
//	…
//	t, err = rt.Wait(ctx, t.ID)
//	fmt.Println(t.Status, *t.ExitCode)
//
// [Runtime.Shell] starts commands and [Runtime.Start] a [task.Driver] of your own. Agents,
// workflows and monitors are in package agents, whose Runtime has all of this too.
//
// When a start returns, its task is recorded durably. Every task reaches exactly one end.
// [Runtime.Close] leaves nothing running that the runtime has started. The commands of a
// program that dies without closing continue to run, unless [Config.Keeper] ends them; see
// [RunKeeper].
package drover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// Config configures a runtime. The zero Config works in the working folder of the
// program, with the state folder and the settings of the user of the drover command.
type Config struct {
	Dir   string // the project's folder; default: the working folder
	Home  string // state folder; default: $DROVER_HOME, or as the drover command
	Title string // how `drover sessions` shows it

	// Env is given to commands, without the keys of model providers. Default: os.Environ().
	Env []string

	// Isolated says that nothing of the user is read, and that no socket is opened:
	// the drover command cannot reach the runtime. Home is then a temporary folder by
	// default, which Close removes.
	Isolated bool

	// Keeper starts the process that ends all commands when this program dies, such as
	// [Keeper]() or {"drover", "keeper", "--helper"}. Default: none.
	Keeper []string

	// Answer is called for each question: a [task.Host.Ask] of a driver, or a call of an
	// agent that no rule decides. Several questions may be open at once; Answer is then
	// called by several goroutines. ctx ends when the question is closed, by another answer
	// or by permissions.askTimeout of the settings (10 minutes by default), which denies it,
	// and when the runtime closes; Close waits for Answer to return. After an error, or a
	// reply that [task.Question.Check] refuses, Logger gets a warning and the question stays
	// open for the drover command in a terminal. Default: calls that no rule allows are denied.
	Answer func(ctx context.Context, q task.Question) (task.Reply, error)

	// Logger gets messages about settings and tasks for a person, with the attribute
	// "task". Default: they are discarded.
	Logger *slog.Logger

	// Session opens the session of the runtime. Package agents sets it. Default: a session
	// of commands and of work of the program.
	Session func(context.Context, bare.Config) (bare.Session, error)
}

// Runtime is an open session. Its methods may be called by several goroutines.
type Runtime struct {
	s   bare.Session
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
		return errors.New("this process was started as a keeper (call RunKeeper at the beginning of main)")
	}
	if rt.env = c.Env; rt.env == nil {
		rt.env = os.Environ()
	}
	if rt.dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	root, err := rt.home(c)
	if err != nil {
		return err
	}
	if rt.log = c.Logger; rt.log == nil {
		rt.log = slog.New(slog.DiscardHandler)
	}
	sources := settings.Sources{}
	if !c.Isolated {
		sources = settings.Find(os.Getenv, rt.dir, "")
	}
	set, notes, err := settings.Load(sources)
	if err != nil {
		return err
	}
	for _, n := range notes {
		rt.log.Warn(n.String())
	}
	open := c.Session
	if open == nil {
		open = bare.Open
	}
	rt.s, err = open(ctx, bare.Config{
		Root:     root,
		Folder:   rt.dir,
		Role:     control.RoleRun,
		Title:    c.Title,
		Version:  "library",
		Env:      rt.env,
		Settings: set,
		Keeper:   c.Keeper,
		Isolated: c.Isolated,
		Tell:     func(from task.ID, text string) { rt.log.Info(text, "task", string(from)) },
	})
	if err != nil {
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
