package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/mcpclient"
	"github.com/drover-dev/drover/internal/agentenv/mcpconfig"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// mcpList is the list of reminders about servers.
const mcpList = "mcp"

// MCP is the servers that agents of a session may use. The session closes the
// pool.
type MCP struct {
	Pool      *mcpclient.Pool
	Servers   []MCPServer     // of all agents whose definition names none
	Pins      *mcpconfig.Pins // nil: changes of tools are not noticed
	StartWait time.Duration   // that the start of an agent waits for its servers at most
	Tasks     string          // which tools run as tasks: required, always or off; empty: required
}

// MCPServer is one of them.
type MCPServer struct {
	Name    string
	Server  mcpclient.Server
	Shadows string // where the user's server of this name is, whose place it takes; empty: there is none

	added bool     // by a definition that has it in full: lists of tools of its parents do not speak of it
	only  []string // of an added one: what its definition lists of it; empty: all
}

// ServerEnv is what commands of servers get of an environment.
func ServerEnv(env []string) []string { return shell.ChildEnv(env) }

// MCPStatus is how a server stands for the main agent.
type MCPStatus struct {
	Name   string
	Status string // connected, pending or failed
}

// mcpUse is a server as one agent uses it.
type mcpUse struct {
	MCPServer
	lease *mcpclient.Lease
	late  bool // it was not there when the conversation began
}

