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
// ref returns [ErrUnknown]. The model gets a [toolkit.Refusal]; another error is
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
	// Stop ends a task and returns when it is gone. Stopping an ended task
	// changes nothing and returns no error.
	Stop(ctx context.Context, ref string) (task.Record, task.Receipt, error)
}

// AgentRequest starts an agent. Its tags also describe the input of the tool Agent.
type AgentRequest struct {
	Description string `json:"description" jsonschema:"The work in three to five words, for the user" input:"filled"`
	Prompt      string `json:"prompt" jsonschema:"The whole task for the agent" input:"filled"`
	// Type is empty only with Resume: the type that the agent had.
	Type  string `json:"subagent_type,omitempty"`
	Name  string `json:"name,omitempty" jsonschema:"By which the agent can be addressed"`
	Model string `json:"model,omitempty" jsonschema:"Another model than the agent's own"`
	// Resume is the ref of an agent that has ended.
	Resume string `json:"resume,omitempty"`
	// MaxTurns is 0 for the number of the definition.
	MaxTurns int `json:"max_turns,omitempty" input:"minimum=1,maximum=1000"`
	// PermissionMode is one of [PermissionModes], or empty.
	PermissionMode string `json:"permission_mode,omitempty" jsonschema:"Never wider than yours" input:"enum=default|acceptEdits|plan|dontAsk|bypassPermissions|auto"`
	// Isolation is worktree, remote, or empty.
	Isolation string `json:"isolation,omitempty" jsonschema:"worktree: its own copy of the repository" input:"enum=worktree|remote"`
	// On is a worker or a label; empty: as the definition says.
	On string `json:"on,omitempty" jsonschema:"A worker, a label, or auto: it works on another machine, on a copy of the folder, and its changes come back as a commit" input:"unlisted"`
	// Team is the team of a teammate called Name; empty: the agent is not a teammate.
	Team string `json:"team_name,omitempty"`

	Background bool   `json:"-"`
	ToolUseID  string `json:"-"`
}

// AgentOutcome is what became of an [AgentRequest].
type AgentOutcome struct {
	Task         task.Record
	Text         string // the report, of an agent that has ended
	Note         string // for the model, such as a place in a queue
	Backgrounded bool   // it continues
	Unless       string // the rest of the promise to report its end
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
