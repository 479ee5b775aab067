package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/cli"
	"github.com/drover-dev/drover/internal/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/excerpt"
	"github.com/drover-dev/drover/internal/home"
	"github.com/drover-dev/drover/internal/host"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/settings"
	"github.com/drover-dev/drover/internal/trust"
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
	return &host.Directory{Root: w.root, Folder: w.cwd, Env: w.env, Program: []string{exe, "keeper"}}, nil
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
		w.note("the files of this folder would execute or allow something, which has no effect until you trust it (see `drover trust`)")
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
		out[i] = known{e}
	}
	return out, nil
}

type known struct{ host.Entry }

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
	client := shell.Client{Tee: &shell.Tee{Stdout: f.Stdout, Stderr: f.Stderr}}
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
	rec, err = open.RunCommand(ctx, f.Request, client)
	if closed := open.Close(); err == nil {
		err = closed
	}
	return rec, err
}

// Remove deletes what an ended session left.
func (s *sessions) Remove(ctx context.Context, id task.ID) error {
	d, err := s.w.directory()
	if err != nil {
		return err
	}
	entries, err := d.Sessions(ctx, false, true)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Place.ID() != id {
			continue
		}
		unlock, err := e.Place.Lock()
		if err != nil {
			return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s is open", id), Mend: "stop its tasks first"}
		}
		unlock()
		r, err := session.Past{Place: e.Place, Info: e.Info}.Remove(ctx, true)
		if err == nil && r.Kept != "" {
			return &control.Error{Code: control.Conflict, Message: "remove session: " + r.Kept, Mend: "stop its tasks first, see `drover ps --all-sessions`"}
		}
		return err
	}
	return &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %s", id), Mend: "see `drover sessions`"}
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
	path, err := home.SocketPath(home.Lookup(s.w.env), "s00000000")
	if err != nil {
		return cli.Finding{Check: "sockets", Level: cli.Bad, Detail: err.Error()}
	}
	return cli.Finding{Check: "sockets", Level: cli.Good, Detail: path[:len(path)-len("00000000.sock")]}
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

func (s *sessions) model() cli.Finding {
	get := home.Lookup(s.w.env)
	if get("ANTHROPIC_API_KEY") == "" && get("ANTHROPIC_AUTH_TOKEN") == "" {
		return cli.Finding{Check: "model", Level: cli.Warn, Detail: "no key is set", Mend: "set ANTHROPIC_API_KEY, or use --model script:FILE"}
	}
	return cli.Finding{Check: "model", Level: cli.Good, Detail: "a key is set"}
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
