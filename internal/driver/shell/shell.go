package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/tty"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Command is the input of a task. Exactly one of Args and Line is set.
type Command struct {
	Args []string `json:"args,omitempty"` // a program with its arguments
	Line string   `json:"line,omitempty"` // run by bash -c
	Cwd  string   `json:"cwd,omitempty"`  // absolute; empty: the host's
	TTY  bool     `json:"tty,omitempty"`  // it gets a terminal, see [Driver.Steer]
}

// argv returns the program to start with its arguments.
func (c Command) argv() []string {
	if c.Line != "" {
		return []string{"bash", "-c", c.Line}
	}
	return c.Args
}

func parse(input json.RawMessage) (Command, error) {
	var c Command
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Command{}, fmt.Errorf("read command: %w", err)
	}
	if err := c.check(); err != nil {
		return Command{}, fmt.Errorf("read command: %w", err)
	}
	return c, nil
}

func (c Command) check() error {
	hasNUL := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	switch {
	case c.Line == "" && (len(c.Args) == 0 || c.Args[0] == ""):
		return errors.New("it is empty")
	case c.Line != "" && len(c.Args) > 0:
		return errors.New("give a program with arguments or a line, not both")
	case c.Cwd != "" && !filepath.IsAbs(c.Cwd):
		return fmt.Errorf("the working folder %.200q is not absolute", c.Cwd)
	case longest(c.argv()) > maxArgument:
		return &task.SizeError{
			What:  "longest argument",
			Bytes: longest(c.argv()),
			Limit: maxArgument,
			Fix:   "write it to a file, and name or run that",
		}
	case hasNUL(c.Line) || hasNUL(c.Cwd) || slices.ContainsFunc(c.Args, hasNUL):
		return errors.New("it holds a NUL byte")
	}
	return nil
}

// maxArgument is how long one argument may be: Linux takes 128 KiB with the NUL after it.
const maxArgument = 128<<10 - 1

func longest(args []string) (n int) {
	for _, a := range args {
		n = max(n, len(a))
	}
	return n
}

// plain reports whether the command is the same once it was written as JSON and read
// again, where other bytes than text are replaced.
func (c Command) plain() bool {
	odd := func(s string) bool { return !utf8.ValidString(s) }
	return !odd(c.Line) && !odd(c.Cwd) && !slices.ContainsFunc(c.Args, odd)
}

// Keeper keeps track of groups, so that they end, or are kept, when this host dies.
type Keeper interface {
	child.Keeper
	// Expect names a kept task before it is started; Watch or Unexpect follows.
	Expect(task, exitFile string) error
	Unexpect(task string) error
}

// Config is what all commands of a host share. Its zero value works: then
// nothing outlives the host in order, and a kept task that ended meanwhile is
// lost.
type Config struct {
	Keeper   Keeper
	ExitFile func(task.ID) string // where a kept task's exit is written; absolute
	Copier   []string             // a program whose life is [tty.Run]; nil: this process serves terminals itself
	Keys     func(task.ID) string // where the pipe is through which is typed into a terminal; absolute

	// Written is called about once a second, while commands run, with the bytes that they
	// have printed since; an error ends the growing ones. It must return at once.
	// Nil: all may grow.
	Written func(bytes int64) error

	// MaxProcesses ends a command that has more, which is looked at about once a
	// second on Linux. 0: any number.
	MaxProcesses int
}

// Client is what one asking client gives its commands.
type Client struct {
	Env   []string // as the client has it; see [ChildEnv]
	Own   []string // variables that Drover sets for them, of whatever names
	Stdin *os.File // nil: the null device; for a command with a terminal, the source of keys
	Tee   *Tee     // nil: output goes to the output file only

	// Hurry ends the patience of a stop when it ends. nil: every stop has all of it.
	Hurry context.Context

	// Fork starts the program of a command, such as in a sandbox; see [process.Command]. nil: a
	// plain fork.
	Fork func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error)

	// Made returns what [task.Result.Made] is to have, when the command has ended. nil: nothing.
	Made func() []string

	// Sizes are the sizes of the terminal that shows a command with a terminal, the
	// first one when it starts. nil: it is not shown.
	Sizes <-chan tty.Size
}

// Driver runs commands. It serves many tasks at the same time.
type Driver struct {
	*shared
	child.Freezer
	client  Client
	checked atomic.Pointer[checked] // the input that was checked last: it is run next
}

// checked is a valid input with its meaning.
type checked struct {
	input   json.RawMessage
	command Command
}

type shared struct {
	Config
	// A place for each command that is being started. Of many that are asked for
	// at once most wait: they would only keep this host from answering anybody.
	starts chan struct{}
	self   process.Self
	table  process.Table
	*starter

	terminals terminals
	caps      caps
}

