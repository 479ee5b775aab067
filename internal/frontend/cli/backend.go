package cli

import (
	"context"
	"io"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/mcp/mcpconfig"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/task"
)

// Backend is what the commands need beyond the API of a session. It belongs to a
// folder and its environment.
type Backend interface {
	sessions
	opener
	surroundings
	machines

	// At is the backend of the folder that a session belongs to, with that folder and
	// the environment there.
	At(s Session) (b Backend, folder string, env []string, err error)
	// ServeMCP serves tasks to one MCP client on stdin and stdout.
	ServeMCP(ctx context.Context) error
	// ServeMCPOverHTTP serves tasks to all MCP clients that have the token, and prints
	// where when it listens.
	ServeMCPOverHTTP(ctx context.Context, o MCPOverHTTP) error
	// ServeACP serves as an agent to one ACP client on stdin and stdout.
	ServeACP(ctx context.Context, o ACP) error
	// ServePage serves the page in a browser, and prints the link that opens it.
	ServePage(ctx context.Context, o Page) error
	// ServeA2A offers agents to others by the Agent2Agent protocol, and prints where.
	ServeA2A(ctx context.Context, o A2A) error
	// ServeRemote serves remote sessions, to whoever has the token.
	ServeRemote(ctx context.Context, listen, tokenEnv, token string) error
	// Demo gives the tour.
	Demo(ctx context.Context, out io.Writer, colour bool, width int) error
}

// sessions finds sessions, and changes what ended ones left.
type sessions interface {
	// Background is the project's detached session, started if need be. The
	// function lets go of it.
	Background(ctx context.Context) (control.API, func(), error)
	// Revive starts the detached host of each project that has schedules, parked agents or kept
	// commands, and no host.
	Revive(ctx context.Context) error
	// Known returns the sessions of the project, or of all projects: those
	// that live, and what the others left, newest first. With live, only those
	// that live.
	Known(ctx context.Context, live, all bool) ([]Session, error)
	// Remove deletes what an ended session left: the one in the folder of the info,
	// since its ID may be that of others, in other projects.
	Remove(ctx context.Context, of control.Info) error
	// MarkSeen records in what an ended session left that the user knows how tasks ended.
	MarkSeen(ctx context.Context, of control.Info, ids []task.ID) error
	// Discard removes an ended session whose log may be damaged, and says what could
	// not be looked at.
	Discard(ctx context.Context, of control.Info) (unseen string, err error)
	// RemoveOld removes the ended sessions of this project, or of all, that are older
	// than an age such as 30d; with an empty one, those that the settings do not keep.
	RemoveOld(ctx context.Context, age string, all bool) ([]Removal, error)
	// Repair makes the damaged log of an ended session anew; with force, of one too
	// whose format is not known.
	Repair(ctx context.Context, of control.Info, force bool) (Repair, error)
	// Export writes the conversation of a session's main agent. An error that wraps
	// [fs.ErrNotExist] says that there is none.
	Export(ctx context.Context, w io.Writer, of control.Info, form Form) error
	// Fork makes a new session with the conversation of another one so far, or before a prompt.
	Fork(from task.ID, req control.ForkRequest) (control.Forked, error)
}

// opener opens sessions.
type opener interface {
	// RunForeground runs a command in this process and returns when it has
	// ended. When ctx ends, the command is stopped.
	RunForeground(ctx context.Context, f Foreground) (task.Record, error)
	// Here opens a session in this process, gives its API to do, and closes it.
	Here(ctx context.Context, o Opening, do func(context.Context, control.API) error) error
	// Answer answers a prompt in this process and prints the answer. The session is a
	// new one if id is empty.
	Answer(ctx context.Context, p *Prompt, id task.ID) error
	// Record is Answer, and writes a recording of the run to w.
	Record(ctx context.Context, p *Prompt, w io.Writer) error
	// Replay plays a recording in a new session, and prints the answer.
	Replay(ctx context.Context, r Replay) error
	// Conversation finds the live host of a conversation, or starts a detached one
	// with what p says; started says which. The prompt of p is only given to a host
	// that is started.
	Conversation(ctx context.Context, p Prompt, id task.ID) (s Session, started bool, err error)
	// Screen shows the terminal UI until the user leaves it.
	Screen(ctx context.Context, s Screen) (Left, error)
}

// surroundings is what agents of the folder are given, as a session would read it.
type surroundings interface {
	// Settings are those of the folder, with those of a flag. What was passed over is
	// told on stderr, once.
	Settings(flag string) (settings.Settings, error)
	// Gate decides by these rules; with own, by those of a session in the folder
	// instead. The notes say which rules of other programs were left out.
	Gate(r policy.Rules, own bool) (g *policy.Gate, notes []string, err error)
	// AgentServer is the server of agents that the settings name; without one its URL
	// is empty.
	AgentServer(set settings.Settings) catalog.Server
	// MCPServers are the MCP servers of the folder and its user.
	MCPServers() ([]mcpconfig.Entry, error)
	// ReachMCP connects to the servers that can be used, and returns what became of
	// each, in their order.
	ReachMCP(ctx context.Context, set settings.Settings, entries []mcpconfig.Entry) []Reached
	// Ready are the providers of models that have a key, or an address that needs none.
	Ready(set settings.Settings) []string
	// Model looks whether the usual model can be used.
	Model() Finding
	// Repositories are the worktrees of the agents of all projects.
	Repositories() Repositories
	// ReadWorkflow reads a file of a workflow.
	ReadWorkflow(path string) ([]byte, error)
	// Waiting returns what judges whether the end of an output waits for an answer.
	Waiting() func(tail []byte) bool
	// Program is the path of this program, for whoever starts it later.
	Program() (string, error)
	// Doctor looks at the machine and the state folder.
	Doctor(ctx context.Context) []Finding
	// TryNotify sends a message by all ways by which the user is told of what needs them.
	TryNotify(ctx context.Context) ([]Sent, error)
	// TrySandbox tries each bound of the sandbox on this machine.
	TrySandbox(ctx context.Context) ([]SandboxCheck, error)
	// Seatbelt is the profile for sandbox-exec of macOS that bounds a command in the folder.
	Seatbelt() (string, error)
}

// Opening is how a session of this process is opened.
type Opening struct {
	Session    task.ID // empty: a new one
	Title      string
	Settings   string // of the flag --settings
	Answerable bool   // questions wait for somebody who watches; Ctrl-Z holds its commands
}

// Sent is what became of a message to the user.
type Sent struct {
	Channel string // the setting that names it
	Err     error
}

// Reached is what became of a connection to an MCP server.
type Reached struct {
	About string // the server as it calls itself
	Tools []string
	Err   error
}
