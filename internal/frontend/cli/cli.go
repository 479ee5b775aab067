// Package cli is the command line: it turns arguments into calls of a session's
// [control.API] and answers into text, JSON and exit codes.
//
// It promises the exit codes of [Execute], stdout for results and nothing else,
// and that no byte of a task reaches a terminal alive unless --raw asks for it.
// It knows no engine: sessions are found and opened by [Backend]. All commands are
// here; help.go has their groups, their examples and the words of other programs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Deps is the world around the command line.
type Deps struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string // handed to the tasks that are started
	Cwd            string   // absolute
	Version        string
	Root           home.Root // the state directory
	Backend

	// OnInterrupt lets a function have the next INT, and no other; nil: there are none.
	OnInterrupt func(context.Context, func())
	IsTerminal  func(io.Writer) bool // nil: nothing is a terminal
	Columns     func() int           // of the terminal on stdout; 0: there is none. nil: that
	Now         func() time.Time     // nil: time.Now

	OpenTerminal func() (*Terminal, error) // gives a command the terminal on stdin and stdout; nil: there is none
}

// Session is one session, live or not.
type Session interface {
	// Info tells what is known without opening it.
	Info() control.Info
	// Open connects to a live session, or reads what a dead one left. The
	// function lets go of it.
	// A live one whose host stands still is read too: it would not answer.
	Open(ctx context.Context) (control.API, func(), error)
	// Reach is Open for who waits until such a host goes on.
	Reach(ctx context.Context) (control.API, func(), error)
	// Wake lets such a host go on. done, with again, makes it stand still again.
	Wake() (done func(again bool), err error)
	// Gone waits until a host that takes nothing any more listens no more; false
	// says that it still does after a while.
	Gone(ctx context.Context) bool
	// Revive is [Sessions.Background] of the session's own project.
	Revive(ctx context.Context) (control.API, func(), error)
}

// Foreground is a command that runs in this process.
type Foreground struct {
	Request        control.StartRequest
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Finding is one thing that the doctor looked at.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // how to fix it
}

// Level says how bad a [Finding] is.
type Level string

// The levels. Bad makes `drover doctor` fail.
const (
	Good Level = "ok"
	Warn Level = "warning"
	Bad  Level = "error"
)

// The exit codes. A command's own code and 128+n for a signal come beside them.
const (
	codeFailed    = 1
	codeUsage     = 2
	codeNotFound  = 3
	codeStopped   = 4
	codeTimedOut  = 124
	codeDrover    = 125 // run and wait: it was Drover that failed
	codeNoStart   = 127 // a command that could not be started, as shells have it
	codeInterrupt = 130
)

// ExitError ends the program with a code. Err is printed if it is not nil. As
// the cause of the context of [Execute], it sets the code of an interrupted
// program.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

func (e *ExitError) Unwrap() error { return e.Err }

// app is what the commands share.
type app struct {
	Deps
	from string // where the user is, if Cwd is the folder of a session elsewhere
}