// New returns a driver whose commands get no environment but PATH. It can take
// up what an earlier host started; [Driver.For] makes drivers for new commands.
func New(c Config) *Driver {
	d := &Driver{shared: &shared{Config: c, starter: newStarter(),
		starts: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}}
	d.caps.written, d.caps.table, d.caps.processes.most = c.Written, &d.table, c.MaxProcesses
	counter := sync.OnceValue(process.OpenKillCounter)
	d.caps.memory.read = func() process.Kills { return counter().Read() }
	d.caps.memory.inside = func(pid int) bool { return counter().Inside(pid) }
	return d
}

// For returns a driver that starts commands for a client and shares everything
// else.
func (d *Driver) For(c Client) *Driver { return &Driver{shared: d.shared, client: c} }

// Command is [Driver.For] for one command, with its input, which is not decoded
// again.
func (d *Driver) Command(client Client, c Command) (*Driver, json.RawMessage) {
	own := d.For(client)
	input, err := json.Marshal(c)
	if err != nil { // it is a struct of strings and flags
		panic(err)
	}
	if c.check() == nil && c.plain() {
		own.checked.Store(&checked{input, c})
	}
	return own, input
}

// Kind is [task.LocalBash].
func (d *Driver) Kind() task.Kind { return task.LocalBash }

// Launches makes commands begin with their process; see [task.Launcher].
func (d *Driver) Launches() {}

// Adopts takes up every command whose process is known.
func (d *Driver) Adopts(r task.Record) bool { return r.Process != nil }

// Check refuses input that is not a [Command].
func (d *Driver) Check(input json.RawMessage) error {
	if d.known(input) != nil {
		return nil
	}
	c, err := parse(input)
	if err == nil {
		d.checked.Store(&checked{input, c})
	}
	return err
}

func (d *Driver) known(input json.RawMessage) *checked {
	if c := d.checked.Load(); c != nil && bytes.Equal(c.input, input) {
		return c
	}
	return nil
}

// parse is [parse] for input that has mostly been checked before.
func (d *Driver) parse(input json.RawMessage) (Command, error) {
	if c := d.known(input); c != nil {
		return c.command, nil
	}
	return parse(input)
}

// Run runs the command, or takes up a command of an earlier host: then the record
// names its process.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	rec := h.Record()
	if rec.Process != nil {
		return d.adopt(ctx, h, rec)
	}
	c, err := d.parse(h.Input())
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	for {
		res, err := d.start(ctx, h, rec, c)
		again, ok := h.(task.Retrier)
		if !ok || !failed(err) || len(res.Left) > 0 || ctx.Err() != nil || len(rec.Attempts) >= rec.Retries {
			return res, err
		}
		if err := task.NextAttempt(ctx, again, res); err != nil {
			return task.Result{}, err
		}
		rec = h.Record()
	}
}

// failed reports whether a command ended by itself, and not well. A command that a limit has ended,
// or that could not be started, is not tried again.
func failed(err error) bool {
	var fail *task.FailError
	return errors.As(err, &fail) && (fail.Reason == task.ReasonExit || fail.Reason == task.ReasonSignal)
}

func (d *Driver) start(ctx context.Context, h task.Host, rec task.Record, c Command) (task.Result, error) {
	select {
	case d.starts <- struct{}{}:
	case <-ctx.Done():
		return task.Result{}, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-d.starts })
	defer leave()
	out, err := d.open(h, rec, c)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	defer out.abandon()
	r, err := d.begin(ctx, h, rec, c, out)
	if err != nil {
		return task.Result{}, err
	}
	leave()
	return r.run(ctx, h.Output(), out)
}

