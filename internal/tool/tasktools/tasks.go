package tasktools

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// Tasks is what the tools can do with tasks. A ref is an ID, a prefix of an ID
// that is unique in the session, or a name. A method that knows no task by a
// ref returns [ErrUnknown]. A [toolkit.Refusal] is told to the model; another error is
// a failure of the runtime. All methods may be called by several goroutines.
type Tasks interface {
	// Agent starts an agent. In the foreground it returns at the end, or when
	// the agent was moved to the background; else once it is durably recorded.
	Agent(ctx context.Context, r AgentRequest) (AgentOutcome, error)
	// Find returns a task as it is now.
	Find(ctx context.Context, ref string) (task.Record, error)
	// Wait returns when the task has ended or rests, or as it is when the time is
	// up.
	Wait(ctx context.Context, ref string, timeout time.Duration) (rec task.Record, timedOut bool, err error)
	// Text is the final answer of an agent that has ended, else the end of the
	// output so far, as it is in the file.
	Text(ctx context.Context, rec task.Record) (string, error)
	// Stop ends a task and returns when it is gone. Stopping what has ended
	// changes nothing and is no error.
	Stop(ctx context.Context, ref string) (task.Record, task.Receipt, error)
}

// AgentRequest starts an agent.
type AgentRequest struct {
	Description    string
	Prompt         string
	Type           string // empty only with Resume: the type it had
	Name           string
	Model          string
	Resume         string // ref of an agent that has ended
	MaxTurns       int    // 0: the definition's
	PermissionMode string // one of [PermissionModes], or empty
	Background     bool
	ToolUseID      string
	Isolation      string // worktree, remote, or empty
	On             string // a worker or a label; empty: as its definition says
	Team           string // of a teammate called Name; empty: it is none
}

// AgentOutcome is what became of an [AgentRequest].
type AgentOutcome struct {
	Task         task.Record
	Text         string // the report, of an agent that has ended
	Note         string // for the model, such as a place in a queue
	Backgrounded bool   // it goes on
	Told         string // how the promise to tell of its end goes on
}

// ErrUnknown is returned for a ref that names no task.
var ErrUnknown = errors.New("unknown task_id")

// Config is what the tools need. Tasks is required.
type Config struct {
	Tasks       Tasks
	OutputLimit int  // code points of output shown to the model; 0: [excerpt.DefaultLimit]
	Remote      bool // agents can work elsewhere
	Workers     bool // agents can work at workers
	Solo        bool // the caller sends no messages, so that it has no team
}

// New makes the tools Agent, TaskOutput and TaskStop, in this order. They keep
// no state.
func New(c Config) []agent.Tool {
	if c.OutputLimit == 0 {
		c.OutputLimit = excerpt.DefaultLimit
	}
	return []agent.Tool{newAgent(c), newOutput(c), newStop(c)}
}

// failed sorts an error: what the model may correct becomes a result, without
// the name of the tool before it.
func failed(tool, ref string, err error) (agent.Output, error) {
	var refused *toolkit.Refusal
	switch {
	case errors.Is(err, ErrUnknown):
		return agent.Refuse("unknown task_id: " + excerpt.Line(excerpt.Visible(ref), 80)), nil
	case errors.As(err, &refused):
		return agent.Refuse(refused.Text), nil
	}
	return agent.Output{}, &callError{tool: tool, err: err}
}

// callError is a failure of the runtime in a tool.
type callError struct {
	tool string
	err  error
}

func (e *callError) Error() string { return e.tool + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// maxRef is longer than any ID or name.
const maxRef = 128

// checkRef refuses text that can be neither an ID nor a name before anybody
// makes a path of it.
func checkRef(ref string) error {
	bad := func(r rune) bool { return r == '/' || r == '\\' || r == utf8.RuneError || unicode.IsControl(r) }
	if ref == "" || len(ref) > maxRef || strings.ContainsFunc(ref, bad) || strings.Contains(ref, "..") {
		return ErrUnknown
	}
	return nil
}
