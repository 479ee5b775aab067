package project

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/teleport"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// teleportCommand carries sessions to other folders and machines.
func (a *app) teleportCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "teleport", Args: console.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.teleportExport(), a.teleportImport())
	return cmd
}

func errTeleportOff() error {
	return &control.Error{Code: control.Unavailable, Message: "teleport is turned off",
		Fix: "set teleport.enabled in your settings"}
}

func (a *app) teleportExport() *cobra.Command {
	var file string
	var cwd, env bool
	var names []string
	cmd := &cobra.Command{
		Use:   "export SESSION [-o FILE] [--cwd-sync=false] [--env-sync --env NAME …]",
		Short: "Write an ended session to an archive",
		Long: "Write an ended session to an archive: its conversation, those of its agents, the output of its tasks, its\n" +
			"to-dos and the definitions of its agents. The values of secret variables such as ANTHROPIC_API_KEY are removed\n" +
			"everywhere. An existing file is never overwritten; - is stdout.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return console.Usage("exactly one SESSION is required", "see `drover sessions`")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := a.Settings("")
			if err != nil {
				return err
			}
			if !set.Teleport.Enabled {
				return errTeleportOff()
			}
			if !cmd.Flags().Changed("cwd-sync") {
				cwd = set.Teleport.CwdSync
			}
			if !cmd.Flags().Changed("env-sync") {
				env = set.Teleport.EnvSync
			}
			if len(names) > 0 && !env {
				return console.Usage("--env needs --env-sync", "add --env-sync")
			}
			opt, err := a.teleportOptions(set, cwd, names)
			if err != nil {
				return err
			}
			return a.exportSession(cmd.Context(), args[0], file, opt)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "a new file (default SESSION.drover.tar.gz), or - for stdout")
	f.BoolVar(&cwd, "cwd-sync", true, "record the folder, so that the imported session continues in it")
	f.BoolVar(&env, "env-sync", false, "include the variables that --env names")
	f.StringArrayVar(&names, "env", nil, "name of a variable to include")
	return cmd
}

// teleportOptions refuses variables that hold secrets.
func (a *app) teleportOptions(set settings.Settings, cwd bool, names []string) (teleport.Options, error) {
	more := []string{set.Providers.Anthropic.APIKeyEnv, set.Providers.OpenAI.APIKeyEnv, set.Agents.Catalog.TokenEnv}
	for _, one := range set.Remote.Services {
		more = append(more, one.TokenEnv)
	}
	more = slices.DeleteFunc(more, func(name string) bool { return name == "" })
	opt := teleport.Options{Program: a.Version, Cwd: cwd, Secrets: teleport.Secrets(a.Env, more...)}
	for _, name := range names {
		if teleport.IsSecret(name) || slices.Contains(more, name) {
			return opt, console.Usage(fmt.Sprintf("--env %s: the variable holds a secret and is never exported", name),
				"set it on the other machine")
		}
		i := slices.IndexFunc(a.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if i < 0 {
			return opt, console.Usage(fmt.Sprintf("--env %s: the variable is not set", name), "leave it out")
		}
		if opt.Env == nil {
			opt.Env = map[string]string{}
		}
		opt.Env[name] = home.Lookup(a.Env)(name)
	}
	return opt, nil
}

// exported finds the session to carry away.
func (a *app) exported(ctx context.Context, ref string) (control.Info, error) {
	all, err := a.Known(ctx, false, true)
	if err != nil {
		return control.Info{}, err
	}
	found := console.CalledBy(all, ref)
	switch {
	case len(found) == 0:
		return control.Info{}, &control.Error{Code: control.NotFound, Message: "no session " + ref,
			Fix: "see `drover sessions --all-sessions`"}
	case len(found) > 1:
		return control.Info{}, console.SeveralSessions(ref, found)
	}
	switch info := found[0].Info(); {
	case info.Live:
		return info, &control.Error{Code: control.Conflict, Message: fmt.Sprintf("export session %s: it is live", ref),
			Fix: "wait for it, or stop it with `drover stop`"}
	case info.Role != console.Conversing:
		return info, &control.Error{Code: control.Conflict,
			Message: fmt.Sprintf("export session %s: it has no conversation", ref), Fix: "see `drover sessions`"}
	default:
		return info, nil
	}
}

// place is the folder of a session.
func (a *app) place(of control.Info) home.Session {
	return a.Root.Project(of.Project).Session(of.Session)
}

func (a *app) exportSession(ctx context.Context, ref, file string, opt teleport.Options) (err error) {
	info, err := a.exported(ctx, ref)
	if err != nil {
		return err
	}
	there := *a
	there.Cwd = info.Project // whose definitions count
	agents := there.Agents("", false).Current()
	src := teleport.Source{Place: a.place(info), Info: info, Todos: a.Root.Todos(string(info.Session)),
		Definition: func(kind string) string {
			def, err := agents.Find(kind)
			if err != nil {
				return ""
			}
			return def.Source
		}}
	out, done, err := a.newArchive(file, info.Session)
	if err != nil {
		return err
	}
	m, err := teleport.Export(ctx, out, src, opt)
	if err = done(err); err != nil {
		if errors.Is(err, teleport.ErrRunning) {
			return &control.Error{Code: control.Conflict, Message: err.Error(),
				Fix: "wait for it, or stop it with `drover stop`"}
		}
		return err
	}
	if m.Secrets > 0 {
		a.Hint(fmt.Sprintf("values of secret variables were left out in %d places", m.Secrets))
	}
	return nil
}

// newArchive opens a file that is not there yet. It is named on stdout when it is
// whole, and removed if it did not become so.
func (a *app) newArchive(file string, id task.ID) (io.Writer, func(error) error, error) {
	if file == "-" {
		if a.IsTerminal(a.Stdout) {
			return nil, nil, console.Usage("stdout is a terminal, and the archive is binary", "name a file with -o")
		}
		return a.Stdout, func(err error) error { return err }, nil
	}
	if file == "" {
		file = string(id) + ".drover.tar.gz"
	}
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.Cwd, path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, console.Usage(file+" exists", "name another file with -o")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("write archive: %w", err)
	}
	return f, func(err error) error {
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		_, err = fmt.Fprintln(a.Stdout, file)
		return err
	}, nil
}

