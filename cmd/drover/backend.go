package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/keeper/roles"
	"github.com/drover-dev/drover/internal/frontend/agentsdk"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/run"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/trust"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

func (b *folder) directory() *host.Directory {
	return &host.Directory{Root: b.root, Folder: b.cwd, Env: b.env, Program: b.keeper(), EndLost: b.endLost}
}

func (b *folder) endLost(ctx context.Context, died []task.ID) {
	if err := ended.EndLost(ctx, b.root, died...); err != nil && ctx.Err() == nil {
		b.note(err.Error())
	}
}

// Settings returns the settings of the folder, and notes ignored parts on stderr.
func (b *folder) Settings(flag string) (settings.Settings, error) {
	return b.settings(flag, settings.Skip{})
}

// settings returns the settings of the folder without the skipped files.
func (b *folder) settings(flag string, skip settings.Skip) (settings.Settings, error) {
	src, st, err := b.source(flag)
	if err != nil {
		return settings.Settings{}, err
	}
	set, notes, err := settings.Load(src.Without(skip))
	for _, n := range notes {
		if !n.Untrusted || !st.Needed() { // of which there is one note
			b.note(n.String())
		}
	}
	for _, rule := range set.Foreign {
		if tool := policy.ToolOf(rule); tool != "" && (policy.Absent(tool) || !catalog.KnownTool(tool)) {
			b.note(fmt.Sprintf("permission rule %.80q binds nothing: there is no tool %.40q here", rule, tool))
		}
	}
	if rules := set.Permissions; err == nil { // rules of other programs may name their tools
		foreign := func(rule string) bool { return slices.Contains(set.Foreign, rule) }
		err = console.CheckToolNames("settings", slices.DeleteFunc(slices.Concat(rules.Allow, rules.Ask, rules.Deny),
			foreign))
	}
	if err == nil && st.Needed() && !b.trustNoted && !(skip.Project && skip.Local) {
		b.trustNoted = true
		folder, trusts := "this folder", "drover trust"
		if b.elsewhere {
			folder, trusts = b.cwd, "drover trust "+b.cwd
		}
		b.note(
			fmt.Sprintf(
				"the files of %s would execute or allow something (%s), which has no effect until you trust it (see `%s`)",
				folder,
				filesOf(st),
				trusts,
			),
		)
	}
	return set, err
}

// source is where the settings of the folder are read from. Without the state of its trust the
// folder counts as not trusted.
func (b *folder) source(flag string) (settings.Sources, trust.State, error) {
	src := settings.Find(home.Lookup(b.env), b.cwd, flag)
	src.Saved = b.root.CredentialsFile()
	st, err := trust.At(b.root.TrustFile()).Check(b.cwd)
	src.Trusted = err == nil && st.Trusted
	return src, st, err
}

