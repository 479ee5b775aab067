package setup

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/userservice"
)

const (
	serviceName  = "drover"
	serviceCheck = time.Minute // between two looks for hosts to start
)

// serviceCommand installs the service that starts the hosts of schedules and parked agents.
func (a *app) serviceCommand() *cobra.Command {
	var asJSON bool
	sub := func(use, short, long string, run func(context.Context, bool) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Long: long,
			RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), asJSON) }}
	}
	status := func(ctx context.Context, asJSON bool) error { return a.serviceStatus(ctx, asJSON) }
	cmd := sub("service", "Start the hosts of schedules and parked agents after a restart",
		"Start the hosts of schedules and parked agents after a restart. A service of the user (systemd on Linux, launchd\n"+
			"on macOS) looks once a minute for folders that have schedules, parked agents or commands that outlived their\n"+
			"host (run --keep), and starts the detached host where there is none.", status)
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	run := sub("run", "Start hosts where they are missing, until stopped",
		"Start hosts where they are missing, until stopped. This is what the service runs.", a.serviceRun)
	cmd.AddCommand(
		sub("install", "Install and start the service of this user",
			"Install and start the service of this user. It gets PATH and the folders of Drover from this environment, and\n"+
				"no keys: what the models of scheduled agents need comes from the settings.", a.serviceInstall),
		sub("uninstall", "Stop and remove the service",
			"Stop and remove the service. Hosts and tasks that run are left alone.", a.serviceUninstall),
		sub("status", "Print whether the service is installed and runs", "", status),
		run,
	)
	return cmd
}

// services is the manager of the user's services.
func (a *app) services() (userservice.Manager, error) {
	env := home.Lookup(a.Env)
	dir := env("HOME")
	config := cmp.Or(env("XDG_CONFIG_HOME"), filepath.Join(dir, ".config"))
	if !filepath.IsAbs(dir) || !filepath.IsAbs(config) {
		return userservice.Manager{}, fmt.Errorf("find the services of the user: HOME is %q and XDG_CONFIG_HOME %q "+
			"(set them to absolute paths)", dir, env("XDG_CONFIG_HOME"))
	}
	return userservice.Manager{OS: runtime.GOOS, Home: dir, Config: config, UID: os.Getuid(),
		Run: userservice.Command(a.Env)}, nil
}

func (a *app) serviceInstall(ctx context.Context, asJSON bool) error {
	m, err := a.services()
	if err != nil {
		return err
	}
	program, err := program()
	if err != nil {
		return err
	}
	s := userservice.Service{Name: serviceName, Description: "Drover: hosts of schedules and parked agents",
		Args: []string{program, "service", "run"}}
	env := home.Lookup(a.Env)
	for _, key := range []string{"PATH", "DROVER_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		if v := env(key); v != "" {
			s.Env = append(s.Env, key+"="+v)
		}
	}
	file, err := m.Install(ctx, s)
	if err != nil && file != "" {
		return fmt.Errorf("%w (%s is written: start it when the manager of your services runs)", err, file)
	}
	if err != nil {
		return err
	}
	st, err := m.Look(ctx, serviceName)
	if err != nil {
		return err
	}
	if runtime.GOOS == "linux" && !st.Lingers {
		a.Note("the service starts at your first login and ends with your last session (`loginctl enable-linger` makes it " +
			"start with the machine)")
	}
	if asJSON {
		return console.PrintJSON(a.Stdout, st)
	}
	return a.Println(st.File)
}

func (a *app) serviceUninstall(ctx context.Context, asJSON bool) error {
	m, err := a.services()
	if err != nil {
		return err
	}
	had, err := m.Uninstall(ctx, serviceName)
	if err != nil {
		return err
	}
	if !had {
		a.Note("the service is not installed")
	}
	if !asJSON {
		return nil
	}
	st, err := m.Look(ctx, serviceName)
	if err != nil {
		return err
	}
	return console.PrintJSON(a.Stdout, st)
}

func (a *app) serviceStatus(ctx context.Context, asJSON bool) error {
	m, err := a.services()
	if err != nil {
		return err
	}
	st, err := m.Look(ctx, serviceName)
	switch {
	case err != nil:
		return err
	case asJSON:
		return console.PrintJSON(a.Stdout, st)
	}
	word := "not installed (`drover service install`)"
	switch {
	case st.Installed && st.Active:
		word = "installed, running"
	case st.Installed:
		word = "installed, not running"
	}
	if _, err := fmt.Fprintf(a.Stdout, "%s\n", word); err != nil || !st.Installed {
		return err
	}
	if st.Problem != "" {
		a.Note("%s", st.Problem)
	}
	return a.Println(st.File)
}

// serviceRun starts missing hosts until ctx ends.
func (a *app) serviceRun(ctx context.Context, _ bool) error {
	tick := time.NewTicker(serviceCheck)
	defer tick.Stop()
	for {
		if err := a.Revive(ctx); err != nil && ctx.Err() == nil {
			a.Note("start hosts: %v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// program is the path by which the service starts this program. The name by which the shell finds
// it comes first: the file that the name links to may change with each version.
func program() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	found, err := exec.LookPath("drover")
	if err != nil || !filepath.IsAbs(found) {
		return exe, nil
	}
	one, err1 := os.Stat(found)
	other, err2 := os.Stat(exe)
	if err1 == nil && err2 == nil && os.SameFile(one, other) {
		return found, nil
	}
	return exe, nil
}
