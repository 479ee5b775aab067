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
		{Name: "ps", Short: "List tasks: status, age, time, tokens", Make: a.ps, Examples: console.Examples{
			"": {"drover ps", "drover ps -a --tree", "drover ps --watch", "drover ps --json | jq '.[].task_id'"},
		}},
		{Name: "logs", Short: "Print the output of a task", Make: a.logs, Examples: console.Examples{
			"": {"drover logs b1a2b3c4d", "drover logs -f server", "drover logs -n 20 server", "drover logs -f server worker",
				"drover logs -f --all"},
		}},
		{Name: "result", Short: "Print the final answer of a task that has ended", Make: a.result, Examples: console.Examples{
			"": {"drover result a1b2c3d4e"},
		}},
		{Name: "diff", Short: "Show what an agent has changed in its worktree", Make: a.diff, Examples: console.Examples{
			"": {"drover diff a1b2c3d4e", "drover diff --stat a1b2c3d4e",
				"drover diff a1b2c3d4e internal/parser | git apply",
				`drover diff a1b2c3d4e --comment main.go:12 "why not a constant?" --comment go.mod "sort this"`},
		}},
		{Name: "inspect", Short: "Print the whole record of a task as JSON", Make: a.inspect, Examples: console.Examples{
			"": {"drover inspect b1a2b3c4d | jq .status"},
		}},
		{Name: "wait", Short: "Wait for tasks and exit with their code", Make: a.wait, Examples: console.Examples{
			"": {"drover wait b1a2b3c4d", "drover wait --any --timeout 10m unit lint"},
		}},
		{Name: "serve", Short: "Serve a page of all sessions in a browser, or offer agents to others by A2A", Make: a.serve, Examples: console.Examples{
			"": {"drover serve", "drover serve --url https://drover.example --read-only", "drover serve --a2a"},
		}},
	}
}
