package acpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// maxRestarts is how often a process that has died is restarted in one run.
const maxRestarts = 3

// patience is how long an agent may take.
type patience struct {
	initialize time.Duration // includes the download of some programs
	open       time.Duration // of a session; loading one sends all its updates again
	cancel     time.Duration // of a turn
	leave      time.Duration // to exit after the end of its stdin
}

func usual() patience {
	return patience{initialize: time.Minute, open: 2 * time.Minute, cancel: 2 * time.Second, leave: 500 * time.Millisecond}
}

// Bounds is how a program starts.
type Bounds struct {
	Env  []string // complete except the marks of the process
	Fork func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error)
}

// Options say how an agent is run. Name, Args, Dir, Host, Bounds, Permit and Files are required.
type Options struct {
	Name string   // of the agent, for people
	Args []string // the program with its arguments
	// Protocol is the one of the vendor that the program speaks, of package headless; empty: ACP.
	Protocol string
	Dir      string // where it works, absolute
	Login    string // the command that signs the user in; empty: not known

	Host  task.Host
	Model string // empty: the agent's choice
	Mode  string // of the session; empty: the agent's choice

	Instructions string // before the first prompt of a new session
	Session      string // to continue; empty: a new one

	// Bounds is called before each start of the agent, with an empty command, and of each of its commands.
	Bounds func(command string) (Bounds, error)
	// Permit decides whether the agent may do something. It may wait for a person.
	Permit func(ctx context.Context, w Wanted) (agent.Decision, error)
	// Files reads and writes for the agent.
	Files Files
}

// Files reads and writes files for an agent. Errors are sent to the agent.
type Files interface {
	Read(ctx context.Context, path string) (string, error)
	Write(ctx context.Context, path, content string) error
}

// Agent is a running agent of another vendor. Reply is called by one goroutine at a time.
type Agent struct {
	cfg      Config
	patience patience
	self     process.Self

	o        Options // set by Open
	begun    bool    // the process was recorded
	restarts int

	mu      sync.Mutex // guards the fields below
	conn    *conn      // nil: no process
	ended   bool
	result  task.Result // signals, and processes that are left
	session string
	cost    *float64 // of the session in US dollars, as the agent last reported
	before  float64  // of it, the cost of earlier runs
	counted bool     // the agent has reported tokens
	used    int64    // tokens of its context
	fresh   bool     // the session does not know the conversation
}

// Open starts the agent and opens its session. The error says how to fix it.
func (a *Agent) Open(ctx context.Context, o Options) error {
	a.o, a.session = o, o.Session
	_, err := a.connected(ctx)
	return err
}

// Cost is the reported cost of the run in US dollars; known is false if the agent reports none.
func (a *Agent) Cost() (usd float64, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cost == nil {
		return 0, false
	}
	return max(0, *a.cost-a.before), true
}

// connected returns the connection to the agent, and starts the agent if it does not run.
func (a *Agent) connected(ctx context.Context) (*conn, error) {
	a.mu.Lock()
	c, session := a.conn, a.session
	a.mu.Unlock()
	if c != nil && c.life.Err() == nil {
		return c, nil
	}
	if c != nil {
		a.drop(ctx, c)
	}
	c, err := a.begin(ctx, session)
	// By a protocol of the vendor, the session is an argument of the program.
	if err != nil && c != nil && a.o.Protocol != "" && session != "" && ctx.Err() == nil {
		a.say("%s does not continue its session %.60q: %v", a.o.Name, session, err)
		a.drop(ctx, c)
		c, err = a.begin(ctx, "")
	}
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("agent %s: %w", a.o.Name, err)
}

// begin starts the program and opens a session. An error of the session comes with the connection.
func (a *Agent) begin(ctx context.Context, session string) (*conn, error) {
	c, err := a.launch(session)
	if err != nil {
		return nil, err
	}
	return c, c.open(ctx, session)
}

// drop ends a process and everything that it has started.
func (a *Agent) drop(ctx context.Context, c *conn) {
	c.close(ctx, 0, child.Grace)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == c {
		a.conn = nil
	}
}

// end ends the agent for good.
func (a *Agent) end(ctx context.Context, grace time.Duration) {
	a.mu.Lock()
	c := a.conn
	a.conn, a.ended = nil, true
	a.mu.Unlock()
	if c == nil {
		return
	}
	leave := a.patience.leave
	if ctx.Err() != nil {
		leave = 0
	} else {
		c.bye(ctx)
	}
	c.close(ctx, leave, grace)
}

// report adds signals and survivors to a result, and marks unreported tokens as unknown.
func (a *Agent) report(ctx context.Context, res *task.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		res.Signals = append(res.Signals, a.result.Signals...)
	}
	res.Left = append(res.Left, a.result.Left...)
	if res.Usage != nil {
		res.Usage.TokensUnknown = !a.counted
	}
}

// note adds the report of the end of a process.
func (a *Agent) note(id task.ID, r process.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	child.Note(&a.result, id, r)
}

// signal applies do to the process groups of the agent and of its commands.
func (a *Agent) signal(do func(process.Identity) error) error {
	a.mu.Lock()
	c := a.conn
	a.mu.Unlock()
	if c == nil {
		return nil
	}
	errs := []error{do(c.g.Identity())}
	for _, id := range c.terminals.groups() {
		errs = append(errs, do(id))
	}
	return errors.Join(errs...)
}

// say prints a line in brackets to the output of the task.
func (a *Agent) say(format string, args ...any) {
	_, _ = io.WriteString(a.o.Host.Output(), "\n["+fmt.Sprintf(format, args...)+"]\n")
}

// remember keeps the session for a later run.
func (a *Agent) remember(ctx context.Context, session string, fresh bool) error {
	a.mu.Lock()
	a.session, a.fresh = session, fresh
	a.mu.Unlock()
	state, err := json.Marshal(Checkpoint{V: 1, Session: session})
	if err != nil {
		return err
	}
	return a.o.Host.Checkpoint(ctx, state)
}

// Checkpoint is the state of a task for its next run.
type Checkpoint struct {
	V       int    `json:"v"`
	Session string `json:"session"`
}

// Earlier returns the session of an earlier run; empty: none, or of an unknown version.
func Earlier(r task.Record) string {
	var c Checkpoint
	if json.Unmarshal(r.Checkpoint, &c) != nil || c.V != 1 {
		return ""
	}
	return c.Session
}

// loginError says how to sign in.
func (a *Agent) loginError(methods []authMethod) error {
	var names []string
	for _, m := range methods {
		if name := strings.Join(strings.Fields(cmp.Or(m.Name, m.ID)), " "); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fix := "start it once by hand and sign in there"
	if a.o.Login != "" {
		fix = "run `" + a.o.Login + "`"
	}
	if len(names) > 0 {
		fix += "; it offers: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("login is missing (%s)", fix)
}