func (a *app) teleportImport() *cobra.Command {
	var into string
	cmd := &cobra.Command{
		Use:   "import FILE [--into DIR]",
		Short: "Import an archive as a new session and print its ID",
		Long: "Import an archive as a new session and print its ID. The session continues in the folder that it had, or in\n" +
			"the one that --into names; the folder must exist. `drover -p --resume ID` resumes it by its new ID or its old one.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return console.Usage("exactly one FILE is required", "one that `drover teleport export` wrote")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := a.Settings("")
			if err != nil {
				return err
			}
			if !set.Teleport.Enabled {
				return errTeleportOff()
			}
			return a.importSession(cmd.Context(), set, args[0], into)
		},
	}
	cmd.Flags().StringVar(&into, "into", "", "the folder in which the session continues")
	return cmd
}

func (a *app) importSession(ctx context.Context, set settings.Settings, file, into string) error {
	if !filepath.IsAbs(file) {
		file = filepath.Join(a.Cwd, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return console.Usage("read archive: "+err.Error(), "name a file that `drover teleport export` wrote")
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return console.Usage(file+": not a regular file", "copy it into one")
	}
	m, err := teleport.Check(f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	folder, err := a.destination(m, set.Teleport.CwdSync, into)
	if err != nil {
		return err
	}
	id := task.NewSessionID()
	to := teleport.Target{Project: a.Root.Project(folder), ID: id, Alias: "teleport_" + newUUID(),
		Role:    console.Conversing,
		Program: a.Version, Todos: a.Root.Todos(string(id))}
	if _, err = teleport.Import(ctx, f, to); err != nil {
		return err
	}
	a.Hint(
		fmt.Sprintf("imported session %s, formerly %s, into %s; it is also called %s", id, m.Source, to.Project.Folder(),
			to.Alias),
	)
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		a.Hint(fmt.Sprintf("it was used with %s=%s, which is not set here", name, m.Env[name]))
	}
	_, err = fmt.Fprintln(a.Stdout, id)
	return err
}

// destination is the folder in which an imported session goes on.
func (a *app) destination(m teleport.Manifest, sync bool, into string) (string, error) {
	folder, fix := into, "name one that exists"
	switch {
	case into != "" && !filepath.IsAbs(into):
		folder = filepath.Join(a.Cwd, into)
	case into == "" && sync && m.Cwd != "":
		folder, fix = m.Cwd, "name another with --into"
	case into == "":
		folder = a.Cwd
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", console.Usage(fmt.Sprintf("there is no folder %s", folder), fix)
	}
	return folder, nil
}

// newUUID makes one of version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}
