package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// monitorUsual is the default time limit of a monitor.
const monitorUsual = 5 * time.Minute

// monitorFlags are what `drover monitor` is given.
type monitorFlags struct {
	name, description string
	match             string
	timeout           time.Duration
	persistent        bool
	file, server, uri string
	detach, timed     bool
}

// monitorCommand watches things without an agent.
func (a *app) monitorCommand() *cobra.Command {
	var m monitorFlags
	cmd := &cobra.Command{
		Use: "monitor [--match RE] [--timeout D | --persistent] [--name N] (-- CMD [ARG…] | --file F | --server S --uri U)",
		Long: "Watch the lines of a command, the new lines of a file, or a resource of an MCP server, in the detached host of\n" +
			"this folder, and print the ID.\n" +
			"\n" +
			"A line that matches is an event: `drover ps` counts events, and `drover logs -f` prints all lines. A monitor\n" +
			"ends with what it watches, after its timeout, or by `drover stop`. It does not outlive its host.",
		Args: console.Args(0, -1), ValidArgsFunction: console.CompleteFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			m.timed = cmd.Flags().Changed("timeout")
			r, err := m.request(a, args)
			if err != nil {
				return err
			}
			return a.PrintDetached(cmd.Context(), r)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the command is the command's
	f.StringVar(&m.match, "match", "", "count only lines that match this regular expression (RE2)")
	f.DurationVar(&m.timeout, "timeout", monitorUsual, "stop watching after this time")
	f.BoolVar(&m.persistent, "persistent", false, "watch until it is stopped")
	f.StringVar(&m.file, "file", "", "watch the lines that are added to this file")
	f.StringVar(&m.server, "server", "", "the MCP server that has the resource")
	f.StringVar(&m.uri, "uri", "", "watch this resource")
	f.StringVar(&m.name, "name", "", "a name that can be used wherever an ID can")
	f.StringVar(&m.description, "description", "", "a description of the monitor")
	f.BoolVarP(&m.detach, "detach", "d", true, "run it in the detached host, as it always is")
	return cmd
}

// request checks the flags; what they name is checked where it is started.
func (m *monitorFlags) request(a *app, words []string) (control.StartRequest, error) {
	r := control.StartRequest{Name: m.name, Description: m.description, Env: a.Env, Cwd: a.Cwd,
		Monitor: &control.MonitorRequest{File: m.file, Server: m.server, URI: m.uri, Match: m.match}}
	sources := 0
	for _, is := range []bool{len(words) > 0, m.file != "", m.server+m.uri != ""} {
		if is {
			sources++
		}
	}
	switch {
	case sources != 1 || len(words) > 0 && words[0] == "":
		return r, console.Usage("exactly one of a command, --file, and --server with --uri is required",
			"give one of -- CMD, --file F, and --server S with --uri U")
	case m.persistent && m.timed:
		return r, console.Usage("--timeout and --persistent are mutually exclusive", "give one of them")
	case m.timeout <= 0:
		return r, console.Usage(fmt.Sprintf("--timeout %s: must be greater than 0", m.timeout),
			"write it as 90s or 10m, or use --persistent")
	case !m.detach:
		return r, console.Usage("a monitor always runs in the detached host", "follow it with `drover logs -f ID`")
	}
	if !m.persistent {
		r.Timeout = m.timeout
	}
	if m.file != "" {
		r.Monitor.File = a.Path(m.file)
	}
	switch {
	case len(words) == 1 && strings.ContainsAny(words[0], " \t\n"):
		r.Monitor.Shell = &control.ShellRequest{Line: words[0]}
	case len(words) > 0:
		r.Monitor.Shell = &control.ShellRequest{Args: words}
	}
	return r, nil
}
