// Package bare opens a session of tasks from a folder and settings.
//
// A [Host] is what every session has of its process: its folder, its keeper and its socket. It owns the order in which
// they are opened and closed. Package assemble adds agents.
package bare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/socket"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/task"
)

// Arguments of a program that is the keeper of another process of it, and of one that starts commands in the sandbox of
// a session.
const (
	KeeperArg = "drover-keeper" // the first
	RoomArg   = "--room"        // the second, of the sandbox
)

// Config says which session it is. Root, Folder and Settings are required.
type Config struct {
	Root     home.Root
	Folder   string  // the project; absolute
	Session  task.ID // empty: a new one
	Role     string  // see [control.Info]
	Detached bool    // see [control.Info]
	Title    string
	Version  string
	Env      []string
	Settings settings.Settings

	// Keeper starts the helper that ends everything when this process dies:
	// the argument list of `drover keeper --helper`. Empty: under a keeper that
	// is the parent of this process if there is one, otherwise without.
	Keeper []string

	// Copier is a program that holds the terminals of commands, so that they outlive
	// this process: the argument list of `drover keeper --tty`. Empty: this process
	// holds them, and a command with one cannot be kept.
	Copier []string

	// Isolated says that nothing is read of what the user and the folder have for
	// agents (definitions, skills, instructions, hooks, MCP servers, memory), and that no
	// socket is opened: only this process can reach the session.
	Isolated bool

	// Tell is called with messages for the user, by several goroutines. The ID names the task of an
	// agent, or the session. nil: messages are dropped.
	Tell func(from task.ID, text string)
}

// Session is an open session as the program sees it that holds it.
type Session interface {
	control.API
	// StartOwn starts a task with a driver of the program, and returns when it is durably pending.
	StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error)
	// Serve answers on the socket in the background until Close.
	Serve()
	// Close ends everything in order.
	Close() error
}

// Host is the part of a session that belongs to its process.
type Host struct {
	Place  home.Session
	Keeper *keeper.Link // nil without a keeper

	listen *socket.Listener // nil: isolated
	stop   context.CancelCauseFunc
	served sync.WaitGroup // the server; Close waits for it
	err    error          // of the server; read after served
}

// Prepare opens what a session has before it is open, and returns the configuration of its tasks.
func (h *Host) Prepare(c *Config) (tasks.Config, error) {
	if c.Session == "" {
		c.Session = task.NewSessionID()
	}
	project := c.Root.Project(c.Folder)
	h.Place = project.Session(c.Session)
	cfg := tasks.Config{
		Place: h.Place,
		Info: control.Info{
			Session:  c.Session,
			Project:  project.Folder(),
			Title:    c.Title,
			Role:     c.Role,
			Version:  c.Version,
			Detached: c.Detached,
		},
		Options: c.Settings.Options,
		Copier:  c.Copier,
		Tell:    c.Tell,
	}
	err := project.Ensure()
	if err == nil && !c.Isolated {
		cfg.Info.Socket, err = h.Place.SocketPath(home.Lookup(c.Env))
	}
	if err == nil {
		cfg.Keeper, err = keep(c)
		h.Keeper = cfg.Keeper
	}
	return cfg, err
}

func keep(c *Config) (*keeper.Link, error) {
	if len(c.Keeper) > 0 {
		return keeper.Helper(string(c.Session), c.Keeper), nil
	}
	link, err := keeper.Inherit(string(c.Session))
	if err != nil {
		return nil, fmt.Errorf("reach the keeper: %w", err)
	}
	return link, nil
}

// Listen begins to listen for an open session, unless it is isolated. Serve must be called to answer.
func (h *Host) Listen(info control.Info) (err error) {
	if info.Socket != "" {
		h.listen, err = socket.Listen(info.Socket)
	}
	return err
}

// Serve answers in the background until Close.
func (h *Host) Serve(s socket.Session) {
	if h.listen == nil {
		return
	}
	ctx, stop := context.WithCancelCause(context.Background())
	h.stop = stop
	h.served.Go(func() { h.err = socket.Serve(ctx, s, h.listen, 0) })
}

// ServeUntilIdle answers until ctx ends or the session has had no live task for so long.
func (h *Host) ServeUntilIdle(ctx context.Context, s socket.Session, idle time.Duration) error {
	return socket.Serve(ctx, s, h.listen, idle)
}

// Close stops listening, after the session was closed: a client that waits for a task learns of its end before the
// socket goes.
func (h *Host) Close() (err error) {
	if h.stop != nil {
		h.stop(task.ErrClosing)
		h.served.Wait()
		err = h.err
	}
	if h.listen == nil {
		return err
	}
	if closed := h.listen.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// Fail closes the keeper of a session that could not be opened.
func (h *Host) Fail(err error) error {
	if h.Keeper != nil {
		err = errors.Join(err, h.Keeper.Close())
	}
	return err
}

// open is a session of tasks with its host.
type open struct {
	*tasks.Session
	host Host
}

// Open opens a session of tasks and begins to listen.
func Open(_ context.Context, c Config) (Session, error) {
	s := &open{}
	cfg, err := s.host.Prepare(&c)
	if err == nil {
		s.Session, err = tasks.Open(cfg)
	}
	if err != nil {
		return nil, s.host.Fail(err)
	}
	if err := s.host.Listen(cfg.Info); err != nil {
		return nil, errors.Join(err, s.Session.Close())
	}
	return s, nil
}

// Serve implements [Session].
func (s *open) Serve() { s.host.Serve(s.Session) }

// Close implements [Session].
func (s *open) Close() error { return errors.Join(s.Session.Close(), s.host.Close()) }
