package main

import (
	"context"
	"errors"
	"sync"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/mcp/mcpauth"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/steps"
)

// Gate decides by these rules, or by those of a session in the folder.
func (b *backend) Gate(r policy.Rules, own bool) (*policy.Gate, []string, error) {
	if !own {
		return environment.NewGate(r, nil)
	}
	set, err := b.Settings("")
	if err != nil {
		return nil, nil, err
	}
	sandboxed := sync.OnceValue(func() bool {
		box := sandboxes.New(b.sandbox(set))
		defer box.Close()
		return box.Auto("")
	})
	r = environment.Bind(assemble.Rules(assemble.Config{Root: b.root, Folder: r.Cwd, Env: b.env, Settings: set}),
		r.Cwd, environment.UsualTools(r.Cwd), sandboxed)
	r.Headless = true
	return environment.NewGate(r, set.Permissions.Foreign)
}

// sandbox is that of a session in the folder, which hides what Drover stores.
func (b *backend) sandbox(set settings.Settings) sandboxes.Config {
	c := assemble.Sandbox(b.opening(session.RoleRun, "", set))
	c.Hidden = append(c.Hidden, b.root.Dir())
	return c
}

// AgentServer is the server of agents that the settings name.
func (b *backend) AgentServer(set settings.Settings) catalog.Server {
	return assemble.AgentServer(assemble.Config{Root: b.root, Env: b.env, Settings: set})
}

// Ready are the providers of models that can be asked.
func (b *backend) Ready(set settings.Settings) []string {
	return provider.Ready(home.Lookup(assemble.Environ(b.env, set)))
}

// ReadWorkflow reads a file of a workflow.
func (b *backend) ReadWorkflow(path string) ([]byte, error) { return steps.Read(path) }

// Waiting returns what judges whether the end of an output waits for an answer.
func (b *backend) Waiting() func([]byte) bool {
	rules := stall.New()
	return func(tail []byte) bool {
		_, waiting := rules.Waiting(tail)
		return waiting
	}
}

// MCPServers are the MCP servers of the folder and its user.
func (b *backend) MCPServers() ([]mcpconfig.Entry, error) {
	set, wrong := b.Settings("") // they name plugins
	found, err := assemble.MCPServers(
		assemble.Config{Root: b.root, Folder: b.cwd, Env: b.env, Version: b.version, Settings: set})
	return found, errors.Join(wrong, err)
}

// ReachMCP connects to the servers that can be used, side by side. They have a keeper
// as in a session: nothing of them outlives this process.
func (b *backend) ReachMCP(ctx context.Context, set settings.Settings, entries []mcpconfig.Entry) []cli.Reached {
	link := keeper.Helper("mcp-list", b.helper())
	defer func() { _ = link.Close() }()
	pool := mcpclient.NewPool(
		mcpclient.Config{Version: b.version, Env: process.ChildEnv(b.env), Cwd: b.cwd, Ready: link.Ready,
			Roots: []string{b.cwd}, Samples: true, Token: mcpauth.At(b.root.Dir()).Token,
			FrameBytes: set.MCP.FrameBytes},
	)
	defer b.boundServers(pool, set)()
	defer pool.Close()
	out := make([]cli.Reached, len(entries))
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
func (b *backend) boundServers(pool *mcpclient.Pool, set settings.Settings) (closed func()) {
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

func reach(ctx context.Context, pool *mcpclient.Pool, e mcpconfig.Entry) (r cli.Reached) {
	lease, err := pool.Use(ctx, e.Name, e.Server)
	if err != nil {
		return cli.Reached{Err: err}
	}
	conn, err := lease.Conn(ctx) // the pool is closed in the end
	if err != nil {
		return cli.Reached{Err: err}
	}
	r.About = conn.About()
	for _, t := range conn.Tools() {
		if e.Server.Shows(t.Name) {
			r.Tools = append(r.Tools, t.Name)
		}
	}
	return r
}
