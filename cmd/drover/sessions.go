package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/agentenv/trust"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/ended"
	"github.com/drover-dev/drover/task"
)

// sessions is the command line's way to sessions.
type sessions struct{ w *world }

var _ cli.Sessions = (*sessions)(nil)

func (w *world) directory() (*host.Directory, error) {
	exe, err := program()
	if err != nil {
		return nil, err
	}
	return &host.Directory{Root: w.root, Folder: w.cwd, Env: w.env, Program: []string{exe, "keeper"}, EndLost: w.endLost}, nil
}

func (w *world) endLost(ctx context.Context, died []task.ID) {
	if err := ended.EndLost(ctx, w.root, died...); err != nil && ctx.Err() == nil {
		w.note(err.Error())
	}
}

// settings are those of the folder, with what was passed over told on stderr.
func (w *world) settings(flag string) (settings.Settings, error) {
	src := settings.Find(home.Lookup(w.env), w.cwd, flag)
	st, err := trust.At(w.root.TrustFile()).Check(w.cwd)
	if err != nil {
		return settings.Settings{}, err
	}
	src.Trusted = st.Trusted
	set, notes, err := settings.Load(src)
	for _, n := range notes {
		w.note(n.String())
	}
	if err == nil && st.Needed() {
		folder, trusts := "this folder", "drover trust"
		if w.from != "" {
			folder, trusts = w.cwd, "drover trust "+w.cwd
		}
		w.note(fmt.Sprintf("the files of %s would execute or allow something, which has no effect until you trust it (see `%s`)", folder, trusts))
	}
	return set, err
}

// note tells the user something that is no error.
func (w *world) note(text string) {
	fmt.Fprintf(w.stderr, "drover: note: %s\n", excerpt.Line(text, 1000))
}

func (s *sessions) Background(ctx context.Context) (control.API, func(), error) {
	d, err := s.w.directory()
	if err != nil {
		return nil, nil, err
	}
	return d.Background(ctx)
}

func (s *sessions) Known(ctx context.Context, live, all bool) ([]cli.Session, error) {
	d, err := s.w.directory()
	if err != nil {
		return nil, err
	}
	entries, err := d.Sessions(ctx, live, all)
	if err != nil {
		return nil, err
	}
	out := make([]cli.Session, len(entries))
	for i, e := range entries {
		out[i] = known{e, s.w}
	}
	return out, nil
}

type known struct {
	host.Entry
	w *world
}

func (k known) Info() control.Info { return k.Entry.Info }

// RunForeground runs a command in a session of its own, in this process.
func (s *sessions) RunForeground(ctx context.Context, f cli.Foreground) (rec task.Record, err error) {
	set, err := s.w.settings("")
	if err != nil {
		return rec, err
	}
	exe, err := program()
	if err != nil {
		return rec, err
	}
	title := f.Request.Name
	if title == "" && f.Request.Shell != nil {
		title = f.Request.Shell.Line
	}
	open, err := assemble.Open(ctx, assemble.Config{Root: s.w.root, Folder: s.w.cwd, Role: session.RoleRun, Title: title, Version: version, Env: s.w.env,
		Settings: set, Keeper: []string{exe, "keeper", "--helper"}, Tell: func(_ task.ID, text string) { s.w.note(text) }})
	if err != nil {
		return rec, err
	}
	open.Serve()
	tee := &shell.Tee{Stdout: f.Stdout, Stderr: f.Stderr}
	client := shell.Client{Tee: tee}
	ctx, client.Hurry = interruptible(ctx)
	if in, ok := f.Stdin.(*os.File); ok {
		client.Stdin = in
	}
	if f.Request.Shell != nil && f.Request.Shell.TTY {
		restore, err := lookAt(&client)
		if err != nil {
			return rec, errors.Join(err, open.Close())
		}
		defer restore()
	}
	unwatched := s.w.suspends(open)
	rec, err = open.RunCommand(ctx, f.Request, client)
	unwatched()
	if errors.Is(err, session.ErrInterrupted) { // before it was started
		err = &cli.ExitError{Code: 128 + int(syscall.SIGINT)}
	}
	if closed := open.Close(); err == nil {
		err = closed
	}
	if lost := tee.Lost(); err == nil && lost != nil && !errors.Is(lost, syscall.EPIPE) {
		err = fmt.Errorf("show its output: %w (the command was task %s, whose log has what is missing)", lost, rec.ID)
	}
	return rec, err
}

// interruptible returns a context that the first INT ends too, and one that ends with
// the next signal after that.
func interruptible(ctx context.Context) (first, hurry context.Context) {
	first, interrupt := context.WithCancelCause(ctx)
	hurry, rush := context.WithCancel(context.Background())
	onInterrupt(ctx, func() {
		context.AfterFunc(ctx, rush)
		interrupt(session.ErrInterrupted)
	})
	return first, hurry
}

// Remove deletes what an ended session left.
func (s *sessions) Remove(ctx context.Context, of control.Info) error {
	_, err := s.w.remove(ctx, of, func(p ended.Session) (ended.Removed, error) { return p.Remove(ctx, true) })
	return byForce(of.Session, err)
}

