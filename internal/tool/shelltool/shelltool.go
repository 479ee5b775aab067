package shelltool

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// How long commands may run, in milliseconds.
const (
	DefaultTimeoutMS       = 120_000
	MaxTimeoutMS           = 600_000
	MaxBackgroundTimeoutMS = 7_200_000
)

// maxLineBytes is below what Linux takes as one argument, with room for the
// script around the line.
const maxLineBytes = 100_000

// Shells runs commands as tasks.
type Shells interface {
	// Run runs a command as a task. In the foreground it returns at the end, or
	// when the task was moved to the background. In the background it returns
	// once the task is durably recorded. The model gets a [toolkit.Refusal];
	// another error is a failure of the runtime.
	Run(ctx context.Context, c Command) (Outcome, error)
}

// Command is one command.
type Command struct {
	Line        string   // as the model wrote it, for display
	Args        []string // of the program to execute
	Cwd         string   // absolute
	Description string
	ToolUseID   string
	Timeout     time.Duration // 0: none
	Background  bool
	TTY         bool // it gets a terminal, into which SendMessage types
	Outside     bool // it is not started in the sandbox of the session
	ReportCwd   bool // the outcome says in which directory the command has ended
}

// Outcome is what became of a [Command].
type Outcome struct {
	Task         task.Record
	Output       string   // the end of the output, as it is in the file
	Backgrounded bool     // the task continues
	Unless       string   // the rest of the promise to report its end
	ByUser       bool     // a person moved it there
	TimedOut     bool     // the timeout passed: the task was moved or ended
	Refused      []string // why the sandbox did not let it connect to hosts
	Cwd          string   // with ReportCwd: where it has ended; empty: that is not known
}

// Config is what the tool needs. Shells and Root are required.
type Config struct {
	Shells Shells
	Root   string // absolute; where the first command runs
	// TempDir is an existing folder of the session for files that live as long
	// as one call. Empty: the working directory does not carry over.
	TempDir string
	// Functions: the environment of commands has functions or a script for bash, which may change
	// the directory under any name.
	Functions bool
	// Far: Root is on another machine, and commands carry their working directory themselves.
	Far         bool
	OutputLimit int    // code points shown to the model; 0: [excerpt.DefaultLimit]
	Bash        string // the shell; empty: bash on the PATH of the task
	Sandbox     bool   // commands run in a sandbox, and the model may ask to run one outside
}

// Result is the structured result of a call.
type Result struct {
	Stdout              string `json:"stdout"` // stderr too: a task has one output
	Stderr              string `json:"stderr"`
	Interrupted         bool   `json:"interrupted"` // somebody stopped it
	IsImage             bool   `json:"isImage"`
	Code                int    `json:"code"` // 0 while it runs; -1 for an end without a code
	TaskID              string `json:"taskId,omitempty"`
	BackgroundTaskID    string `json:"backgroundTaskId,omitempty"`
	BackgroundedByUser  bool   `json:"backgroundedByUser,omitempty"`
	TimedOutAfterMS     int64  `json:"timedOutAfterMs,omitempty"`
	OutputFile          string `json:"outputFile,omitempty"`
	PersistedOutputPath string `json:"persistedOutputPath,omitempty"` // set if stdout is not all of it
	PersistedOutputSize int64  `json:"persistedOutputSize,omitempty"` // bytes
}

//go:embed bash.md
var prompt string

type input struct {
	Command     string `json:"command" jsonschema:"The command line" input:"filled"`
	Timeout     int    `json:"timeout,omitempty" jsonschema:"Time limit in milliseconds" input:"minimum=0,maximum=7200000"`
	Description string `json:"description,omitempty" jsonschema:"What it does, in five to ten words, for the user"`
	Background  bool   `json:"run_in_background,omitempty" jsonschema:"Return at once"`
	TTY         bool   `json:"tty,omitempty" jsonschema:"Give it a terminal"`
}

// New makes the Bash tool of one agent.
func New(c Config) agent.Tool {
	if c.OutputLimit == 0 {
		c.OutputLimit = excerpt.DefaultLimit
	}
	if c.Bash == "" {
		c.Bash = "bash"
	}
	s := &shell{cfg: c, cwd: c.Root}
	text := fmt.Sprintf(prompt, DefaultTimeoutMS, MaxTimeoutMS, MaxBackgroundTimeoutMS)
	aliases := []string{"bash", "shell"}
	if c.Sandbox {
		s.Tool = toolkit.New(toolkit.Tool[boundedInput]{
			Name: "Bash", Description: text + bounded, Aliases: aliases,
			Call: func(ctx context.Context, c agent.Call, in boundedInput) (agent.Output, error) {
				if in.Outside && strings.TrimSpace(in.Why) == "" {
					return agent.Output{}, toolkit.Refusef(`field "why" says what the command needs outside of the sandbox`)
				}
				return s.run(ctx, c, in.input, in.Outside)
			},
		})
		return s
	}
	s.Tool = toolkit.New(toolkit.Tool[input]{
		Name: "Bash", Description: text, Aliases: aliases,
		Call: func(ctx context.Context, c agent.Call, in input) (agent.Output, error) {
			return s.run(ctx, c, in, false)
		},
	})
	return s
}

