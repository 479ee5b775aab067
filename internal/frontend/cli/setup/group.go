// Package setup has the commands that set Drover up on a machine: first files, checks, the service
// of the user, completion scripts and the version.
package setup

import (
	"context"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// Doctor checks the machine and the state folder.
	Doctor(ctx context.Context) []console.Finding
	// TrySandbox tries each bound of the sandbox on this machine.
	TrySandbox(ctx context.Context) ([]SandboxCheck, error)
	// Seatbelt returns the profile for sandbox-exec of macOS that bounds a command in the folder.
	Seatbelt() (string, error)
	// Waiting returns a function that reports whether the end of an output waits for an answer.
	Waiting() func(tail []byte) bool
	// Revive starts the detached host of each project that has schedules, parked agents or kept
	// commands, and no host.
	Revive(ctx context.Context) error
}

// app is what these commands share.
type app struct {
	console.Console
	Outside
}

// Commands returns the commands of this package.
func Commands(c console.Console, out Outside) []console.Command {
	a := &app{c, out}
	return []console.Command{
		{Name: "init", Short: "Write a settings file and notes for agents in this folder", Make: a.initCommand},
		{Name: "doctor", Short: "Check the setup of this machine", Make: a.doctor},
		{Name: "service", Short: "Start the hosts of schedules and parked agents after a restart", Make: a.serviceCommand},
		{Name: "completion", Short: "Print the script that makes a shell complete: bash, zsh, fish or powershell",
			Make: a.completion},
		{Name: "version", Short: "Print the version", Make: a.version},
	}
}
