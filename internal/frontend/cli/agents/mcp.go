package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Reached is what became of a connection to an MCP server.
type Reached struct {
	About string // the server as it calls itself
	Tools []string
	Err   error
}

// mcp is Drover for other agents, and the servers of others for ours.
func (a *app) mcp() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp",
	}
	cmd.AddCommand(a.mcpServe())
	cmd.AddCommand(a.mcpServersCommands()...)
	return cmd
}

// MCPOverHTTP says where and to whom an MCP server answers over HTTP.
type MCPOverHTTP struct {
	Listen     string // address and port
	AnyAddress bool   // also an address that other machines reach
	TokenFile  string // has the token; made with a new one if it does not exist. Empty: the user's own
}

func (a *app) mcpServe() *cobra.Command {
	var o MCPOverHTTP
	cmd := &cobra.Command{
		Use:   "serve [--http ADDR] [--token-file FILE]",
		Short: "Serve tasks to MCP clients: to one on stdin and stdout, or over HTTP",
		Long: "Serve tasks to one MCP client on stdin and stdout. The tasks run in the detached host of this folder, are\n" +
			"listed by `drover ps` in any terminal, and are stopped when the client disconnects, unless it asked to keep them.\n\n" +
			"With --http, serve all clients that send the token of a file as `Authorization: Bearer TOKEN`. The URL and the\n" +
			"file are printed when the server listens. Whoever has the token can run commands here.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Listen != "" {
				return a.ServeMCPOverHTTP(cmd.Context(), o)
			}
			if o.AnyAddress || o.TokenFile != "" {
				return console.Usage("--token-file and --any-address need --http", "add --http 127.0.0.1:0")
			}
			return a.ServeMCP(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "http", "", "serve over HTTP at this address and port; port 0 for any")
	f.StringVar(&o.TokenFile, "token-file", "",
		"file with the token, of mode 0600; made if it does not exist (default: the user's own)")
	f.BoolVar(&o.AnyAddress, "any-address", false,
		"allow an address that other machines reach: they see the token unless a proxy speaks TLS")
	return cmd
}

// mcpServersCommands change and show the servers that agents may use.
func (a *app) mcpServersCommands() []*cobra.Command {
	return []*cobra.Command{a.mcpAddCommand(), a.mcpListCommand(), a.mcpRemoveCommand(), a.mcpAcceptCommand(),
		a.mcpLoginCommand(), a.mcpLogoutCommand()}
}

type mcpAdd struct {
	scope    string
	env      []string
	url      string
	kind     string
	headers  []string
	name     string
	cmd      []string
	cwd      string
	timeout  time.Duration
	allowed  []string
	disabled []string
}

