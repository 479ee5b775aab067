package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/tty"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

var _ task.Steerer = (*Driver)(nil)

// settleWait is how long the process at the end of a terminal may take to write
// the last words of a command that has ended; it takes 2 s itself at most.
const settleWait = 3 * time.Second

// Steer types the text unchanged into the terminal of a running command.
// The keys are not recorded. It returns when they are on their way.
func (d *Driver) Steer(ctx context.Context, id task.ID, text string) error {
	t := d.terminals.of(id)
	if t == nil {
		return &task.SteerError{Why: fmt.Sprintf("task %s has no terminal, or has just ended", id)}
	}
	err := t.Type(ctx, []byte(text))
	if err != nil && ctx.Err() == nil {
		return &task.SteerError{Why: fmt.Sprintf("task %s: %v", id, err)}
	}
	return err
}

type typist interface {
	Type(ctx context.Context, b []byte) error
}

// terminals knows who types into which running command. Its zero value works.
type terminals struct {
	mu  sync.Mutex
	all map[task.ID]typist // guarded by mu
}

func (t *terminals) of(id task.ID) typist {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[id]
}

func (t *terminals) set(id task.ID, w typist) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[task.ID]typist{}
	}
	if t.all[id] = w; w == nil {
		delete(t.all, id)
	}
}

// terminal is the additional state of a command with a terminal. The methods of nil do
// nothing.
//
// Where the output goes to a file only, a process of its own serves the master and
// outlives this one with a kept command. Where it is shown, or without such a
// program, this process does.
type terminal struct {
	d      *shared
	id     task.ID
	client Client

	master, slave *os.File         // the slave is held until the command has ended
	out, pipe     *os.File         // given to the process that serves the master; nil without one
	input         *tty.InputWriter // nil without that process
	near          *tty.Master      // the master, where this process serves it
	hand          typist           // the input, or the master
	copier        *process.Group
	stays         bool // the command continues without this host

	gone  context.Context // ended when that process is gone
	lost  context.CancelFunc
	shut  context.CancelFunc // ends all below
	works sync.WaitGroup     // joined by close
}

// openTerminal opens the terminal of a command and its output.
func (d *Driver) openTerminal(h task.Host, rec task.Record) (_ *output, err error) {
	alone := d.client.Tee == nil && len(d.Copier) > 0 && d.Keys != nil
	if rec.Keep && !alone && d.client.Tee == nil {
		return nil, errors.New(
			"a command with a terminal cannot be kept here: there is no program that would hold the terminal",
		)
	}
	t := &terminal{d: d.shared, id: rec.ID, client: d.client}
	size := tty.Usual()
	if t.client.Sizes != nil {
		select {
		case size = <-t.client.Sizes:
		default:
		}
	}
	t.master, t.slave, err = tty.Open(size, alone)
	if err != nil {
		return nil, err
	}
	o := &output{stdin: t.slave, stdout: t.slave, stderr: t.slave, term: t, tee: d.client.Tee}
	if alone {
		if t.out, err = h.Output().File(); err == nil {
			t.pipe, t.input, err = tty.CreateInput(d.Keys(rec.ID))
		}
		if err != nil {
			o.abandon()
			return nil, fmt.Errorf("open output: %w", err)
		}
		t.hand = t.input
		d.terminals.set(rec.ID, t.hand)
		return o, nil
	}
	if o.file, err = h.Output().File(); err != nil {
		o.abandon()
		return nil, fmt.Errorf("open output: %w", err)
	}
	o.pipes = []*os.File{t.master}
	t.near = &tty.Master{F: t.master}
	t.hand = t.near
	d.terminals.set(rec.ID, t.hand) // keys typed before the command starts wait for it
	o.copies.Go(func() { o.copy(t.master, o.tee.stdout()) })
	return o, nil
}

// attend takes care of the end of the terminal from the start of the command on.
func (t *terminal) attend(leader process.Identity, marks []string) error {
	if t == nil {
		return nil
	}
	ctx, shut := context.WithCancel(context.Background())
	t.shut = shut
	if t.input == nil {
		if in := t.client.Stdin; in != nil {
			t.works.Go(func() { _ = tty.Pump(ctx, in, func(b []byte) error { return t.near.Feed(ctx, b) }) })
		}
		t.works.Go(func() { t.resize(ctx) })
		return nil
	}
	g, err := process.StartGroup(process.Command{
		Args: append(
			append([]string{}, t.d.Copier...),
			tty.Args(leader)...),
		Dir:     "/",
		Env:     append(marks, process.ChildEnv(os.Environ())...),
		Stdout:  t.out,
		Extra:   tty.Files(t.master, t.slave, t.pipe),
		Session: true,
	})
	if err != nil {
		return fmt.Errorf("hold the terminal: %w", err)
	}
	t.copier = g
	t.give()
	t.watch(ctx)
	return nil
}

