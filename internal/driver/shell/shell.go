package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/failpoint"
	"github.com/drover-dev/drover/internal/process"
	"github.com/drover-dev/drover/internal/tty"
	"github.com/drover-dev/drover/task"
)

// grace is how long a command may take to go after TERM, unless the stop says
// otherwise.
const grace = 2 * time.Second

// closingGrace is the same when the host closes, which is given 2 s in all.
const closingGrace = time.Second

// Command is the input of a task. Exactly one of Args and Line is set.
type Command struct {
	Args []string `json:"args,omitempty"` // a program with its arguments
	Line string   `json:"line,omitempty"` // run by bash -c
	Cwd  string   `json:"cwd,omitempty"`  // absolute; empty: that of the host
	TTY  bool     `json:"tty,omitempty"`  // it gets a terminal, see [Driver.Steer]
}

// argv is what is started.
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
	switch {
	case c.Line == "" && (len(c.Args) == 0 || c.Args[0] == ""):
		return Command{}, errors.New("read command: it is empty")
	case c.Line != "" && len(c.Args) > 0:
		return Command{}, errors.New("read command: give a program with arguments or a line, not both")
	case c.Cwd != "" && !filepath.IsAbs(c.Cwd):
		return Command{}, fmt.Errorf("read command: the working folder %.200q is not absolute", c.Cwd)
	}
	for _, s := range append([]string{c.Line, c.Cwd}, c.Args...) {
		for i := range len(s) {
			if s[i] == 0 {
				return Command{}, errors.New("read command: it holds a NUL byte")
			}
		}
	}
	return c, nil
}

// Keeper is told of groups, so that they end, or are kept, when this host dies.
type Keeper interface {
	// Ready returns when the keeper would see this host die. It is called before
	// anything is started.
	Ready() error
	// Expect tells of a kept task before it is started; Watch or Unexpect follows.
	Expect(task, exitFile string) error
	Unexpect(task string) error
	// Watch tells of a group by its leader, of whether it outlives this host,
	// and where its exit is then to be written.
	Watch(leader process.Identity, task string, keep bool, exitFile string) error
	Forget(pid int) error
}

// Config is what all commands of a host share. Its zero value works: then
// nothing outlives the host in order, and a kept task that ended meanwhile is
// lost.
type Config struct {
	Keeper   Keeper
	ExitFile func(task.ID) string // where a kept task's exit is written; absolute
	Copier   []string             // a program whose life is [tty.Run]; nil: this process stands at the end of terminals
	Keys     func(task.ID) string // where the pipe is through which is typed into a terminal; absolute

	// Grown is told about once a second, while commands run, how many bytes they
	// have printed since; an error ends those that grow. It must return at once.
	// Nil: all may grow.
	Grown func(bytes int64) error
}

// Client is what one asking client gives its commands.
type Client struct {
	Env   []string // as the client has it; see [ChildEnv]
	Own   []string // variables that Drover sets for them, of whatever names
	Stdin *os.File // nil: the null device; of a command with a terminal, what is typed there
	Tee   *Tee     // nil: output goes to the output file only

	// Sizes are those of the terminal at which somebody looks at a command with a
	// terminal, the first one when it starts. nil: nobody does.
	Sizes <-chan tty.Size
}

// Tee shows output while it is written to the output file. A command that is
// shown cannot be kept.
type Tee struct{ Stdout, Stderr io.Writer }

// Driver runs commands. It serves many tasks at the same time.
type Driver struct {
	*shared
	client Client
}

type shared struct {
	Config
	// A place for each command that is being started. Of many that are asked for
	// at once most wait: they would only keep this host from answering anybody.
	starts chan struct{}
	self   func() (process.Identity, error) // of this process; read once
	table  process.Table

	terminals terminals
	caps      caps
}

// New returns a driver whose commands get no environment but PATH. It can take
// up what an earlier host started; [Driver.For] makes drivers for new commands.
func New(c Config) *Driver {
	self := sync.OnceValues(func() (process.Identity, error) { return process.Identify(os.Getpid()) })
	d := &Driver{shared: &shared{Config: c, starts: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), self: self}}
	d.caps.grown, d.caps.table = c.Grown, &d.table
	return d
}

// For returns a driver that starts commands for a client and shares everything
// else.
func (d *Driver) For(c Client) *Driver { return &Driver{shared: d.shared, client: c} }

// Kind is [task.LocalBash].
func (d *Driver) Kind() task.Kind { return task.LocalBash }

// Launches makes commands begin with their process; see [task.Launcher].
func (d *Driver) Launches() {}

// Adopts takes up every command whose process is known.
func (d *Driver) Adopts(r task.Record) bool { return r.Process != nil }

// Check refuses input that is not a [Command].
func (d *Driver) Check(input json.RawMessage) error {
	_, err := parse(input)
	return err
}

// Run runs the command, or takes up one that an earlier host started: then the
// record names its process.
func (d *Driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	rec := h.Record()
	if rec.Process != nil {
		return d.adopt(ctx, h, rec)
	}
	c, err := parse(h.Input())
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if ctx.Err() != nil {
		return task.Result{}, context.Cause(ctx)
	}
	return d.start(ctx, h, rec, c)
}

func (d *Driver) start(ctx context.Context, h task.Host, rec task.Record, c Command) (task.Result, error) {
	out, err := d.open(h, rec, c)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	defer out.abandon()
	r, err := d.begin(ctx, h, rec, c, out)
	if err != nil {
		return task.Result{}, err
	}
	return r.run(ctx, h.Output(), out)
}