// Doctor looks at what Drover needs.
func (s *sessions) Doctor(ctx context.Context) []cli.Finding {
	return []cli.Finding{s.state(), s.disk(), s.socket(), s.config(), s.model(), s.shell(), system(), s.background(ctx)}
}

func (s *sessions) state() cli.Finding {
	f := cli.Finding{Check: "state folder", Level: cli.Good, Detail: s.w.root.Dir()}
	if err := s.w.root.Ensure(); err != nil {
		f.Level, f.Detail = cli.Bad, err.Error()
	}
	return f
}

// disk looks for what tasks.minFreeBytes wants.
func (s *sessions) disk() cli.Finding {
	f := cli.Finding{Check: "disk", Level: cli.Good}
	room, err := s.w.root.Room()
	if err != nil {
		f.Level, f.Detail = cli.Warn, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("%d MB are free for sessions", room.Bytes/1_000_000)
	set, _, err := settings.Load(settings.Find(home.Lookup(s.w.env), s.w.cwd, ""))
	least, mend := set.Tasks.MinFreeBytes, "free some space, see `drover sessions rm --old`"
	switch {
	case err != nil:
	case room.Bytes < least:
		f.Level, f.Detail, f.Mend = cli.Warn, f.Detail+fmt.Sprintf(", fewer than tasks.minFreeBytes, %d bytes: nothing starts", least), mend
	case least > 0 && room.NoFiles():
		f.Level, f.Detail, f.Mend = cli.Warn, f.Detail+", but no more files: nothing starts", mend
	}
	return f
}

func (s *sessions) socket() cli.Finding {
	path, err := s.w.root.Project(s.w.cwd).Session("s00000000").SocketPath(home.Lookup(s.w.env))
	if err != nil {
		return cli.Finding{Check: "sockets", Level: cli.Bad, Detail: err.Error()}
	}
	return cli.Finding{Check: "sockets", Level: cli.Good, Detail: filepath.Dir(path) + "/"}
}

func (s *sessions) config() cli.Finding {
	_, notes, err := settings.Load(settings.Find(home.Lookup(s.w.env), s.w.cwd, ""))
	switch {
	case err != nil:
		return cli.Finding{Check: "settings", Level: cli.Bad, Detail: err.Error()}
	case len(notes) > 0:
		return cli.Finding{Check: "settings", Level: cli.Warn, Detail: notes[0].String()}
	}
	return cli.Finding{Check: "settings", Level: cli.Good, Detail: "readable"}
}

// model looks for a provider that can be asked, and whether that of the usual model is
// one. What is wrong with settings is found elsewhere.
func (s *sessions) model() cli.Finding {
	src := settings.Find(home.Lookup(s.w.env), s.w.cwd, "")
	if st, err := trust.At(s.w.root.TrustFile()).Check(s.w.cwd); err == nil {
		src.Trusted = st.Trusted
	}
	set, _, _ := settings.Load(src)
	get := home.Lookup(assemble.Environ(s.w.env, set))
	ready := provider.Ready(get)
	f := cli.Finding{Check: "model", Level: cli.Good, Detail: "set up: " + strings.Join(ready, ", ")}
	_, err := new(provider.Finder).Find(set.Model, get, s.w.cwd)
	var missing *provider.MissingError
	switch {
	case errors.As(err, &missing) && len(ready) == 0:
		f.Level, f.Detail = cli.Warn, "no key is set"
		f.Mend = "set ANTHROPIC_API_KEY; or OPENAI_API_KEY or OPENAI_BASE_URL, for --model openai/NAME; or use --model script:FILE"
	case errors.As(err, &missing): // others may be named
		f.Detail += fmt.Sprintf("; the usual model, %s, is of another provider", cmp.Or(set.Model, provider.Default))
		f.Mend = "set `model` in your settings, or name one with --model PROVIDER/NAME"
	case err != nil:
		f.Level, f.Detail = cli.Warn, err.Error()
	case len(ready) == 0:
		f.Detail = "the usual model is " + set.Model
	}
	return f
}

func (s *sessions) shell() cli.Finding {
	path, err := exec.LookPath("bash")
	if err != nil {
		return cli.Finding{Check: "bash", Level: cli.Bad, Detail: "not on the PATH", Mend: "install it"}
	}
	return cli.Finding{Check: "bash", Level: cli.Good, Detail: path}
}

func system() cli.Finding {
	f := cli.Finding{Check: "system", Level: cli.Good, Detail: runtime.GOOS + "/" + runtime.GOARCH}
	if runtime.GOOS != "linux" {
		f.Level, f.Detail = cli.Warn, f.Detail+": escaped processes are not found here"
	}
	return f
}

func (s *sessions) background(ctx context.Context) cli.Finding {
	f := cli.Finding{Check: "detached host", Level: cli.Good, Detail: "not running; it starts with the next `drover run -d`"}
	entries, err := s.Known(ctx, true, false)
	if err != nil {
		return cli.Finding{Check: "detached host", Level: cli.Bad, Detail: err.Error()}
	}
	for _, e := range entries {
		if i := e.Info(); i.Role == session.RoleBackground {
			f.Detail = fmt.Sprintf("session %s, process %d", i.Session, i.PID)
		}
	}
	return f
}
