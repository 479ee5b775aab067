package agents

import (
	"sync"

	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/task"
)

// Caller is who requests something: the main agent, a subagent, or a client that is not an
// agent. It gives what it starts no more than its own.
type Caller struct {
	ID       task.ID   // of its task; of the session for the main agent; empty for a client
	Host     task.Host // of a subagent
	Cwd      string
	Env      []string
	Model    string
	Rules    policy.Rules
	Tools    []string // names of its tools; nil: all
	named    []string // the tools of its definition, which it may have; nil: it names none
	Spawns   []string // types of agents that it may start; nil: all
	barred   []string // tools of MCP servers that it may not use; see pattern
	byModel  bool     // a client that asks for an agent which is not of this session
	quote    bool     // the record of an agent that it starts says what that will likely use
	own      []servers.Server
	MaxTurns int
	Depth    int            // 0 for the main agent and for clients
	sandbox  sandboxes.Mode // of its commands, at least; empty: the mode of the session
	parent   task.ID        // of the agent that started it; empty: the main agent, or none
	inside   task.ID        // the isolated agent in whose checkout it works; empty: the folder of the session
	live     *live          // of the main agent
	teammate *teammate      // nil: it is not a teammate

	workspace *placement.Workspace // at a worker, where its tools act; nil: on this machine
}

// folders are those in which its commands write.
func (me Caller) folders() []string { return append([]string{me.Cwd}, me.Rules.Dirs...) }

// Granted has what the command of the newest prompt of the main agent allows and restricts. It
// applies until the next prompt of the user, also in turns that mail or a reminder begins. The
// zero value is ready; its methods may be called by several goroutines.
type Granted struct {
	mu          sync.Mutex
	allow, only []string // guarded by mu
}

// Set replaces the rules that allow, and those outside which nothing is allowed; nil: none.
func (g *Granted) Set(allow, only []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allow, g.only = allow, only
}

func (g *Granted) allowed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allow
}

func (g *Granted) restricted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.only
}
