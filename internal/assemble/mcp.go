package assemble

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpauth"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/trust"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/internal/tool/mcptool"
)

// MCPServers reads which MCP servers a folder and its user have, in addition to the
// given ones.
func MCPServers(c Config) ([]mcpconfig.Entry, error) {
	get := home.Lookup(c.Env)
	files := mcpconfig.Files(get, c.Folder)
	files = slices.DeleteFunc(files, func(f mcpconfig.File) bool {
		return c.Isolated || c.GivenMCP || c.Skip.User && f.Scope == mcpconfig.User ||
			c.Skip.Project && f.Scope == mcpconfig.Project
	})
	if !c.Isolated && !c.GivenMCP {
		files = append(files, mcpconfig.PluginFiles(slices.DeleteFunc(plugins(c),
			func(dir string) bool { return slices.Contains(c.QuietPlugins, dir) }))...)
	}
	return mcpconfig.Read(mcpconfig.Input{
		Given:  c.MCP,
		Cwd:    c.Folder,
		Files:  files,
		Env:    get,
		Called: mcptool.ServerName,
		Trusted: func() bool {
			st, err := trust.At(c.Root.TrustFile()).Check(c.Folder)
			return err == nil && st.Trusted
		},
	})
}

// plugins are the folders of the user's plugins that are switched on.
func plugins(c Config) []string {
	dirs, _ := catalog.Plugins(c.Skip.Env(home.Lookup(c.Env)), c.Settings.Plugins)
	on, _ := catalog.Switched(dirs, c.Settings.PluginSwitches)
	return on
}

// servers is what agents have of MCP servers. Of those that cannot be used the
// user is told; those that were given must be there.
func (s *Session) servers(c Config, tell func(string, ...any)) (*servers.Config, error) {
	entries, err := MCPServers(c)
	if err != nil && len(c.MCP) > 0 {
		return nil, err
	}
	if err != nil {
		tell("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	m := &servers.Config{
		StartWait: c.Settings.MCP.StartWait,
		Tasks:     c.Settings.MCP.Tasks,
		Pins:      mcpconfig.PinsAt(mcpconfig.PinsFile(c.Root.Dir())),
	}
	if m.FirstWait = m.StartWait; c.Brief {
		m.FirstWait = c.Settings.MCP.FirstWait
		if ms, err := strconv.Atoi(home.Lookup(c.Env)("MCP_TIMEOUT")); err == nil && ms > 0 {
			m.FirstWait = time.Duration(ms) * time.Millisecond
		}
	}
	var waiting []string
	for _, e := range entries {
		switch {
		case e.Usable():
			m.Servers = append(m.Servers, servers.Server{Name: e.Name, Server: e.Server, Shadows: e.Shadows})
		case e.Waits:
			waiting = append(waiting, e.Name)
		case e.Err != nil && !e.Disabled && !e.Hidden:
			tell("MCP server %s of %s: %v", e.Name, e.Path, e.Err)
		}
	}
	if len(waiting) > 0 && !c.TrustNoted {
		tell("MCP servers of this folder wait for trust: %s (see `drover trust`)", strings.Join(waiting, ", "))
	}
	cfg := mcpclient.Config{Version: c.Version, Session: string(c.Session), Env: servers.Env(c.Env), Cwd: c.Folder,
		Roots: slices.Concat([]string{c.Folder}, c.Settings.Dirs), Samples: true,
		Token: mcpauth.At(c.Root.Dir()).Token,
		Idle:  c.Settings.MCP.IdleTimeout, Call: c.Settings.MCP.CallTimeout, FrameBytes: c.Settings.MCP.FrameBytes,
		Tell: func(server, text string) { tell("%s", fmt.Sprintf("MCP server %s: %s", server, text)) }}
	if s.Keeper != nil {
		cfg.Ready = s.Keeper.Ready
	}
	m.Pool = mcpclient.NewPool(cfg)
	s.pool = m.Pool
	return m, nil
}