func (a *app) mcpAddCommand() *cobra.Command {
	var r mcpAdd
	cmd := &cobra.Command{
		Use:   "add [flags] NAME -- COMMAND [ARG…] | NAME --url URL",
		Short: "Add an MCP server",
		Long: "Add an MCP server to your configuration, or with --scope project to .mcp.json of this folder, which is\n" +
			"shared with the project and takes effect once the folder is trusted.\n" +
			"\n" +
			"${VAR} and ${VAR:-DEFAULT} are replaced when the server is started.",
		Args: console.Args(1, -1), ValidArgsFunction: console.CompleteFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			r.name, r.cmd = args[0], args[1:]
			return a.mcpAdd(r, a.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.scope, "scope", "user", "user or project")
	f.StringArrayVarP(&r.env, "env", "e", nil, "KEY=VALUE for the command")
	f.StringVar(&r.url, "url", "", "address of a server over HTTP")
	f.StringVar(&r.kind, "type", "", "of the server at --url: http, or sse for the transport of 2024 (default: http)")
	f.StringArrayVar(&r.headers, "header", nil, "'Name: value' for each call of it")
	f.StringVar(&r.cwd, "cwd", "", "working folder of the command (default: that of the session)")
	f.DurationVar(&r.timeout, "timeout", 0, "time limit of a call (default: from the settings)")
	f.StringArrayVar(&r.allowed, "allow-tool", nil, "a tool that agents see (default: all)")
	f.StringArrayVar(&r.disabled, "disable-tool", nil, "a tool that agents do not see")
	return cmd
}

func (a *app) mcpAdd(r mcpAdd, out io.Writer) error {
	if err := mcpconfig.CheckName(r.name); err != nil {
		return console.Usage(err.Error(), "give it another name")
	}
	s := mcpclient.Server{URL: r.url, Cwd: r.cwd, TimeoutMS: r.timeout.Milliseconds(), AllowedTools: r.allowed,
		DisabledTools: r.disabled}
	if len(r.cmd) > 0 {
		s.Command, s.Args = r.cmd[0], r.cmd[1:]
	}
	if s.Type = r.kind; r.url != "" {
		s.Type = cmp.Or(r.kind, mcpclient.HTTP)
	}
	var err error
	if s.Env, err = pairs(r.env, "=", "--env"); err != nil {
		return err
	}
	if s.Headers, err = pairs(r.headers, ":", "--header"); err != nil {
		return err
	}
	check := s
	if strings.Contains(check.URL, "${") { // its value is known at its use
		check.URL = "https://later.invalid"
	}
	if err := check.Check(); err != nil {
		return console.Usage("server "+r.name+": "+err.Error(), "see `drover mcp add --help`")
	}
	if s.URL == "" && len(s.Headers) > 0 || s.URL != "" && len(s.Env) > 0 {
		return console.Usage("--header needs --url, and --env needs a command", "remove the flag that does not fit")
	}
	path, err := a.mcpPath(r.scope)
	if err != nil {
		return err
	}
	if err := mcpconfig.Add(path, r.name, s); err != nil {
		if errors.Is(err, mcpconfig.ErrExists) {
			return console.Conflict(fmt.Sprintf("add MCP server %s: %s has one of this name", r.name, path),
				"remove it with `drover mcp rm`, or take another name")
		}
		return err
	}
	fmt.Fprintf(out, "Added %s to %s.\n", r.name, path)
	if r.scope == "project" {
		fmt.Fprintln(out, "It starts once this folder is trusted (see `drover trust`).")
	}
	return nil
}

// pairs reads words such as KEY=VALUE.
func pairs(words []string, between, flag string) (map[string]string, error) {
	var out map[string]string
	for _, word := range words {
		key, value, ok := strings.Cut(word, between)
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, console.Usage(fmt.Sprintf("%s %q has no %q", flag, word, between), "write it as NAME"+between+"VALUE")
		}
		if out == nil {
			out = map[string]string{}
		}
		if between == ":" {
			value = strings.TrimSpace(value)
		}
		out[key] = value
	}
	return out, nil
}

func (a *app) mcpPath(scope string) (string, error) {
	switch scope {
	case "user":
		if path := mcpconfig.UserFile(home.Lookup(a.Env)); path != "" {
			return path, nil
		}
		return "", errors.New("find the configuration of the user: HOME is not set (set it)")
	case "project":
		return filepath.Join(a.Cwd, mcpconfig.ProjectFile), nil
	}
	return "", console.Usage(fmt.Sprintf("--scope %q: unknown scope", scope), "use user or project")
}

func (a *app) mcpRemoveCommand() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:     "rm [--scope user|project] NAME",
		Aliases: []string{"remove"},
		Short:   "Remove an MCP server",
		Args:    console.Args(1, 1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.mcpRemove(args[0], scope, a.Stdout) },
	}
	cmd.Flags().StringVar(&scope, "scope", "", "user or project (default: the one that has it)")
	return cmd
}

func (a *app) mcpRemove(name, scope string, out io.Writer) error {
	paths := []string{filepath.Join(a.Cwd, mcpconfig.OwnProjectFile), filepath.Join(a.Cwd, mcpconfig.ProjectFile),
		mcpconfig.UserFile(home.Lookup(a.Env))}
	if scope != "" {
		path, err := a.mcpPath(scope)
		if err != nil {
			return err
		}
		paths = []string{path}
	}
	var has []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		entries, _ := mcpconfig.Parse(data, nil) // a broken file has nothing to remove
		if slices.ContainsFunc(entries, func(e mcpconfig.Entry) bool { return e.Name == name }) {
			has = append(has, path)
		}
	}
	switch len(has) {
	case 0:
		return console.Missing("no MCP server "+name, "see `drover mcp list`")
	case 1:
	default:
		return console.Conflict(fmt.Sprintf("remove MCP server %s: it is in %s", name, strings.Join(has, " and ")),
			"say which with --scope")
	}
	if _, err := mcpconfig.Remove(has[0], name); err != nil {
		return err
	}
	fmt.Fprintf(out, "Removed %s from %s.\n", name, has[0])
	return nil
}

