// Package watch has the commands that show tasks: lists, output, results, diffs and the page in a
// browser. None of them changes a task.
package watch

import (
	"context"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// Workers returns the workers that the hub knows.
	Workers(ctx context.Context) ([]fleetwire.Worker, error)
	// ServePage serves the page in a browser and prints the link that opens it.
	ServePage(ctx context.Context, o Page) error
	// PageDevices returns the browsers that are paired with the page. The token file is as in [Page].
	PageDevices(tokenFile string) ([]Device, error)
	// RevokeDevice ends the pairing of one of them, by its ID or name, and returns the name.
	RevokeDevice(ctx context.Context, tokenFile, ref string) (name string, err error)
	// ServeA2A offers agents to others by the Agent2Agent protocol and prints the address.
	ServeA2A(ctx context.Context, o A2A) error
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
		{Name: "ps", Short: "List tasks: status, age, time, tokens", Make: a.ps},
		{Name: "logs", Short: "Print the output of a task", Make: a.logs},
		{Name: "result", Short: "Print the final answer of a task that has ended", Make: a.result},
		{Name: "diff", Short: "Show what an agent has changed in its worktree", Make: a.diff},
		{Name: "inspect", Short: "Print the whole record of a task as JSON", Make: a.inspect},
		{Name: "wait", Short: "Wait for tasks and exit with their code", Make: a.wait},
		{Name: "serve", Short: "Serve a page of all sessions in a browser, or offer agents to others by A2A", Make: a.serve},
	}
}
