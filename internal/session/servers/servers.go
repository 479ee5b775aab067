// Package servers has the MCP servers that agents of a session use.
//
// [Servers] owns the connections that agents, clients and monitors of one session share, and
// the subscriptions of resources over them; [Agent] has the servers of one agent, with their
// tools at the start of its conversation. The tools of a conversation never change, and a tool
// that has changed since the user first saw it is called only after an approval.
//
// The package does not read configuration, and does not poll tasks of servers; the driver does.
package servers

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
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Config configures the servers that agents of a session may use.
type Config struct {
	Pool      *mcpclient.Pool // closed by [Servers.Close]
	Servers   []Server        // of all agents whose definition names none
	Pins      *mcpconfig.Pins // nil: changes of tools are not detected
	StartWait time.Duration   // maximum wait for servers at the start of an agent
	FirstWait time.Duration   // the same for the first agent of the session
	Tasks     string          // which tools run as tasks; empty: [TasksRequired]
}

// Values of the mode in which tools of servers run as tasks.
const (
	TasksRequired = "required" // tools that require it
	TasksAlways   = "always"   // also tools that support it
	TasksOff      = "off"      // none: ordinary calls
)

// Server is one configured server.
type Server struct {
	Name    string
	Server  mcpclient.Server
	Shadows string // place of the user's server of this name, which this one replaces; empty: none

	added bool     // defined completely by a definition: tool lists of parents do not apply to it
	only  []string // of an added one: what its definition lists of it; empty: all
}

// Env returns the environment of server commands.
func Env(env []string) []string { return process.ChildEnv(env) }

// Servers are the MCP servers of a session. Its methods may be called by several goroutines.
type Servers struct {
	cfg   Config
	place home.Session
	life  context.Context // of waits for servers

	subscriptions subscriptions

	mu    sync.Mutex
	tasks map[string]mcpclient.Server // guarded by mu: servers at which tasks were created, by key
	users map[string][]*Agent         // guarded by mu: open agents by names of servers, the newest last
}

