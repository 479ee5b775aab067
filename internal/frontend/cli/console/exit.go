package console

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
)

// The exit codes, in addition to the codes of commands and 128+n for a signal.
const (
	CodeFailed    = 1
	CodeUsage     = 2
	codeNotFound  = 3
	codeStopped   = 4
	CodeTimedOut  = 124
	CodeDrover    = 125 // run and wait: Drover itself failed
	codeNoStart   = 127 // a command that could not be started, as shells have it
	CodeInterrupt = 130
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

// ExitCode is the exit code for an error of a command.
func ExitCode(ctx context.Context, err error) int {
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
		return CodeInterrupt
	case errors.As(err, &e):
		switch e.Code {
		case control.NotFound:
			return codeNotFound
		case control.Invalid, control.Ambiguous:
			return CodeUsage
		}
	}
	return CodeFailed
}

// Missing is the error of something that does not exist, with the exit code of that.
func Missing(what, fix string) error {
	return &control.Error{Code: control.NotFound, Message: what, Fix: fix}
}

// Conflict is the error of something that cannot be done now.
func Conflict(what, fix string) error {
	return &control.Error{Code: control.Conflict, Message: what, Fix: fix}
}

// Usage is an error of the arguments.
func Usage(what, fix string) error {
	return &control.Error{Code: control.Invalid, Message: what, Fix: fix}
}

// FlagError is the error of a flag of a command.
func FlagError(err error, command string) error {
	fix := "see `" + command + " --help`"
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return Usage(err.Error(), fix)
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint": "a whole number", "uint16": "a whole number",
		"float64": "a number", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return Usage(err.Error(), fix)
	}
	return Usage(fmt.Sprintf("--%s %q: not %s", bad.GetFlag().Name, bad.GetValue(), want), fix)
}

// DroverFailed gives an error of run and wait the code 125, which is not a code of the command, unless
// the arguments were wrong.
func DroverFailed(ctx context.Context, err error) error {
	switch ExitCode(ctx, err) {
	case CodeFailed, codeStopped, CodeTimedOut:
		return &ExitError{Code: CodeDrover, Err: err}
	}
	return err
}
