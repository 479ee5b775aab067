package main

import (
	"context"
	"errors"
	"sync"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/frontend/cli/agents"
	"github.com/drover-dev/drover/internal/mcp/mcpauth"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/trust"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/sandboxes"
)

// Gate decides by these rules, or by the rules of a session in the folder.
func (b surroundings) Gate(r policy.Rules, own bool) (*policy.Gate, []string, error) {
	if !own {
		return environment.NewGate(r, nil)
	}
	set, err := b.Settings("")
	if err != nil {
		return nil, nil, err
	}
	box := sandboxes.New(b.sandbox(set))
	defer box.Close()
	folder := r.Cwd
	r = assemble.Rules(assemble.Config{Config: bare.Config{Root: b.root, Folder: folder, Env: b.env, Settings: set}})
	r.Cwd, r.Tools, r.Bounds, r.Headless = folder, environment.UsualTools(folder), box.Bounds(""), true
	return environment.NewGate(r, set.Foreign)
}

// sandbox is the sandbox of a session in the folder. It hides the state of Drover.
func (b *folder) sandbox(set settings.Settings) sandboxes.Config {
	c := assemble.Sandbox(b.opening(session.RoleRun, "", set))
	c.Hidden = append(c.Hidden, b.root.Dir())
	return c
}

// Agents are the definitions of agents of the folder. Settings that cannot be read name no server:
// whoever needs them reports what is wrong with them.
func (b *folder) Agents(given string, fresh bool) *catalog.Files {
	get := home.Lookup(b.env)
	set, _, _ := settings.Load(settings.Find(get, b.cwd, ""))
	plugins, problems := catalog.Plugins(get, set.Plugins)
	c := catalog.Config{
		Places: catalog.Places(get, b.cwd, false, plugins),
		Trusted: func(folder string) bool {
			st, err := trust.At(b.root.TrustFile()).Check(folder)
			return err == nil && st.Trusted
		},
		Also:    []string{b.root.TrustFile()},
		Given:   []byte(given),
		Path:    get("PATH"),
		Earlier: problems,
	}
	server := assemble.AgentServer(assemble.Config{Config: bare.Config{Root: b.root, Env: b.env, Settings: set}})
	if c.Remote = server.Cached(); server.URL != "" && (fresh || c.Remote == nil) {
		got, err := catalog.Fetch(context.Background(), server)
		c.Remote = got.Data
		for _, wrong := range []error{err, got.Stale} {
			if wrong != nil {
				c.Earlier = append(c.Earlier, catalog.Problem{
					File: "remote catalog", Severity: catalog.Warning, What: wrong.Error(), Fix: "see the setting agents.catalog",
				})
			}
		}
	}
	return catalog.New(c)
}

// Ready are the providers of models that can be asked.
func (b *folder) Ready(set settings.Settings) []string {
	return provider.Ready(home.Lookup(assemble.Environ(b.env, set)))
}

// Waiting returns what judges whether the end of an output waits for an answer.
func (b doctor) Waiting() func([]byte) bool {
	rules := stall.New()
	return func(tail []byte) bool {
		_, waiting := rules.Waiting(tail)
		return waiting
	}
}

// MCPServers are the MCP servers of the folder and its user.
func (b surroundings) MCPServers() ([]mcpconfig.Entry, error) {
	set, wrong := b.Settings("") // they name plugins
	found, err := assemble.MCPServers(assemble.Config{
		Config: bare.Config{Root: b.root, Folder: b.cwd, Env: b.env, Version: b.version, Settings: set}})
	return found, errors.Join(wrong, err)
}

// ReachMCP connects to the servers that can be used, side by side. They have a keeper
// as in a session: nothing of them outlives this process.
func (b surroundings) ReachMCP(ctx context.Context, set settings.Settings, entries []mcpconfig.Entry) []agents.Reached {
	link := keeper.Helper("mcp-list", b.helper())
	defer func() { _ = link.Close() }()
	pool := mcpclient.NewPool(
		mcpclient.Config{Version: b.version, Env: process.ChildEnv(b.env), Cwd: b.cwd, Ready: link.Ready,
			Roots: []string{b.cwd}, Samples: true, Token: mcpauth.At(b.root.Dir()).Token,
			FrameBytes: set.MCP.FrameBytes},
	)
	defer b.boundServers(pool, set)()
	defer pool.Close()
	out := make([]agents.Reached, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		if e.Usable() {
			all.Go(func() { out[i] = reach(ctx, pool, e) })
		}
	}
	all.Wait()
	return out
}

// boundServers starts the servers of the folder in a sandbox, as a session does, though nobody is asked
// about hosts. The caller calls what it returns when they have ended.
func (b surroundings) boundServers(pool *mcpclient.Pool, set settings.Settings) (closed func()) {
	c := b.sandbox(set)
	c.Report = b.note
	box := sandboxes.New(c)
	pool.Bound(func(name string, _ mcpclient.Server) (process.Bounds, error) {
		start, err := box.Command(sandboxes.Wish{Folders: []string{b.cwd}, Line: name, Name: mcpclient.Outside + name})
		if err != nil || start.Fork == nil {
			return nil, err
		}
		return start, nil
	})
	return box.Close
}

func reach(ctx context.Context, pool *mcpclient.Pool, e mcpconfig.Entry) (r agents.Reached) {
	lease, err := pool.Use(ctx, e.Name, e.Server)
	if err != nil {
		return agents.Reached{Err: err}
	}
	conn, err := lease.Conn(ctx) // the pool is closed in the end
	if err != nil {
		return agents.Reached{Err: err}
	}
	r.About = conn.About()
	for _, t := range conn.Tools() {
		if e.Server.Shows(t.Name) {
			r.Tools = append(r.Tools, t.Name)
		}
	}
	return r
}