// bounded tells a model of the sandbox.
const bounded = `- Commands run in a sandbox: they write in the workspace, temporary folders and caches, read all but secrets, and reach hosts through a proxy that asks the user. Your later commands reach servers that you start at localhost. When a command needs more, the result says so: set ` + "`outside`" + ` with ` + "`why`" + `, and the user is asked.
`

// boundedInput is input with what only a sandbox knows.
type boundedInput struct {
	input
	Outside bool   `json:"outside,omitempty" jsonschema:"Run it outside of the sandbox"`
	Why     string `json:"why,omitempty" jsonschema:"What it needs outside, for the user"`
}

// shell is the tool, which is also asked for the working directory.
type shell struct {
	agent.Tool
	cfg Config

	mu  sync.Mutex
	cwd string // guarded by mu
}

// Aliases implements [agent.Aliased].
func (t *shell) Aliases() []string { return t.Tool.(agent.Aliased).Aliases() }

// Cwd is where the next foreground command runs.
func (t *shell) Cwd() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cwd
}

func (t *shell) run(ctx context.Context, c agent.Call, in input, outside bool) (agent.Output, error) {
	if err := in.check(); err != nil {
		return agent.Output{}, err
	}
	cwd, note := t.directory()
	timeout := in.Timeout
	if timeout == 0 && !in.Background {
		timeout = DefaultTimeoutMS
	}
	cmd := Command{
		Line:        in.Command,
		Args:        []string{t.cfg.Bash, "-c", in.Command},
		Cwd:         cwd,
		Description: excerpt.Line(in.Description, 200),
		ToolUseID:   c.ID,
		Timeout:     time.Duration(timeout) * time.Millisecond,
		Background:  in.Background,
		TTY:         in.TTY,
		Outside:     outside,
	}
	if cmd.Description == "" {
		cmd.Description = excerpt.Line(in.Command, 80)
	}
	var (
		out Outcome
		err error
	)
	if in.Background {
		out, err = t.cfg.Shells.Run(ctx, cmd)
	} else {
		out, err = t.foreground(ctx, cmd)
	}
	if err != nil {
		return agent.Output{}, fmt.Errorf("run command: %w", err)
	}
	res := render(out, cmd, t.cfg.OutputLimit)
	res.Text = note + res.Text
	return res, nil
}

// check refuses what the schema cannot.
func (in input) check() error {
	switch {
	case strings.ContainsRune(in.Command, 0):
		return toolkit.Refusef(`field "command" contains a NUL character`)
	case len(in.Command) > maxLineBytes:
		return toolkit.Refusef(`field "command" has %d bytes, more than %d: write it to a file and run that`,
			len(in.Command), maxLineBytes)
	case !in.Background && in.Timeout > MaxTimeoutMS:
		return toolkit.Refusef(`field "timeout" must be from 0 to %d, not %d in the foreground; `+
			`use run_in_background for more`, MaxTimeoutMS, in.Timeout)
	}
	return nil
}

// directory is where the next command runs, and what the model must be told
// about it.
func (t *shell) directory() (cwd, note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cfg.Far {
		return t.cwd, ""
	}
	there := func(dir string) bool { info, err := os.Stat(dir); return err == nil && info.IsDir() }
	if there(t.cwd) {
		return t.cwd, ""
	}
	gone := t.cwd
	for t.cwd = t.cfg.Root; !there(t.cwd) && t.cwd != filepath.Dir(t.cwd); {
		t.cwd = filepath.Dir(t.cwd) // the project was removed too
	}
	return t.cwd, fmt.Sprintf("Note: the working directory %s is gone; this command ran in %s.\n",
		excerpt.Visible(gone), t.cwd)
}

// foreground runs the command so that its last working directory is known afterwards.
func (t *shell) foreground(ctx context.Context, cmd Command) (Outcome, error) {
	if t.cfg.Far {
		cmd.ReportCwd = true
		out, err := t.cfg.Shells.Run(ctx, cmd)
		if err == nil && !out.Backgrounded {
			t.move(out.Cwd)
		}
		return out, err
	}
	if t.cfg.TempDir == "" || !t.cfg.Functions && !moves(cmd.Line) {
		return t.cfg.Shells.Run(ctx, cmd)
	}
	c, err := NewCwdFile(t.cfg.TempDir)
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	cmd.Args = []string{t.cfg.Bash, "-c", c.Script(cmd.Line)}
	out, err := t.cfg.Shells.Run(ctx, cmd)
	if err != nil || out.Backgrounded {
		return out, err
	}
	t.move(c.Dir())
	return out, nil
}

// move makes a directory the one of the next command; empty: it stays.
func (t *shell) move(dir string) {
	if dir == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cwd = dir
}

// quote makes a word for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