// give closes what another process holds.
func (t *terminal) give() {
	for _, f := range []*os.File{t.master, t.slave, t.out, t.pipe} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// watch sees the end of the process at the other end.
func (t *terminal) watch(ctx context.Context) {
	t.gone, t.lost = context.WithCancel(context.Background())
	t.works.Go(func() {
		if t.input.Gone(ctx) == nil {
			t.lost()
		}
	})
}

// retake takes over the terminal that an earlier host has opened for a command.
// Without a process at its end the command has been hung up, which will be seen.
func (d *Driver) retake(rec task.Record) *terminal {
	if !rec.TTY || d.Keys == nil {
		return nil
	}
	input, err := tty.OpenInput(d.Keys(rec.ID))
	if err != nil {
		return nil
	}
	t := &terminal{d: d.shared, id: rec.ID, input: input, hand: input}
	d.terminals.set(rec.ID, input)
	ctx, shut := context.WithCancel(context.Background())
	t.shut = shut
	t.watch(ctx)
	return t
}

// guard ends a command whose terminal was lost: it could go on for ever, unseen.
func (t *terminal) guard(cancel context.CancelCauseFunc) (stop func()) {
	if t == nil || t.gone == nil {
		return func() {}
	}
	undo := context.AfterFunc(t.gone, func() {
		cancel(lostTerminal())
	})
	return func() { undo() }
}

func lostTerminal() error {
	return &task.FailError{
		Reason: task.ReasonTerminalLost,
		Err:    errors.New("its terminal is gone: the process that held it was ended"),
	}
}

// verdict is [verdict], except for a command that ended with its terminal: it was hung
// up, and the process that serves the master has not ended by itself.
func (t *terminal) verdict(code int, signal string) error {
	if t == nil || t.copier == nil || signal != "SIGHUP" {
		return child.Verdict(code, signal)
	}
	if e, err := t.copier.Wait(child.Patience(0)); err != nil || e == (process.Exit{}) {
		return child.Verdict(code, signal)
	}
	return lostTerminal()
}

// settle returns when the last words of a command that has ended are written, or
// may be as soon as all that holds its terminal is gone; false: it took too long.
func (t *terminal) settle() bool {
	switch {
	case t == nil:
		return true
	case t.input == nil:
		_ = t.slave.Close()
		return true
	case t.gone == nil:
		return true
	}
	limit := child.Patience(settleWait)
	if t.copier != nil {
		_, err := t.copier.Wait(limit)
		return err == nil
	}
	select {
	case <-t.gone.Done():
		return true
	case <-limit.Done():
		return false
	}
}

// leave lets the command have its terminal beyond this host.
func (t *terminal) leave() {
	if t != nil {
		t.stays = true
	}
}

// close gives back all that is left. It may be called again.
func (t *terminal) close() {
	if t == nil {
		return
	}
	t.d.terminals.set(t.id, nil)
	if t.shut != nil {
		t.shut()
		t.works.Wait()
	}
	t.give()
	if t.copier != nil {
		if !t.stays {
			t.copier.Reap()
		}
		t.copier.Close()
	}
	if t.lost != nil {
		t.lost()
	}
	if t.input == nil {
		return
	}
	t.input.Close()
	if !t.stays {
		t.d.unlay(t.id)
	}
}

// unlay removes the pipe through which was typed.
func (s *shared) unlay(id task.ID) {
	if s.Keys != nil {
		path := s.Keys(id)
		_ = saferoot.Near(path).Remove(path) // most commands have none
	}
}

// resize follows the size of a person's terminal.
func (t *terminal) resize(ctx context.Context) {
	for {
		select {
		case size := <-t.client.Sizes:
			_ = tty.SetSize(t.master, size)
		case <-ctx.Done():
			return
		}
	}
}

// environ is the environment of a command, whose terminal draws nothing where
// it is not shown.
func (c Client) environ(terminal bool) []string {
	env := process.ChildEnv(c.Env)
	if !terminal || c.Sizes != nil {
		return env
	}
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, "TERM=") {
			out = append(out, kv)
		}
	}
	return append(out, "TERM=dumb")
}
