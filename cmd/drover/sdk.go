package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/agentsdk"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/catalog"
)

// driver is the program that drives a session by the Agent SDK; nil: none.
type driver struct {
	conn   *agentsdk.Conn
	in     *agentsdk.Initialize
	asks   bool // it decides about permissions
	silent bool // it is asked nothing
}

// driven waits for what the program on stdin says of the session, and changes the prompt
// and the configuration so.
func (b prompts) driven(ctx context.Context, p *prompt.Prompt, cfg func() assemble.Config) (*driver,
	assemble.Config, error) {
	if p.Input != string(agentsdk.StreamJSON) {
		return nil, cfg(), nil
	}
	d := &driver{conn: agentsdk.Connect(os.Stdin, os.Stdout, b.stderr), asks: p.Decider != "" && !p.AsksNobody(),
		silent: p.AsksNobody()}
	in, err := d.conn.Initialize(ctx)
	if err != nil {
		return nil, assemble.Config{}, err
	}
	d.in = in
	if err := given(p, in); err != nil {
		d.conn.Refuse(in, err)
		return nil, assemble.Config{}, err
	}
	for _, name := range in.Unused() {
		b.note("initialize: " + name + " has no effect")
	}
	if p.AskTimeout == 0 && d.asks {
		p.AskTimeout = agentsdk.AskWait
	}
	c := cfg()
	if !d.silent {
		c.FormWait = agentsdk.AskWait
	}
	c.Title = cmp.Or(in.Title, c.Title)
	c.Skills = in.Skills
	c.Callbacks = in.Callbacks(d.conn)
	// Who decides about calls expects to be asked about each, unless it has set up the sandbox.
	c.Settings.Sandbox.AutoAllow = c.Settings.Sandbox.AutoAllow && (!d.asks || p.SandboxGiven)
	if c.Tools, err = in.Tools(ctx, d.conn); err != nil {
		d.conn.Refuse(in, err)
		return nil, assemble.Config{}, err
	}
	return d, c, nil
}

// given is the prompt with what the program says beside its flags.
func given(p *prompt.Prompt, in *agentsdk.Initialize) error {
	if text := string(in.JSONSchema); text != "" && text != "null" {
		p.Schema = text
	}
	for _, name := range p.ProgramServers {
		if !slices.Contains(in.Servers, name) {
			in.Servers = append(in.Servers, name)
		}
	}
	p.Disallowed = append(p.Disallowed, in.Disallowed...)
	for _, one := range in.Plugins {
		dir, err := filepath.Abs(one.Path)
		if one.Type != "local" || err != nil {
			return console.Usage(fmt.Sprintf("initialize: plugins: %.80q of type %.40q cannot be read", one.Path, one.Type),
				"give a folder, with the type local")
		}
		p.Plugins = append(p.Plugins, dir)
	}
	p.System = cmp.Or(in.Prompt(), p.System)
	p.AppendSystem = cmp.Or(in.AppendSystem, p.AppendSystem)
	if len(in.Agents) > 0 && string(in.Agents) != "null" {
		p.Agents = string(in.Agents)
		if _, _, err := catalog.ParseJSON("agents", in.Agents); err != nil {
			return console.Usage("initialize: "+err.Error(), "see docs/agents.md")
		}
	}
	if len(in.MCPServers) > 0 {
		text, err := json.Marshal(map[string]any{"mcpServers": in.MCPServers})
		if err != nil {
			return fmt.Errorf("initialize: mcpServers: %w", err)
		}
		p.MCP = append(p.MCP, string(text))
	}
	return nil
}

// drive does what the program asks for until it closes stdin. The program decides about permissions
// in the goroutine that asking counts, which ends with ctx.
func (a *answerer) drive(ctx context.Context, asking *sync.WaitGroup) error {
	info, err := a.s.Info(ctx)
	if err != nil {
		return err
	}
	d, mode := a.driver, cmp.Or(a.p.Mode, a.set.Permissions.DefaultMode)
	offer := agentsdk.Offer{Version: a.version, PID: os.Getpid(), Mode: mode}
	known := a.s.Catalog()
	for _, name := range known.Names() {
		if def, err := known.Find(name); err == nil {
			offer.Agents = append(offer.Agents, agentsdk.Agent{Name: name, Description: def.Description, Model: def.Model})
		}
	}
	if all, err := a.s.Commands(ctx); err == nil {
		for _, one := range all.Commands {
			if one.ShadowedBy == "" && !one.NotForPeople {
				offer.Commands = append(offer.Commands, agentsdk.Command{Name: one.Name, Description: one.Description,
					Argument: one.ArgumentHint})
			}
		}
	}
	offer.Models = append(offer.Models, agentsdk.Model{Value: a.m.Model(), Name: a.m.Model(),
		Description: "the model of this session"})
	d.conn.Answered(d.in, offer)
	driven := agentsdk.Driven{API: a.s, ID: info.Session, Decides: d.asks, Stream: a.out}
	asking.Go(func() { d.conn.Attend(ctx, driven, d.silent) })
	return d.conn.Serve(ctx, driven)
}

// readsState reports whether the program wants to be told when the main agent works.
func (b prompts) readsState() bool {
	return home.Lookup(b.env)("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1"
}

// servers are the MCP servers in the program.
func (d *driver) servers() []agentsdk.MCPServer {
	if d == nil {
		return nil
	}
	return d.conn.Servers()
}

// refuse tells the program why the session does not begin.
func (d *driver) refuse(why error) {
	if d != nil {
		d.conn.Refuse(d.in, why)
	}
}

// out is where the lines of a session go.
func (d *driver) out() io.Writer {
	if d == nil {
		return os.Stdout
	}
	return d.conn
}