// filesOf names the first files that wait for trust.
func filesOf(st trust.State) string {
	const most = 4
	var names []string
	for _, item := range slices.Concat(st.Effects, st.Unreadable) {
		if !slices.Contains(names, item.File) {
			names = append(names, item.File)
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// opening is the common configuration of the sessions of this process.
func (b *folder) opening(role, title string, set settings.Settings) assemble.Config {
	return assemble.Config{
		Config: bare.Config{Root: b.root, Folder: b.cwd, Role: role, Title: title, Version: b.version, Env: b.env,
			Settings: set, Tell: func(_ task.ID, text string) { b.note(text) }},
		Starter:    b.starter(),
		Observer:   b.observer(set),
		TrustNoted: b.trustNoted}
}

// note prints a note on stderr.
func (b *folder) note(text string) {
	fmt.Fprintf(b.stderr, "drover: note: %s\n", excerpt.Line(text, 1000))
}

func (b *folder) Background(ctx context.Context) (control.API, func(), error) {
	return b.directory().Background(ctx)
}

func (b *folder) Revive(ctx context.Context) error { return b.directory().Revive(ctx) }

func (b *folder) Known(ctx context.Context, live, all bool) ([]console.Session, error) {
	entries, err := b.directory().Sessions(ctx, live, all)
	if err != nil {
		return nil, err
	}
	out := make([]console.Session, len(entries))
	for i, e := range entries {
		out[i] = known{e}
	}
	return out, nil
}

// known is a session of a listing.
type known struct{ host.Entry }

func (k known) Info() control.Info { return k.Entry.Info }

// RunForeground runs a command in a session of its own, in this process.
func (b runner) RunForeground(ctx context.Context, f run.Foreground) (rec task.Record, err error) {
	set, err := b.Settings("")
	if err != nil {
		return rec, err
	}
	title := f.Request.Name
	if title == "" && f.Request.Shell != nil {
		title = f.Request.Shell.Line
	}
	cfg := b.opening(session.RoleRun, title, set)
	cfg.Keeper = b.helper()
	open, err := assemble.Open(ctx, cfg)
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
	unwatched := b.suspends(open)
	rec, err = open.RunCommand(ctx, f.Request, client)
	unwatched()
	if errors.Is(err, conversation.ErrInterrupted) { // before it was started
		err = &console.ExitError{Code: 128 + int(syscall.SIGINT)}
	}
	if closed := open.Close(); err == nil {
		err = closed
	}
	if lost := tee.Lost(); err == nil && lost != nil && !errors.Is(lost, syscall.EPIPE) {
		err = fmt.Errorf("show its output: %w (the command was task %s, whose log has what is missing)", lost, rec.ID)
	}
	return rec, err
}

// interruptible returns a context that the first SIGINT also ends, and a second that ends with the next
// signal after that.
func interruptible(ctx context.Context) (first, hurry context.Context) {
	first, interrupt := context.WithCancelCause(ctx)
	hurry, rush := context.WithCancel(context.Background())
	onInterrupt(ctx, func() {
		context.AfterFunc(ctx, rush)
		interrupt(conversation.ErrInterrupted)
	})
	return first, hurry
}

// Remove deletes what an ended session left.
func (b storage) Remove(ctx context.Context, of control.Info) error {
	_, err := b.remove(ctx, of, func(p ended.Session) (ended.Removed, error) { return p.Remove(ctx, true) })
	return byForce(of.Session, err)
}

// MarkSeen records in what an ended session left that the user knows how tasks ended.
func (b attending) MarkSeen(ctx context.Context, of control.Info, ids []task.ID) error {
	e, err := b.ended(ctx, of)
	if err != nil {
		return err
	}
	return ended.MarkSeen(ctx, e.Place, ids)
}

// keeperProgram is the small program of processes that stay alive.
const keeperProgram = "drover-keeper"

// keeper is the command of a process that stays alive: of the small program for that, if it is installed with this one
// and both know their build, else of this program.
func (b *folder) keeper(words ...string) []string {
	if id := buildinfo.ID(); id != "" {
		if small := buildinfo.Companion(b.exe, keeperProgram); small != "" {
			return append([]string{small, "keeper", b.exe, id}, words...)
		}
	}
	return append([]string{b.exe, "keeper"}, words...)
}

// starter is the command of the process that starts programs in the namespaces of a session.
func (b *folder) starter() []string { return b.keeper(roles.Room) }

// helper is the command of the process that ends what this one leaves.
func (b *folder) helper() []string { return b.keeper(roles.Helper) }

// Here opens a session in this process, gives its API to do, and closes it.
func (b *folder) Here(ctx context.Context, o console.Opening, do func(context.Context, control.API) error) (err error) {
	defer func() { b.keepFailure(err) }()
	set, err := b.Settings(o.Settings)
	if err != nil {
		return err
	}
	cfg := b.opening(session.RoleRun, o.Title, set)
	cfg.Session, cfg.Keeper = o.Session, b.helper()
	if o.Answerable && isTerminal(os.Stderr) { // a user at the terminal can answer from another one
		cfg.AskWait = set.Permissions.AskTimeout
	}
	cfg.On = b.sayDenials()
	s, err := assemble.Open(ctx, cfg)
	if err != nil {
		return err
	}
	s.Serve()
	if o.Answerable {
		defer b.suspends(s)()
	}
	err = do(ctx, s)
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}

// sayDenials returns what says on stderr which calls of agents were denied, each once.
func (b *folder) sayDenials() func(task.ID, agent.Event) {
	var said sync.Map
	return func(_ task.ID, e agent.Event) {
		if e.Kind != agent.TurnDoneEvent || e.Result == nil {
			return
		}
		for _, d := range e.Result.Denials {
			line := agentsdk.Refusal(d)
			if _, again := said.LoadOrStore(line, true); !again {
				fmt.Fprintln(b.stderr, line)
			}
		}
	}
}

// At returns the folder of a session.
func (b *folder) At(s console.Session) (console.Folder, string, []string, error) {
	e := s.(known).Entry
	p := e.Place.Project()
	info, err := os.Stat(p.Folder())
	why := ""
	switch {
	case p.Dir() == b.root.Project(b.cwd).Dir():
		return b, b.cwd, b.env, nil
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
		why = "which is gone"
	case err != nil:
		why = "which cannot be opened: " + err.Error()
	case b.root.Project(p.Folder()).Dir() != p.Dir():
		why = "which is a link to another one now"
	}
	if why != "" {
		return nil, "", nil, console.Conflict(fmt.Sprintf("session %s belongs to the folder %s, %s", e.Place.ID(), p.Folder(),
			why), "put it back, or carry the session to another folder, see `drover teleport --help`")
	}
	there := b.in(p.Folder())
	return there, there.cwd, there.env, nil
}

// in is another folder, with the environment there.
func (b *folder) in(path string) *folder {
	if path == b.cwd {
		return b
	}
	there := *b
	there.cwd, there.elsewhere, there.env = path, true, host.EnvAt(b.env, path)
	return &there
}