// mcpTools begins to use the servers of the agent, and makes tools of those that
// are there within a short time. The tools of a conversation stay as they are
// then: a server that comes later is told of, and is for the agents after.
func (k *kit) mcpTools() []agent.Tool {
	s := k.me.s
	m := s.cfg.Agents.MCP
	if m == nil {
		return nil
	}
	for _, one := range k.me.servers() {
		if !k.me.wants(one) {
			continue
		}
		lease, err := m.Pool.Use(s.life, one.Name, one.Server)
		if err != nil {
			s.say(k.me.id, err.Error())
			continue
		}
		k.served = append(k.served, &mcpUse{MCPServer: one, lease: lease})
	}
	wait, done := context.WithTimeout(s.life, m.StartWait)
	defer done()
	var tools []agent.Tool
	names := map[string]bool{}
	for _, one := range k.served {
		conn, err := one.lease.Conn(wait)
		if one.late = err != nil; one.late {
			continue
		}
		for _, t := range k.me.shown(one, conn) {
			tool := k.mcpTool(one, t)
			if name := tool.Spec().Name; !names[name] { // two servers may be called alike but for odd characters
				names[name] = true
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

// leaveServers lets go of all servers.
func (k *kit) leaveServers() {
	for _, one := range k.served {
		one.lease.Release()
	}
}

// servers are those that an agent may use.
func (me self) servers() []MCPServer {
	if me.own != nil {
		return me.own
	}
	return me.s.cfg.Agents.MCP.Servers
}

// shown are the tools of a server that the agent has, by their names.
func (me self) shown(one *mcpUse, conn *mcpclient.Conn) []mcpclient.Tool {
	var out []mcpclient.Tool
	for _, t := range conn.Tools() {
		name := mcptool.Name(one.Name, t.Name)
		if one.Server.Shows(t.Name) && me.lists(one.MCPServer, name) && !coveredBy(me.barred, name) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b mcpclient.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// lists reports whether the tools of the agent have one of a server among them.
func (me self) lists(one MCPServer, name string) bool {
	if one.added {
		return len(one.only) == 0 || coveredBy(one.only, name)
	}
	return me.tools == nil || coveredBy(me.tools, name)
}

// wants reports whether the agent may have any tool of a server.
func (me self) wants(one MCPServer) bool {
	prefix := mcptool.Prefix + mcptool.ServerName(one.Name) + "__"
	if coveredBy(me.barred, prefix+"*") {
		return false
	}
	return one.added || me.tools == nil || slices.ContainsFunc(me.tools, func(t string) bool {
		return covers(t, prefix+"*") || strings.HasPrefix(pattern(t), prefix)
	})
}

func (k *kit) mcpTool(one *mcpUse, t mcpclient.Tool) agent.Tool {
	return mcptool.New(mcptool.Config{Server: one.Name, Tool: t, Limit: k.me.s.cfg.Limits.OutputChars, Spill: k.me.s.spill,
		Call: func(ctx context.Context, c agent.Call) (json.RawMessage, string, error) {
			return k.callServer(ctx, one, t, c)
		}})
}

// callServer is one call of a tool of a server.
func (k *kit) callServer(ctx context.Context, one *mcpUse, t mcpclient.Tool, c agent.Call) (json.RawMessage, string, error) {
	conn, err := one.lease.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := k.unchanged(ctx, one, conn, t, c); err != nil {
		return nil, "", err
	}
	args := c.Input
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if text, done, err := k.mcpTask(ctx, one.lease, conn, t.Name, c, args); done {
		return nil, text, err
	}
	defer conn.Serve("elicitation/create", k.elicited(one.Name))()
	raw, err := conn.CallOpt(ctx, "tools/call", map[string]any{"name": t.Name, "arguments": args}, mcpclient.CallOptions{Timeout: one.Server.Timeout()})
	return needsTask(conn, t.Name, raw, err)
}

// unchanged asks whether a tool may be called that is not what it was when the
// user first saw it.
func (k *kit) unchanged(ctx context.Context, one *mcpUse, conn *mcpclient.Conn, t mcpclient.Tool, c agent.Call) error {
	pins := k.me.s.cfg.Agents.MCP.Pins
	if pins == nil {
		return nil
	}
	for _, now := range conn.Tools() {
		if now.Name == t.Name {
			t = now
		}
	}
	distrust, key := "", one.Server.Key("")
	if one.Shadows != "" {
		distrust = fmt.Sprintf("the server %s of this folder takes the place of yours in %s", one.Name, one.Shadows)
	}
	changed, err := pins.Note(key, one.Name, []mcpclient.Tool{t}, distrust)
	if err != nil {
		return err
	}
	why := changed[t.Name]
	if why == "" {
		return nil
	}
	name := mcptool.Name(one.Name, t.Name)
	reply, err := k.ask(ctx, task.Question{Kind: task.Permission, Tool: name, Input: c.Input, Reason: why + " (" + excerpt.Line(t.Description, environment.AboutChars) + ")"})
	switch {
	case err != nil:
		return err
	case !reply.Allow:
		return &mcptool.Refusal{Text: fmt.Sprintf("%s was not called: %s, and that was not accepted: %s. The user can accept it with `drover mcp accept %s`.",
			name, why, cmp.Or(reply.Reason, "permission was denied"), quote([]string{one.Name}))}
	}
	return pins.Accept(key, one.Name, t)
}

// noticeTools remembers the tools of a server as the agent was shown them.
func (k *kit) noticeTools() {
	m := k.me.s.cfg.Agents.MCP
	for _, one := range k.served {
		conn, _ := one.lease.Peek()
		if one.late || conn == nil || m.Pins == nil || one.Shadows != "" {
			continue
		}
		changed, err := m.Pins.Note(one.Server.Key(""), one.Name, conn.Tools(), "")
		if err != nil {
			k.me.s.sayOnce(err.Error())
		}
		for tool, why := range changed {
			k.me.s.sayOnce(fmt.Sprintf("MCP server %s: tool %s is not as it was: %s; its calls are asked about (or run `drover mcp accept %s`)",
				one.Name, excerpt.Line(tool, 80), why, quote([]string{one.Name})))
		}
	}
}

// elicited answers a question of a server during a call. That of a task is not
// for the call.
func (k *kit) elicited(server string) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, params json.RawMessage) (any, error) {
		var p struct {
			Message string                     `json:"message"`
			Schema  json.RawMessage            `json:"requestedSchema"`
			Mode    string                     `json:"mode"`
			Meta    map[string]json.RawMessage `json:"_meta"`
		}
		if err := json.Unmarshal(params, &p); err != nil || p.Mode != "" && p.Mode != "form" {
			return nil, &mcpclient.RPCError{Code: mcpclient.CodeBadParams, Message: "only questions with a form are answered"}
		}
		if p.Meta["io.modelcontextprotocol/related-task"] != nil {
			return nil, mcpclient.ErrNotMine
		}
		input, err := json.Marshal(map[string]any{"message": p.Message, "schema": p.Schema})
		if err != nil {
			return nil, err
		}
		reply, err := k.ask(ctx, task.Question{Kind: task.Form, Tool: mcptool.Prefix + mcptool.ServerName(server), Input: input,
			Reason: "the MCP server " + server + " asks: " + excerpt.Line(p.Message, environment.AboutChars)})
		switch {
		case err != nil || !reply.Allow && k.me.s.cfg.Agents.AskWait <= 0:
			return map[string]string{"action": "cancel"}, nil
		case !reply.Allow:
			return map[string]string{"action": "decline"}, nil
		}
		return map[string]any{"action": "accept", "content": reply.Input}, nil
	}
}

// lateServers are the servers whose tools the conversation lacks, once that is
// known for good.
func (k *kit) lateServers() []environment.Item {
	var items []environment.Item
	for _, one := range k.served {
		conn, err := one.lease.Peek()
		switch name := excerpt.Line(one.Name, 80); {
		case !one.late:
		case conn != nil:
			items = append(items, environment.Item{Key: "late " + one.Name, Line: fmt.Sprintf("- %s is connected now. Its tools came too late for this conversation: agents that are started from now on have them.", name)})
		case err != nil:
			items = append(items, environment.Item{Key: "lost " + one.Name, Line: fmt.Sprintf("- %s cannot be used: %s", name, excerpt.Line(err.Error(), environment.AboutChars))})
		}
	}
	return items
}

// spill keeps a text that is too long for a model, and says where. The IDs of calls
// are those of one conversation: another may have the same.
func (s *Session) spill(id, text string) (string, error) {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
	path := filepath.Join(s.cfg.Place.Tasks(), "mcp-"+name[:min(len(name), 100)]+"-"+strings.ToLower(rand.Text()[:8])+".txt")
	if err := s.cfg.Place.Project().Root().WriteAtomic(path, []byte(text)); err != nil {
		return "", err
	}
	return path, nil
}

// Servers are those of the main agent, as they stand now.
func (m *Main) Servers() []MCPStatus {
	var out []MCPStatus
	for _, one := range m.kit.served {
		conn, err := one.lease.Peek()
		status := "pending"
		switch {
		case conn != nil:
			status = "connected"
		case err != nil:
			status = "failed"
		}
		out = append(out, MCPStatus{one.Name, status})
	}
	return out
}

// UseMCP uses a server of the session by its name. The caller releases it.
func (s *Session) UseMCP(ctx context.Context, name string) (*mcpclient.Lease, error) {
	m := s.cfg.Agents.MCP
	if m == nil {
		return nil, fmt.Errorf("MCP server %s: %w", name, fs.ErrNotExist)
	}
	for _, one := range m.Servers {
		if one.Name == name {
			return m.Pool.Use(ctx, name, one.Server)
		}
	}
	return nil, fmt.Errorf("MCP server %s is not configured, or waits for trust (see `drover mcp list`): %w", name, fs.ErrNotExist)
}

// ownServers are those that a definition names: by the name of a configured one,
// or in full. A nil list means that it names none, and its agents have what
// those have that start them.
func (s *Session) ownServers(def subagent.Definition, me self) []MCPServer {
	if len(def.MCPServers) == 0 || s.cfg.Agents.MCP == nil {
		return me.own
	}
	own := []MCPServer{}
	lookup := home.Lookup(me.env)
	for _, raw := range def.MCPServers {
		found, err := namedServers(raw, me.servers(), lookup)
		if err != nil {
			s.say(me.id, fmt.Sprintf("agent %s: %v", def.Name, err))
		}
		for _, one := range found {
			prefix := mcptool.Prefix + mcptool.ServerName(one.Name) + "__"
			for _, t := range def.Tools {
				if one.added && strings.HasPrefix(pattern(t), prefix) {
					one.only = append(one.only, t)
				}
			}
			if one.added && s.ofProject(def) && s.taken(one) {
				one.Shadows = "the configuration"
			}
			own = append(own, one)
		}
	}
	return own
}

// ofProject reports whether a definition is from a file of the folder.
func (s *Session) ofProject(def subagent.Definition) bool {
	rel, err := filepath.Rel(s.cfg.Info.Project, def.Source)
	return def.Source != "" && (err != nil || filepath.IsLocal(rel))
}

// taken reports whether rules for a configured server would hold for another.
func (s *Session) taken(one MCPServer) bool {
	return slices.ContainsFunc(s.cfg.Agents.MCP.Servers, func(other MCPServer) bool {
		return mcptool.ServerName(other.Name) == mcptool.ServerName(one.Name) && other.Server.Key("") != one.Server.Key("")
	})
}

// namedServers reads one element of mcpServers of a definition.
func namedServers(raw any, known []MCPServer, lookup func(string) string) ([]MCPServer, error) {
	find := func(name string, tools []string) ([]MCPServer, error) {
		for _, one := range known {
			if one.Name == name {
				if len(tools) > 0 {
					shown := slices.DeleteFunc(slices.Clone(tools), func(t string) bool { return !one.Server.Shows(t) })
					if len(shown) == 0 { // an empty list would be one of all
						return nil, fmt.Errorf("MCP server %q shows none of the tools %q", name, tools)
					}
					one.Server.AllowedTools = shown
				}
				return []MCPServer{one}, nil
			}
		}
		return nil, fmt.Errorf("there is no MCP server %q (see drover mcp list)", name)
	}
	if name, ok := raw.(string); ok {
		return find(name, nil)
	}
	data, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("mcpServers: %w", err)
	}
	var part struct {
		Name  string   `json:"serverName"`
		Tools []string `json:"tools"`
	}
	if json.Unmarshal(data, &part) == nil && part.Name != "" {
		return find(part.Name, part.Tools)
	}
	data, err = json.Marshal(map[string]json.RawMessage{"mcpServers": data})
	if err != nil {
		return nil, fmt.Errorf("mcpServers: %w", err)
	}
	entries, err := mcpconfig.Parse(data, lookup)
	var out []MCPServer
	errs := []error{err}
	for _, e := range entries {
		if e.Err != nil {
			errs = append(errs, fmt.Errorf("MCP server %s: %w", e.Name, e.Err))
		} else if !e.Disabled {
			out = append(out, MCPServer{Name: e.Name, Server: e.Server, added: true})
		}
	}
	return out, errors.Join(errs...)
}

// Tools of servers in lists of tools: mcp__server, mcp__server__* and mcp__* stand
// for many, and so does server/* of foreign files.

// pattern is an entry of such a list; one that ends in __ or is mcp__ stands for
// all that begin so.
func pattern(entry string) string {
	if server, tool, ok := strings.Cut(entry, "/"); ok && !strings.HasPrefix(entry, mcptool.Prefix) {
		if tool == "*" {
			return mcptool.Prefix + mcptool.ServerName(server) + "__"
		}
		return mcptool.Name(server, tool)
	}
	rest, ok := strings.CutPrefix(entry, mcptool.Prefix)
	switch {
	case !ok:
		return entry
	case !strings.Contains(rest, "__") && rest != "*":
		return entry + "__"
	}
	return strings.TrimSuffix(entry, "*")
}

// covers reports whether an entry stands for another, or for a tool.
func covers(entry, other string) bool {
	p, q := pattern(entry), pattern(other)
	return p == q || strings.HasPrefix(p, mcptool.Prefix) && strings.HasSuffix(p, "__") && strings.HasPrefix(q, p)
}

func coveredBy(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool { return covers(entry, name) })
}

// within is what is left of an entry of a child's list where its parent has a
// list too; a nil one has all.
func within(parent []string, entry string) []string {
	if parent == nil || slices.Contains(parent, entry) || coveredBy(parent, entry) {
		return []string{entry}
	}
	var out []string
	for _, p := range parent {
		if covers(entry, p) {
			out = append(out, p)
		}
	}
	return out
}

// bar adds what a definition forbids of servers.
func bar(barred, forbidden []string) []string {
	out := slices.Clone(barred)
	for _, f := range forbidden {
		if strings.HasPrefix(pattern(f), mcptool.Prefix) {
			out = append(out, f)
		}
	}
	return out
}

// shutServers ends all servers, when nobody is left who uses them.
func (s *Session) shutServers() {
	if s.cfg.Agents.MCP != nil {
		s.cfg.Agents.MCP.Pool.Close()
	}
}