// begin starts the command. After an error nothing is left of it.
func (d *Driver) begin(ctx context.Context, h task.Host, rec task.Record, c Command, out *output) (r *run, err error) {
	select {
	case d.starts <- struct{}{}:
		defer func() { <-d.starts }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	self, err := d.self()
	if err == nil && d.Keeper != nil {
		err = d.Keeper.Ready()
	}
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	keep := rec.Keep && d.client.Tee == nil
	if keep && d.Keeper != nil {
		// Should this host die behind the fork, nobody else knows that it was to live.
		if err := d.Keeper.Expect(string(rec.ID), d.exitFile(rec.ID, true)); err != nil {
			return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
		}
		defer func() {
			if r == nil {
				_ = d.Keeper.Unexpect(string(rec.ID)) // a keeper that is gone expects nothing
			}
		}()
	}
	marks := []string{
		process.MarkTask + "=" + string(rec.ID),
		process.MarkSession + "=" + string(rec.Session),
		process.MarkHost + "=" + self.Mark(),
	}
	g, err := process.StartGroup(process.Command{
		Args: c.argv(), Dir: c.Cwd, Stdin: out.stdin, Stdout: out.stdout, Stderr: out.stderr,
		// A group beside the terminal's foreground group would be stopped when
		// it reads from there; in a session of its own it may read.
		Session: out.stdin != nil, Terminal: c.TTY,
		Env: append(append(slices.Clone(marks), d.client.environ(c.TTY)...), d.client.Own...),
	})
	if err != nil {
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	out.started()
	_ = failpoint.Hit("command/forked")
	begun := &run{d: d, g: g, id: rec.ID, keep: keep}
	// The record comes first: a kept command that no record names could never be
	// taken up again, and would be started twice.
	if err := h.Begun(recorded(g.Identity())); err != nil {
		begun.end(context.WithoutCancel(ctx), grace)
		begun.release()
		return nil, fmt.Errorf("record start of %s: %w", rec.ID, err)
	}
	err = begun.watch()
	if err == nil {
		err = out.term.attend(g.Identity(), marks)
	}
	if err != nil {
		begun.end(context.WithoutCancel(ctx), grace)
		begun.release()
		return nil, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	_ = failpoint.Hit("command/watched")
	return begun, nil
}

func recorded(id process.Identity) task.Process {
	return task.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}
}

// run is one command at work.
type run struct {
	d      *Driver
	g      *process.Group
	id     task.ID
	keep   bool
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
	if len(out.pipes) == 0 {
		defer r.d.caps.watch(o, r.g, r.id, cancel)()
	}
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
		r.end(context.WithoutCancel(ctx), graceOf(cause))
		if exit, err := r.g.Wait(patience(0)); err == nil {
			r.ended(exit)
		}
		out.term.settle()
		out.drain(r)
		r.settle()
		return r.result, cause
	}
	_ = failpoint.Hit("command/exited")
	r.ended(exit)
	if !out.term.settle() {
		r.end(context.WithoutCancel(ctx), grace)
	}
	switch {
	case r.keep:
		// The closer look, at a leader not yet reaped: see settle.
		r.end(ctx, grace)
	case r.g.Reap():
		r.end(ctx, grace)
	}
	_ = failpoint.Hit("command/reaped")
	out.drain(r)
	r.settle()
	return r.result, out.term.verdict(exit.Code, r.result.Signal)
}

// end ends the group and what escaped from it, and adds to the result.
func (r *run) end(ctx context.Context, grace time.Duration) {
	report := r.g.End(ctx, process.Ending{Grace: grace, Mark: string(r.id), Table: &r.d.table})
	note(&r.result, r.id, report)
}

func note(res *task.Result, id task.ID, report process.Report) {
	for _, s := range report.Sent {
		res.Signals = append(res.Signals, task.SignalSent{Signal: process.SignalName(s.Signal), AfterMS: s.After.Milliseconds()})
	}
	for _, l := range report.Left {
		res.Left = append(res.Left, task.Survivor{Task: id, PID: l.PID, Command: l.Command, Why: l.Why})
	}
}

func (r *run) ended(e process.Exit) {
	r.result.ExitCode = &e.Code
	r.result.Signal = process.SignalName(e.Signal)
}

// settle releases a command that has ended, and a kept one once its end is durable:
// until then its number must stay taken, and the exit be there to be asked again by
// the next host.
func (r *run) settle() {
	if r.keep {
		r.result.Settle = r.release
		return
	}
	r.release()
}

// release lets go of the leader and of its number.
func (r *run) release() {
	if r.d.Keeper != nil {
		// Before its number is free: the next watch may be of the same number. A
		// keeper that is gone has forgotten already.
		_ = r.d.Keeper.Forget(r.g.Identity().PID)
	}
	r.g.Reap()
	r.g.Close()
}

// verdict is the error that tells how a command ended by itself.
func verdict(code int, signal string) error {
	switch {
	case signal != "":
		return &task.FailError{Reason: task.ReasonSignal, Err: errors.New("ended by " + signal)}
	case code != 0:
		return &task.FailError{Reason: task.ReasonExit, Err: fmt.Errorf("exit code %d", code)}
	}
	return nil
}

// graceOf is how long the stop wants to be patient.
func graceOf(cause error) time.Duration {
	var stop *task.StopError
	switch {
	case errors.As(cause, &stop) && stop.Grace != nil:
		return max(0, *stop.Grace)
	case errors.Is(cause, task.ErrClosing):
		return closingGrace
	}
	return grace
}

// patience is a context that ends after d, and by nothing else.
func patience(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}
