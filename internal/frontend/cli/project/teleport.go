package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/google/uuid"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/teleport"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// teleportCommand carries sessions to other folders and machines.
func (a *app) teleportCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "teleport"}
	cmd.AddCommand(a.teleportExport(), a.teleportImport())
	return cmd
}

func errTeleportOff() error {
	return control.Refuse(control.Unavailable, "teleport is turned off", "set teleport.enabled in your settings")
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
		Args: console.Args(1, 1),
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
func (a *app) exported(ctx context.Context, ref string) (console.Session, error) {
	s, err := a.FindSession(ctx, ref)
	switch {
	case err != nil:
		return nil, err
	case s.Info().Live:
		return nil, console.Conflict(fmt.Sprintf("export session %s: it is live", ref),
			"wait for it, or stop it with `drover stop`")
	case !console.IsConversation(s.Info()):
		return nil, console.Conflict(fmt.Sprintf("export session %s: it has no conversation", ref), "see `drover sessions`")
	}
	return s, nil
}

// place is the folder of a session.
func (a *app) place(of control.Info) home.Session {
	return a.Root.Project(of.Project).Session(of.Session)
}

func (a *app) exportSession(ctx context.Context, ref, file string, opt teleport.Options) (err error) {
	s, err := a.exported(ctx, ref)
	if err != nil {
		return err
	}
	there, err := a.InFolderOf(s) // whose definitions count
	if err != nil {
		return err
	}
	info, agents := s.Info(), there.Agents("", false).Current()
	src := teleport.Source{Place: a.place(info), Info: info, Todos: a.Root.Todos(string(info.Session)),
		Definition: func(kind string) string {
			def, err := agents.Find(kind)
			if err != nil {
				return ""
			}
			return def.Source
		}}
	var m teleport.Manifest
	write := func(out io.Writer) (err error) {
		m, err = teleport.Export(ctx, out, src, opt)
		return err
	}
	file = cmp.Or(file, string(info.Session)+".drover.tar.gz")
	switch {
	case file != "-":
		err = console.NewFile(a.Path(file), write)
	case a.IsTerminal(a.Stdout):
		return console.Usage("stdout is a terminal, and the archive is binary", "name a file with -o")
	default:
		err = write(a.Stdout)
	}
	switch {
	case errors.Is(err, teleport.ErrRunning):
		return console.Conflict(err.Error(), "wait for it, or stop it with `drover stop`")
	case err != nil:
		return err
	case m.Secrets > 0:
		a.Hint(fmt.Sprintf("values of secret variables were left out in %d places", m.Secrets))
	}
	if file == "-" {
		return nil
	}
	return a.Println(file)
}

func (a *app) teleportImport() *cobra.Command {
	var into string
	cmd := &cobra.Command{
		Use:   "import FILE [--into DIR]",
		Short: "Import an archive as a new session and print its ID",
		Long: "Import an archive as a new session and print its ID. The session continues in the folder that it had, or in\n" +
			"the one that --into names; the folder must exist. `drover -p --resume ID` resumes it by its new ID or its old one.",
		ValidArgsFunction: console.CompleteFiles,
		Args:              console.Args(1, 1),
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
	file = a.Path(file)
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
	to := teleport.Target{Project: a.Root.Project(folder), ID: id, Alias: "teleport_" + uuid.NewString(),
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
	return a.Println(id)
}

// destination is the folder of an imported session.
func (a *app) destination(m teleport.Manifest, sync bool, into string) (string, error) {
	folder, fix := a.Cwd, "name one that exists"
	switch {
	case into != "":
		folder = a.Path(into)
	case sync && m.Cwd != "":
		folder, fix = m.Cwd, "name another with --into"
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return "", console.Usage(fmt.Sprintf("folder %s does not exist", folder), fix)
	}
	return folder, nil
}