// begin starts the command. After an error nothing is left of it.
func (d *Driver) begin(ctx context.Context, h task.Host, rec task.Record, c Command, out *output) (r *run, err error) {
	self, err := d.self.Identity()
	if err == nil && d.Keeper != nil {
		err = d.Keeper.Ready()
	}
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	keep := rec.Keep && d.client.Tee == nil
	if keep && d.Keeper != nil {
		// Should this host die after the fork, only the keeper knows that it was to live.
		if err := d.Keeper.Expect(string(rec.ID), d.exitFile(rec.ID, true)); err != nil {
			return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
		}
		defer func() {
			if r == nil {
				_ = d.Keeper.Unexpect(string(rec.ID)) // a keeper that is gone expects nothing
			}
		}()
	}
	marks := child.Marks(rec, self)
	g, err := d.starter.start(process.Command{
		Args: c.argv(), Dir: c.Cwd, Stdin: out.stdin, Stdout: out.stdout, Stderr: out.stderr,
		// A group other than the terminal's foreground group would be stopped when
		// it reads from there; in a session of its own it may read.
		Session: out.stdin != nil, Terminal: c.TTY,
		Env: slices.Concat(marks, d.client.environ(c.TTY), d.client.Own), Fork: d.client.Fork,
	})
	if errors.Is(err, syscall.E2BIG) {
		err = fmt.Errorf(
			"%w: its arguments and its environment together, or one variable, are longer than the system takes (write them to a file)",
			err,
		)
	}
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	out.started()
	_ = failpoint.Hit("command/forked")
	begun := &run{d: d, g: g, id: rec.ID, keep: keep, tty: c.TTY}
	// The record comes first: a kept command that no record names could never be
	// taken up again, and would be started twice.
	if err := h.Begun(child.Record(g.Identity())); err != nil {
		begun.end(context.WithoutCancel(ctx))
		begun.release()
		return nil, fmt.Errorf("record start of %s: %w", rec.ID, err)
	}
	err = begun.watch()
	if err == nil {
		err = out.term.attend(g.Identity(), marks)
	}
	if err != nil {
		begun.end(context.WithoutCancel(ctx))
		begun.release()
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	_ = failpoint.Hit("command/watched")
	return begun, nil
}

// run is one command at work.
type run struct {
	d      *Driver
	g      *process.Group
	id     task.ID
	keep   bool
	tty    bool
	alone  bool // it has ended by itself
	result task.Result
}

func (r *run) watch() error {
	if r.d.Keeper == nil {
		return nil
	}
	return r.d.Keeper.Watch(r.g.Identity(), string(r.id), r.keep, r.d.exitFile(r.id, r.keep))
}

func (s *shared) exitFile(id task.ID, keep bool) string {
	if !keep || s.ExitFile == nil {
		return ""
	}
	return s.ExitFile(id)
}

// run waits for the end, natural or not, and says how the run went.
func (r *run) run(ctx context.Context, o task.Output, out *output) (task.Result, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := r.d.caps.watch(o, r.g, r.id, cancel)
	defer r.d.caps.drop(watched)
	defer out.term.guard(cancel)()
	exit, err := r.g.Wait(limited)
	if err != nil {
		cause := context.Cause(limited)
		if cause == nil { // it could not be waited for
			cause = err
		}
		if r.keep && errors.Is(cause, task.ErrClosing) {
			out.term.leave()
			r.g.Close() // and its zombie, should it end before we do, is the keeper's
			return task.Result{}, task.ErrDetached
		}
		r.stop(ctx, cause)
		if exit, err := r.g.Wait(child.Patience(0)); err == nil {
			child.Exited(&r.result, exit)
		}
		out.term.settle()
		out.drain(r)
		r.settle()
		return r.result, cause
	}
	_ = failpoint.Hit("command/exited")
	r.alone = true
	found := r.d.caps.starved(watched, exit)
	child.Exited(&r.result, exit)
	if !out.term.settle() {
		r.end(context.WithoutCancel(ctx))
	}
	switch {
	case r.keep:
		// The closer look, at a leader not yet reaped: see settle.
		r.end(ctx)
	case r.g.Reap():
		r.end(ctx)
	}
	_ = failpoint.Hit("command/reaped")
	out.drain(r)
	r.settle()
	return r.result, blame(out.explain(out.term.verdict(exit.Code, r.result.Signal)), found)
}

// stop ends a command because somebody, or a limit, wants it; he may be in a hurry.
func (r *run) stop(ctx context.Context, cause error) {
	patient, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	if hurry := r.d.client.Hurry; hurry != nil {
		defer context.AfterFunc(hurry, done)()
	}
	r.ending(patient, process.Ending{Grace: graceOf(cause), First: firstOf(cause)})
}

// end ends the processes left of a command.
func (r *run) end(ctx context.Context) {
	r.ending(ctx, process.Ending{Grace: child.Grace})
}

// ending ends the group and what escaped from it, and adds to the result.
func (r *run) ending(ctx context.Context, e process.Ending) {
	e.Mark, e.Table, e.Hangup, e.ByItself = string(r.id), &r.d.table, r.tty, r.alone
	child.Note(&r.result, r.id, r.g.End(ctx, e))
}

// settle releases a command that has ended, and a kept one once its end is durable:
// until then its number must stay taken, and the exit be there to be asked again by
// the next host.
func (r *run) settle() {
	if r.d.client.Made != nil {
		r.result.Made = r.d.client.Made()
	}
	if r.keep {
		r.result.Settle = r.release
		return
	}
	r.release()
}

// release lets go of the leader and of its number.
func (r *run) release() {
	if r.d.Keeper != nil {
		_ = r.d.Keeper.Forget(r.g.Identity()) // a keeper that is gone has forgotten it already
	}
	r.g.Release()
	r.g.Close()
}

// graceOf is how long the stop of a command waits.
func graceOf(cause error) time.Duration {
	var fail *task.FailError
	if errors.As(cause, &fail) && fail.Reason == task.ReasonProcessLimit {
		return 0 // the command would multiply meanwhile
	}
	return child.GraceOf(cause)
}

// firstOf returns the signal that asks a command to end before TERM.
func firstOf(cause error) syscall.Signal {
	var stop *task.StopError
	if errors.As(cause, &stop) && stop.Cause.Reason == task.ReasonInterrupt {
		return syscall.SIGINT
	}
	return 0
}
