package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// Subscription is a resource of an MCP server that is watched.
type Subscription interface {
	// Events yields the text of the resource as it is, and again whenever the
	// server says that it has changed; changes in quick succession may be merged.
	// It ends with ctx, with an error, or silently when the server has no more to
	// say.
	Events(ctx context.Context) iter.Seq2[string, error]
}

// Client is what whoever asks gives its monitors.
type Client struct {
	Env []string // of the command, all of it
	// Fork starts the program of a command, such as in a sandbox; see [process.Command]. nil: a
	// plain fork.
	Fork func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error)
	// Made returns what [task.Result.Made] is to have, when the command has ended. nil: nothing.
	Made func() []string
	// MayOpen is asked about a file when it is open and cannot be exchanged any
	// more; nil: every file. It may be called from several goroutines.
	MayOpen func(*os.File) bool
	// Subscribe begins to watch a resource; nil: no server can be reached.
	Subscribe func(ctx context.Context, server, uri string) (Subscription, error)
}

// Driver runs monitors. It serves many tasks at the same time.
type Driver struct {
	*shared
	child.Freezer
	client Client
}

type shared struct {
	keeper  child.Keeper
	starts  chan struct{} // a place for each command that is being started
	self    process.Self
	table   process.Table
	folders folders
}

// New returns a driver that can say what became of old monitors; [Driver.For]
// makes drivers for new ones. Without a keeper, the next host ends the commands that a dead
// one has left.
func New(keeper child.Keeper) *Driver {
	return &Driver{shared: &shared{keeper: keeper, starts: make(chan struct{}, 2*runtime.GOMAXPROCS(0))}}
}

// For returns a driver for the watch of a client, which shares everything else with d.
func (d *Driver) For(c Client, w Watch) task.Driver {
	own := &Driver{shared: d.shared, client: c}
	if w.argv() != nil {
		return launcher{own}
	}
	return own
}

// launcher is the driver of commands: their tasks begin with their process.
type launcher struct{ *Driver }

var _ task.Launcher = launcher{}

// Launches implements [task.Launcher].
func (launcher) Launches() {}

// Kind is [task.MonitorMCP].
func (d *Driver) Kind() task.Kind { return task.MonitorMCP }

// Check refuses input that is not a [Watch].
func (d *Driver) Check(input json.RawMessage) error {
	_, _, err := parse(input)
	return err
}

// Run watches until the source ends or ctx does. The end of the task's time is a
// good end.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	if rec := h.Record(); rec.Process != nil {
		return d.clear(ctx, rec)
	}
	w, match, err := parse(h.Input())
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	r := newReport(ctx, h, match)
	var res task.Result
	why := ""
	switch {
	case w.File != "":
		why, err = d.follow(ctx, h, w, r)
	case w.Server != "":
		why, err = d.subscribe(ctx, h, w, r)
	default:
		res, err = d.command(ctx, h, w, r)
	}
	// A monitor that has not begun cannot have ended well.
	if err != nil && errors.Is(context.Cause(ctx), task.ErrTimeout) && h.Record().Status == task.Running {
		why, err = "Its time is up.", nil
		res.ExitCode, res.Signal = nil, ""
	}
	res.Text = strings.TrimSpace(why + " " + r.close(err == nil || ctx.Err() == nil))
	return res, err
}
