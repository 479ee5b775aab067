// Package steer has the commands that change tasks which run: stop, pause, messages, answers to
// questions, and the settings of a live session.
package steer

import "github.com/drover-dev/drover/internal/frontend/cli/console"

// app is what these commands share.
type app struct{ console.Console }

// Commands returns the commands of this package.
func Commands(c console.Console) []console.Command {
	a := &app{c}
	return []console.Command{
		{Name: "stop", Short: "Stop tasks and everything below them, and print a receipt", Make: a.stop},
		{Name: "send", Short: "Send a message to an agent, or type into a command with a terminal", Make: a.send},
		{Name: "pause", Short: "Pause tasks and everything below them", Make: a.pause},
		{Name: "resume", Short: "Resume a paused task, or start a new run of an ended agent", Make: a.resume},
		{Name: "promote", Short: "Move a foreground task to the background", Make: a.promote},
		{Name: "approvals", Short: "List, show and answer the questions of agents", Make: a.approvals},
		{Name: "configure", Short: "Show or change the model, modes and thinking of a live session", Make: a.configure},
		{Name: "forward", Short: "Let this machine reach a port of sandboxed commands", Make: a.forward},
	}
}
