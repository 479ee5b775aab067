package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
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

// Watch is the input of a task. It names one thing to watch: a command, which is
// Args or Line, a File, or the resource URI of Server.
type Watch struct {
	Args   []string `json:"args,omitempty"` // a program with its arguments
	Line   string   `json:"line,omitempty"` // run by bash -c
	Cwd    string   `json:"cwd,omitempty"`  // of the command; absolute; empty: the host's
	File   string   `json:"file,omitempty"` // absolute; it need not be there yet, but its folder must
	Server string   `json:"server,omitempty"`
	URI    string   `json:"uri,omitempty"`
	Match  string   `json:"match,omitempty"` // a regular expression (RE2) for the lines that count; empty: all
}

// maxMatch bounds the regular expression, in bytes.
const maxMatch = 4096

// argv returns the program to start with its arguments; nil: the source is not a command.
func (w Watch) argv() []string {
	if w.Line != "" {
		return []string{"bash", "-c", w.Line}
	}
	return w.Args
}

// Subject describes the source of the watch in a line for people.
func (w Watch) Subject() string {
	switch {
	case w.File != "":
		return w.File
	case w.Server != "":
		return w.Server + " " + w.URI
	case w.Line != "":
		return w.Line
	}
	return strings.Join(w.Args, " ")
}

func parse(input json.RawMessage) (w Watch, match *regexp.Regexp, err error) {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	if err := w.check(); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	if w.Match == "" {
		return w, nil, nil
	}
	if len(w.Match) > maxMatch {
		return w, nil, fmt.Errorf("read what to watch: the regular expression has %d bytes, more than %d", len(w.Match),
			maxMatch)
	}
	if match, err = regexp.Compile(w.Match); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	return w, match, nil
}

func (w Watch) check() error {
	named := 0
	for _, is := range []bool{len(w.Args) > 0, w.Line != "", w.File != "", w.Server != "" || w.URI != ""} {
		if is {
			named++
		}
	}
	switch {
	case named != 1:
		return errors.New("name one thing: a command, a file, or a resource of an MCP server")
	case len(w.Args) > 0 && w.Args[0] == "":
		return errors.New("the command is empty")
	case (w.Server == "") != (w.URI == ""):
		return errors.New("a resource needs both a server and a URI")
	case w.File != "" && (!filepath.IsAbs(w.File) || w.File != filepath.Clean(w.File) || w.File == "/"):
		return fmt.Errorf("the file %.200q is not an absolute path", w.File)
	case w.Cwd != "" && !filepath.IsAbs(w.Cwd):
		return fmt.Errorf("the working folder %.200q is not absolute", w.Cwd)
	}
	for _, s := range append([]string{w.Line, w.Cwd, w.File, w.Server, w.URI}, w.Args...) {
		if strings.ContainsRune(s, 0) {
			return errors.New("it holds a NUL byte")
		}
	}
	return nil
}