// filled has a value for what may be nil.
func (d Deps) filled() Deps {
	if d.IsTerminal == nil {
		d.IsTerminal = func(io.Writer) bool { return false }
	}
	if d.Columns == nil {
		d.Columns = func() int { return 0 }
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

// Command is what the words after `drover` ask for: a prompt, a conversation to go on
// with, or one of the commands of [New].
func Command(d Deps, args []string) *cobra.Command {
	a := &app{Deps: d.filled()}
	completes := len(args) > 1 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)
	switch {
	case namesNoSession(args):
		return a.resumableCommand()
	case isPrompt(args), completes && (isPrompt(args[1:]) || strings.HasPrefix(args[1], "-")):
		return a.promptCommand()
	case isResume(args):
		return a.resumeCommand()
	}
	return New(d)
}

// New builds the command `drover`. It does no I/O.
func New(d Deps) *cobra.Command {
	a := &app{Deps: d.filled()}
	root := &cobra.Command{
		Use:           "drover",
		Short:         "Run, watch and steer the background work of coding agents",
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		Args:                       noSuchCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(d.Stdin)
	root.SetOut(d.Stdout)
	root.SetErr(d.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return flagError(err, cmd.CommandPath())
	})
	root.AddCommand(a.run(), a.ps(), a.logs(), a.attach(), a.top(), a.result(), a.inspect(), a.wait(), a.stop(),
		a.promote(), a.send(), a.pause(), a.resume(), a.approvals(), a.attention(), a.configure(), a.forward(),
		a.sessions(), a.fork(), a.record(), a.replay(),
		a.doctor(), a.version(), a.mcp(), a.acp(), a.serve(), a.hub(), a.worker(), a.workers(), a.drain(),
		a.agentCommand(), a.monitorCommand(),
		a.agentsCommand(),
		a.demo(),
		a.commandsCommand(), a.skillsCommand(),
		a.permissionsCommand(), a.statsCommand(),
		a.trustCommand(), a.todoCommand(), a.remoteCommand(), a.teleportCommand(), a.memoryCommand(), a.workflowCommand(),
		a.competeCommand(),
		a.diff(),
		a.merge(),
		a.initCommand(), a.modelsCommand(), a.scheduleCommand(), a.serviceCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(a.completion(root))
	a.root(root)
	arrange(root)
	return root
}

// Execute runs cmd, prints its error as one line on stderr, and returns the
// exit code: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 stopped, 124 timed
// out; of run and wait the command's own, 128+n for a signal, and 125 when
// Drover itself fails. A reader of stdout that went away is no failure.
func Execute(ctx context.Context, cmd *cobra.Command, stderr io.Writer) int {
	err := cmd.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	var exit *ExitError
	switch {
	case code == 0, ctx.Err() != nil && errors.Is(err, context.Cause(ctx)), errors.Is(err, context.Canceled):
		return code
	case errors.As(err, &exit):
		if exit.Err == nil {
			return code
		}
		err = exit.Err
	}
	fmt.Fprintf(stderr, "drover: %s\n", excerpt.Line(err.Error(), 2000))
	return code
}

func exitCode(ctx context.Context, err error) int {
	var exit *ExitError
	var e *control.Error
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return 0
	case errors.As(err, &exit):
		return exit.Code
	case ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())):
		if errors.As(context.Cause(ctx), &exit) {
			return exit.Code
		}
		return codeInterrupt
	case errors.As(err, &e):
		switch e.Code {
		case control.NotFound:
			return codeNotFound
		case control.Invalid, control.Ambiguous:
			return codeUsage
		}
	}
	return codeFailed
}

// usage is an error of the arguments.
func usage(what, fix string) error {
	return &control.Error{Code: control.Invalid, Message: what, Fix: fix}
}

// flagError is the error of a flag of a command.
func flagError(err error, command string) error {
	fix := "see `" + command + " --help`"
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return usage(err.Error(), fix)
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint": "a whole number", "uint16": "a whole number",
		"float64": "a number", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return usage(err.Error(), fix)
	}
	return usage(fmt.Sprintf("--%s %q: not %s", bad.GetFlag().Name, bad.GetValue(), want), fix)
}

// own gives the errors of run and wait a code that cannot be taken for one of
// the command: 125, unless it is the arguments that were wrong.
func own(ctx context.Context, err error) error {
	switch exitCode(ctx, err) {
	case codeFailed, codeStopped, codeTimedOut:
		return &ExitError{Code: codeDrover, Err: err}
	}
	return err
}

// takes counts the words of a command. Most below 0 is no bound.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		switch {
		case len(words) < least:
			return usage("an argument is missing", "usage: "+cmd.UseLine())
		case most >= 0 && len(words) > most && cmd.HasSubCommands():
			return usage(fmt.Sprintf("unknown command %q for %q", words[most], cmd.CommandPath()),
				"see `"+cmd.CommandPath()+" --help`")
		case most >= 0 && len(words) > most:
			return usage(fmt.Sprintf("unexpected argument %q", words[most]), "usage: "+cmd.UseLine())
		}
		return nil
	}
}

// note tells a person something beside the result.
func (a *app) note(format string, v ...any) {
	fmt.Fprintf(a.Stderr, "drover: %s\n", excerpt.Line(fmt.Sprintf(format, v...), 2000))
}

// hint tells a person something about the settings or the folder that is no error.
func (a *app) hint(text string) {
	fmt.Fprintf(a.Stderr, "drover: note: %s\n", excerpt.Line(text, 1000))
}

// maxTimeout is beyond any use, and far from overflow.
const maxTimeout = 365 * 24 * time.Hour

// duration reads a time such as 90s, 10m or 1h30m; a bare number is seconds.
func duration(flag, text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return 0, usage(fmt.Sprintf("%s %q: not a duration", flag, text), "write it as 90s, 10m or 1h30m")
	}
	if d < least || d > maxTimeout {
		return 0, usage(fmt.Sprintf("%s %s: out of range", flag, text),
			fmt.Sprintf("from %s to %s", least, strings.TrimSuffix(maxTimeout.String(), "0m0s")))
	}
	return d, nil
}