func (a *app) mcpAcceptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accept NAME",
		Short: "Accept the changed tools of an MCP server",
		Long: "Drover records the description of each tool when it is first used, and asks before calls of a tool whose\n" +
			"description has changed. Accept removes the record of one server, so that its current tools are accepted.",
		Args: console.Args(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			entries, err := a.MCPServers()
			if err != nil {
				a.Hint(err.Error())
			}
			var keys []string
			for _, e := range entries {
				if e.Name == args[0] && e.Err == nil {
					keys = append(keys, e.Server.Key(""))
				}
			}
			if len(keys) == 0 {
				return console.Missing("no MCP server "+args[0], "see `drover mcp list`")
			}
			if err := a.Root.Ensure(); err != nil {
				return err
			}
			known, err := mcpconfig.PinsAt(mcpconfig.PinsFile(a.Root.Dir())).Forget(keys)
			if err == nil && known {
				fmt.Fprintf(a.Stdout, "The tools of %s are accepted as they are at their next use.\n", args[0])
			} else if err == nil {
				fmt.Fprintf(a.Stdout, "No tool of %s has been used yet.\n", args[0])
			}
			return err
		},
	}
}

// mcpRow is one server of `drover mcp list`.
type mcpRow struct {
	Name    string   `json:"name"`
	Scope   string   `json:"scope"`
	Path    string   `json:"path"`
	Command []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	Status  string   `json:"status"` // connected, failed, waits for trust, disabled, hidden, invalid
	Error   string   `json:"error,omitempty"`
	About   string   `json:"server,omitempty"` // as it calls itself
	Tools   []string `json:"tools,omitempty"`
	Shadows string   `json:"shadows,omitempty"`
}

func (a *app) mcpListCommand() *cobra.Command {
	var asJSON, quick bool
	cmd := &cobra.Command{
		Use:   "list [--json] [--no-connect]",
		Short: "List the MCP servers, their status and their tools", RunE: func(cmd *cobra.Command, _ []string) error {
			return a.mcpList(cmd.Context(), asJSON, quick, a.Stdout)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&quick, "no-connect", false, "do not start or connect to the servers")
	return cmd
}

func (a *app) mcpList(ctx context.Context, asJSON, quick bool, out io.Writer) error {
	entries, bad := a.MCPServers()
	if bad != nil {
		a.Hint(strings.ReplaceAll(bad.Error(), "\n", "; "))
	}
	rows := make([]mcpRow, len(entries))
	for i, e := range entries {
		rows[i] = mcpRow{Name: e.Name, Scope: string(e.Scope), Path: e.Path, URL: e.Plain.URL, Shadows: e.Shadows}
		if e.Plain.Command != "" {
			rows[i].Command = append([]string{e.Plain.Command}, e.Plain.Args...)
		}
		switch {
		case e.Disabled:
			rows[i].Status = "disabled"
		case e.Waits:
			rows[i].Status = "waits for trust"
		case e.Err != nil:
			rows[i].Status, rows[i].Error = "invalid", e.Err.Error()
		case e.Hidden:
			rows[i].Status = "hidden"
		}
	}
	if !quick {
		if err := a.mcpReach(ctx, entries, rows); err != nil {
			return err
		}
	}
	if asJSON {
		return console.PrintJSON(out, rows)
	}
	return a.showServers(out, rows)
}

// mcpReach connects to all servers that agents would get.
func (a *app) mcpReach(ctx context.Context, entries []mcpconfig.Entry, rows []mcpRow) error {
	set, err := a.Settings("")
	if err != nil {
		return err
	}
	for i, r := range a.ReachMCP(ctx, set, entries) {
		switch {
		case !entries[i].Usable():
		case r.Err != nil:
			rows[i].Status, rows[i].Error = "failed", r.Err.Error()
		default:
			rows[i].Status, rows[i].About, rows[i].Tools = "connected", r.About, r.Tools
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (a *app) showServers(out io.Writer, rows []mcpRow) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No MCP servers. Add one with `drover mcp add`.")
		return err
	}
	lines := [][]string{{"NAME", "FROM", "STATUS", "TOOLS", "WHAT"}}
	for _, r := range rows {
		tools := "-"
		if r.Status == "connected" {
			tools = fmt.Sprint(len(r.Tools))
		}
		lines = append(lines, []string{excerpt.Line(r.Name, 40), r.Scope, cmp.Or(r.Status, "-"), tools,
			excerpt.Line(cmp.Or(r.URL, strings.Join(r.Command, " ")), 80)})
	}
	if err := a.Table(lines, console.ByState(lines, "STATUS")); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Error != "" {
			fmt.Fprintf(out, "%s: %s\n", excerpt.Line(r.Name, 40), excerpt.Line(r.Error, 500))
		}
		if r.Shadows != "" && r.Status != "waits for trust" {
			fmt.Fprintf(out, "%s takes the place of yours in %s: calls of its tools are asked about\n", excerpt.Line(r.Name, 40),
				r.Shadows)
		}
	}
	return nil
}