// New returns the servers of a session at a place. Waits for servers end with life. A nil cfg
// has no servers.
func New(life context.Context, cfg *Config, place home.Session) *Servers {
	s := &Servers{place: place, life: life, tasks: map[string]mcpclient.Server{}, users: map[string][]*Agent{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	return s
}

// Close ends all servers, when nothing uses them any more.
func (s *Servers) Close() {
	if s.cfg.Pool != nil {
		s.cfg.Pool.Close()
	}
}

// Find returns a configured server.
func (s *Servers) Find(name string) (mcpclient.Server, bool) {
	for _, one := range s.cfg.Servers {
		if one.Name == name {
			return one.Server, true
		}
	}
	return mcpclient.Server{}, false
}

// Use uses a configured server. The caller releases it.
func (s *Servers) Use(ctx context.Context, name string) (*mcpclient.Lease, error) {
	server, ok := s.Find(name)
	if s.cfg.Pool != nil && !ok {
		return nil, fmt.Errorf("MCP server %s is not configured, or waits for trust (see `drover mcp list`): %w", name,
			fs.ErrNotExist)
	}
	return s.Dial(ctx, name, server)
}

// Dial uses a server that need not be configured. The caller releases it.
func (s *Servers) Dial(ctx context.Context, name string, server mcpclient.Server) (*mcpclient.Lease, error) {
	if s.cfg.Pool == nil {
		return nil, fmt.Errorf("MCP server %s: %w", name, fs.ErrNotExist)
	}
	return s.cfg.Pool.Use(ctx, name, server)
}

// Access states which servers an agent may use, and which of their tools.
type Access struct {
	Tools  []string // names of the agent's tools, of all kinds; nil: all
	Barred []string // tools of servers that it may not use, by names and patterns
	Own    []Server // of its definition; nil: the servers of the session
}

// AgentConfig configures the servers of one agent.
type AgentConfig struct {
	Access     Access
	Ask        func(ctx context.Context, q task.Question) (task.Reply, error)
	Attended   bool              // questions can be answered
	First      bool              // it is the first agent of the session
	Report     func(text string) // messages for the user
	ReportOnce func(text string) // a message that is sent once for all agents
	Limit      int               // of a result, in characters
	// Sample asks the model of the agent, at the expense of its budget. nil: not possible.
	Sample func(ctx context.Context, s Sample) (*agent.Reply, error)
	// Reach decides whether a server in the sandbox may connect to a host; it may ask somebody. nil:
	// it may not.
	Reach func(ctx context.Context, host string, port int, server string) error
	// RunTask makes a call of a tool that runs as a task, and returns the text for the model.
	// made is the task if the server has made it already.
	RunTask func(ctx context.Context, l *mcpclient.Lease, tool string, c agent.Call,
		args json.RawMessage, made *mcpclient.TaskState) (text string, err error)
}

// Agent is the servers of one agent while its conversation is open.
type Agent struct {
	s      *Servers
	cfg    AgentConfig
	served []*use
	tools  []agent.Tool
}

// use is a server as one agent uses it.
type use struct {
	Server
	lease *mcpclient.Lease
	late  bool // it was not connected when the conversation began
}

// Tools returns the tools of the servers that were connected when the conversation began.
func (a *Agent) Tools() []agent.Tool { return a.tools }

// Open starts to use the servers of an agent, and creates the tools of those that connect
// within a short time. A server that connects later is reported, and its tools are for later
// agents; a server that fails is not waited for. The caller closes it.
func (s *Servers) Open(ctx context.Context, cfg AgentConfig) *Agent {
	a := &Agent{s: s, cfg: cfg}
	if s.cfg.Pool == nil {
		return a
	}
	for _, one := range cfg.Access.servers(s) {
		if !cfg.Access.wants(one) {
			continue
		}
		s.uses(a, one.Name)
		lease, err := s.cfg.Pool.Use(s.life, one.Name, one.Server)
		if err != nil {
			cfg.Report(err.Error())
			continue
		}
		a.served = append(a.served, &use{Server: one, lease: lease})
	}
	limit := s.cfg.StartWait
	if cfg.First {
		limit = s.cfg.FirstWait
	}
	wait, done := context.WithTimeout(ctx, limit)
	defer done()
	defer context.AfterFunc(s.life, done)()
	defer time.AfterFunc(sayWait, func() {
		if names := a.awaited(); len(names) > 0 {
			cfg.Report(fmt.Sprintf("waiting for MCP servers: %s (for %v at most)", strings.Join(names, ", "), limit))
		}
	}).Stop()
	names := map[string]bool{}
	for _, one := range a.served {
		conn, err := one.lease.Conn(wait)
		if one.late = err != nil; one.late {
			continue
		}
		for _, t := range cfg.Access.shown(one, conn) {
			tool := a.tool(one, t)
			if name := tool.Spec().Name; !names[name] { // two names may differ only in characters that are replaced
				names[name] = true
				a.tools = append(a.tools, tool)
			}
		}
	}
	if names := a.awaited(); len(names) > 0 && cfg.First && ctx.Err() == nil {
		cfg.Report(fmt.Sprintf("MCP servers that have not answered within %v: %s; this conversation lacks their tools "+
			"(MCP_TIMEOUT=60000 or the setting mcp.firstWait waits longer)", limit, strings.Join(names, ", ")))
	}
	a.tools = append(a.tools, a.resourceTools()...)
	a.noticeTools()
	return a
}

// sayWait is after how long the user reads which servers are waited for.
const sayWait = time.Second

// awaited are the servers of which it is not known yet whether they can be used.
func (a *Agent) awaited() (names []string) {
	for _, one := range a.served {
		if conn, err := one.lease.Peek(); conn == nil && err == nil {
			names = append(names, one.Name)
		}
	}
	return names
}

// uses notes that an agent begins to use a server.
func (s *Servers) uses(a *Agent, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[name] = append(s.users[name], a)
}

// Reach decides whether a server in the sandbox may connect to a host. The newest agent that uses
// it asks.
func (s *Servers) Reach(ctx context.Context, name, host string, port int) error {
	s.mu.Lock()
	users := s.users[name]
	var ask func(context.Context, string, int, string) error
	if len(users) > 0 {
		ask = users[len(users)-1].cfg.Reach
	}
	s.mu.Unlock()
	if ask == nil {
		return fmt.Errorf("no agent uses the server, and the setting sandbox.domains does not name it (add %s there)", host)
	}
	return ask(ctx, host, port, name)
}

// Close releases all servers.
func (a *Agent) Close() {
	a.s.mu.Lock()
	for name, users := range a.s.users {
		if users = slices.DeleteFunc(users, func(u *Agent) bool { return u == a }); len(users) == 0 {
			delete(a.s.users, name)
		} else {
			a.s.users[name] = users
		}
	}
	a.s.mu.Unlock()
	for _, one := range a.served {
		one.lease.Release()
	}
}

// servers returns those that an agent may use.
func (x Access) servers(s *Servers) []Server {
	if x.Own != nil {
		return x.Own
	}
	return s.cfg.Servers
}

// shown returns the tools of a server that the agent has, by their names.
func (x Access) shown(one *use, conn *mcpclient.Conn) []mcpclient.Tool {
	var out []mcpclient.Tool
	for _, t := range conn.Tools() {
		name := mcptool.Name(one.Name, t.Name)
		if one.Server.Server.Shows(t.Name) && x.lists(one.Server, name) && !environment.CoveredBy(x.Barred, name) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b mcpclient.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// lists reports whether the tool list of the agent has one of a server.
func (x Access) lists(one Server, name string) bool {
	if one.added {
		return len(one.only) == 0 || environment.CoveredBy(one.only, name)
	}
	return x.Tools == nil || environment.CoveredBy(x.Tools, name)
}

// wants reports whether the agent may have any tool of a server.
func (x Access) wants(one Server) bool {
	prefix := mcptool.Prefix + mcptool.ServerName(one.Name) + "__"
	if environment.CoveredBy(x.Barred, prefix+"*") {
		return false
	}
	return one.added || x.Tools == nil || slices.ContainsFunc(x.Tools, func(t string) bool {
		return environment.Covers(t, prefix+"*") || strings.HasPrefix(environment.Pattern(t), prefix)
	})
}

func (a *Agent) tool(one *use, t mcpclient.Tool) agent.Tool {
	return mcptool.New(mcptool.Config{Server: one.Name, Tool: t, Limit: a.cfg.Limit, Spill: a.s.spill,
		Call: func(ctx context.Context, c agent.Call) (json.RawMessage, string, error) {
			return a.call(ctx, one, t, c)
		}})
}

// call is one call of a tool of a server.
func (a *Agent) call(ctx context.Context, one *use, t mcpclient.Tool, c agent.Call) (json.RawMessage, string, error) {
	conn, err := one.lease.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := a.unchanged(ctx, one, conn, t, c); err != nil {
		return nil, "", err
	}
	args := c.Input
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if a.s.runsAsTask(conn, t.Name) {
		a.s.madeTask(one.lease)
		text, err := a.cfg.RunTask(ctx, one.lease, t.Name, c, args, nil)
		return nil, text, err
	}
	own, stop := a.answering(conn, one.Name)
	defer stop()
	defer a.tellRefused(conn, one.Name)
	params := map[string]any{"name": t.Name, "arguments": args}
	o := mcpclient.CallOptions{Timeout: one.Server.Server.Timeout(), Answer: own, Tasks: a.s.allowsTask(conn),
		Progress: reporting(ctx), Every: progressEvery}
	raw, err := conn.CallOpt(ctx, "tools/call", params, o)
	if a.visited(ctx, one.Name, err) {
		raw, err = conn.CallOpt(ctx, "tools/call", params, o)
	}
	if made, is, bad := mcpclient.MadeTask(raw); is && err == nil {
		stop()
		if bad == nil && !o.Tasks {
			bad = errors.New("the server has made a task of the call, which it was not asked for")
		}
		if bad != nil {
			return nil, "", bad
		}
		a.s.madeTask(one.lease)
		text, err := a.cfg.RunTask(ctx, one.lease, t.Name, c, args, &made)
		return nil, text, err
	}
	return needsTask(conn, t.Name, raw, err)
}

// tellRefused tells the user to which hosts the sandbox has not let a server through, each once.
func (a *Agent) tellRefused(conn *mcpclient.Conn, name string) {
	for _, why := range conn.Refused() {
		a.cfg.ReportOnce(fmt.Sprintf("MCP server %s in the sandbox: %s", name, why))
	}
}

// unchanged asks whether a tool may be called that has changed since the user first saw it.
func (a *Agent) unchanged(ctx context.Context, one *use, conn *mcpclient.Conn, t mcpclient.Tool, c agent.Call) error {
	pins := a.s.cfg.Pins
	if pins == nil {
		return nil
	}
	for _, now := range conn.Tools() {
		if now.Name == t.Name {
			t = now
		}
	}
	distrust, key := "", one.Server.Server.Key("")
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
	reply, err := a.cfg.Ask(ctx, task.Question{
		Kind:   task.Permission,
		Tool:   name,
		Input:  c.Input,
		Reason: why + " (" + excerpt.Line(t.Description, environment.AboutChars) + ")",
	})
	switch {
	case err != nil:
		return err
	case !reply.Allow:
		return &toolkit.Refusal{
			Text: fmt.Sprintf(
				"%s was not called: %s, and that was not accepted: %s. The user can accept it with `drover mcp accept %s`.",
				name,
				why,
				cmp.Or(reply.Reason, "permission was denied"),
				shell.Quote(one.Name),
			),
		}
	}
	return pins.Accept(key, one.Name, t)
}

// noticeTools stores the tools of a server as the agent was shown them.
func (a *Agent) noticeTools() {
	for _, one := range a.served {
		conn, _ := one.lease.Peek()
		if one.late || conn == nil || a.s.cfg.Pins == nil || one.Shadows != "" {
			continue
		}
		changed, err := a.s.cfg.Pins.Note(one.Server.Server.Key(""), one.Name, conn.Tools(), "")
		if err != nil {
			a.cfg.ReportOnce(err.Error())
		}
		for tool, why := range changed {
			a.cfg.ReportOnce(
				fmt.Sprintf(
					"MCP server %s: tool %s is not as it was: %s; its calls are asked about (or run `drover mcp accept %s`)",
					one.Name,
					excerpt.Line(tool, 80),
					why,
					shell.Quote(one.Name),
				),
			)
		}
	}
}

// Late are the servers whose tools the conversation lacks, once that is
// known for good.
func (a *Agent) Late() []environment.Item {
	var items []environment.Item
	for _, one := range a.served {
		conn, err := one.lease.Peek()
		switch name := excerpt.Line(one.Name, 80); {
		case !one.late:
		case conn != nil:
			items = append(items, environment.Item{
				Key: "late " + one.Name,
				Line: fmt.Sprintf(
					"- %s is connected now. Its tools came too late for this conversation: agents that are started from now on have them.",
					name,
				),
			})
		case err != nil:
			items = append(items, environment.Item{
				Key:  "lost " + one.Name,
				Line: fmt.Sprintf("- %s cannot be used: %s", name, excerpt.Line(err.Error(), environment.AboutChars)),
			})
		}
	}
	return items
}

// spill writes a text that is too long for a model to a file and returns the path. IDs of calls
// are unique only in one conversation.
func (s *Servers) spill(id, text string) (string, error) {
	path := filepath.Join(s.place.Tasks(), "mcp-"+plainName(id)+"-"+strings.ToLower(rand.Text()[:8])+".txt")
	if err := s.place.Project().Root().WriteAtomic(path, []byte(text)); err != nil {
		return "", err
	}
	return path, nil
}

// plainName is the ID of a call as part of the name of a file.
func plainName(id string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
	return name[:min(len(name), 100)]
}

// Own returns the servers that a definition names, by the name of a configured one or in full.
// A nil list means that it names none; its agents then have those of their starter: from, in
// the environment env.
func (s *Servers) Own(def subagent.Definition, from Access, env []string, report func(text string)) []Server {
	if len(def.MCPServers) == 0 || s.cfg.Pool == nil {
		return from.Own
	}
	own := []Server{}
	lookup := home.Lookup(env)
	for _, raw := range def.MCPServers {
		found, err := namedServers(raw, from.servers(s), lookup)
		if err != nil {
			report(fmt.Sprintf("agent %s: %v", def.Name, err))
		}
		for _, one := range found {
			prefix := mcptool.Prefix + mcptool.ServerName(one.Name) + "__"
			for _, t := range def.Tools {
				if one.added && strings.HasPrefix(environment.Pattern(t), prefix) {
					one.only = append(one.only, t)
				}
			}
			if one.added && s.OfProject(def) {
				one.Server.Bounded = true
				if s.taken(one) {
					one.Shadows = "the configuration"
				}
			}
			own = append(own, one)
		}
	}
	return own
}

// OfProject reports whether a definition is from a file of the folder. The paths of all files
// are absolute: a source that is none names a flag or a program of the user.
func (s *Servers) OfProject(def subagent.Definition) bool {
	rel, err := filepath.Rel(s.place.Project().Folder(), def.Source)
	return filepath.IsAbs(def.Source) && (err != nil || filepath.IsLocal(rel))
}

// taken reports whether rules for a configured server would apply to another.
func (s *Servers) taken(one Server) bool {
	return slices.ContainsFunc(s.cfg.Servers, func(other Server) bool {
		return mcptool.ServerName(other.Name) == mcptool.ServerName(one.Name) && other.Server.Key("") != one.Server.Key("")
	})
}

// namedServers parses one element of mcpServers of a definition.
func namedServers(raw any, known []Server, lookup func(string) string) ([]Server, error) {
	find := func(name string, tools []string) ([]Server, error) {
		for _, one := range known {
			if one.Name == name {
				if len(tools) > 0 {
					shown := slices.DeleteFunc(slices.Clone(tools), func(t string) bool { return !one.Server.Shows(t) })
					if len(shown) == 0 { // an empty list would mean all
						return nil, fmt.Errorf("MCP server %q shows none of the tools %q", name, tools)
					}
					one.Server.AllowedTools = shown
				}
				return []Server{one}, nil
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
	var out []Server
	errs := []error{err}
	for _, e := range entries {
		if e.Err != nil {
			errs = append(errs, fmt.Errorf("MCP server %s: %w", e.Name, e.Err))
		} else if !e.Disabled {
			out = append(out, Server{Name: e.Name, Server: e.Server, added: true})
		}
	}
	return out, errors.Join(errs...)
}

// Status is the state of a server for an agent.
type Status struct {
	Name   string
	Status string // connected, pending or failed
	Err    error  // why it is not connected; nil: it is, or nothing is known yet
	Tools  int    // that the agent has of it

	Bounded bool // it is a command of a project, which runs in the sandbox
}

// Status returns the current state of the agent's servers.
func (a *Agent) Status() []Status {
	var out []Status
	for _, one := range a.served {
		conn, err := one.lease.Peek()
		status := "pending"
		switch {
		case conn != nil:
			status = "connected"
		case err != nil:
			status = "failed"
		}
		tools := 0
		for _, t := range a.tools {
			if strings.HasPrefix(t.Spec().Name, mcptool.Prefix+mcptool.ServerName(one.Name)+"__") {
				tools++
			}
		}
		bounded := one.Server.Server.Bounded && one.Server.Server.Kind() == mcpclient.Stdio
		out = append(out, Status{one.Name, status, err, tools, bounded})
	}
	return out
}
