// Package run has the commands that start work: commands, agents, workflows, monitors and
// schedules, and the merge of what agents changed.
package run

import (
	"context"
	"io"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// RunForeground runs a command in this process and returns when it has ended. When ctx ends,
	// the command is stopped.
	RunForeground(ctx context.Context, f Foreground) (task.Record, error)
	// Demo gives the tour.
	Demo(ctx context.Context, out io.Writer, colour bool, width int) error
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
		{Name: "run", Short: "Run a command as a task", Make: a.run, Examples: console.Examples{
			"": {"drover run -- make test", "drover run -d --name server --keep -- ./server --port 8080",
				"drover run -d --tty -- python3", "drover run --on gpu --env MODEL -- python3 train.py",
				"drover run 'go vet ./... && go test ./...'", "seq 100 | sed 's/^/sleep /' | drover run -d --batch -"},
		}},
		{Name: "agent", Short: "Run one agent", Make: a.agentCommand, Examples: console.Examples{
			"":    {`drover agent run explore "where is the parser?"`},
			"run": {`drover agent run explore "where is the parser?"`, `git diff | drover agent run general-purpose -`},
		}},
		{Name: "workflow", Short: "Run, check and draw workflows", Make: a.workflowCommand, Examples: console.Examples{
			"": {"drover workflow check release.yaml", "drover workflow run release.yaml -p version=1.4.0"},
			"run": {"drover workflow run release.yaml -p version=1.4.0", "drover workflow run -d nightly.yaml",
				"drover workflow run --resume w1b2c3d4e"},
			"check": {"drover workflow check release.yaml"},
			"graph": {"drover workflow graph release.yaml",
				"drover workflow graph --dot release.yaml | dot -Tsvg > release.svg"},
		}},
		{Name: "compete", Short: "Give one task to several agents and compare what they change", Make: a.competeCommand,
			Examples: console.Examples{
				"": {`drover compete --agents general-purpose@opus,general-purpose@haiku --check 'go test ./...' "fix the flaky test"`,
					`drover compete --agents general-purpose@opus,general-purpose@haiku --judge code-review --check 'make test' --merge "fix it"`},
			}},
		{Name: "merge", Short: "Merge what agents have changed in their worktrees", Make: a.merge, Examples: console.Examples{
			"": {"drover merge a1b2c3d4e", "drover merge --check 'make test' a1b2c3d4e a5f6g7h8i",
				"drover merge --pr --into main a1b2c3d4e"},
		}},
		{Name: "monitor", Short: "Watch a command, a file or an MCP resource", Make: a.monitorCommand,
			Examples: console.Examples{
				"": {"drover monitor --match ERROR --file /var/log/app.log",
					"drover monitor --persistent -- ./poll-ci.sh"},
			}},
		{Name: "schedule", Short: "Start commands and agents at certain times", Make: a.scheduleCommand,
			Examples: console.Examples{
				"": {`drover schedule add "0 6 * * 1-5" -- make test`, "drover schedule list"},
				"add": {`drover schedule add "0 6 * * 1-5" --name nightly -- make test`,
					`drover schedule add @daily --zone Europe/Berlin --prompt "review the changes of yesterday" --allowed-tools "Bash(git log:*)"`},
				"list":   {"drover schedule list --json"},
				"rm":     {"drover schedule rm nightly"},
				"pause":  {"drover schedule pause nightly"},
				"resume": {"drover schedule resume nightly"},
				"run":    {"drover schedule run nightly"},
			}},
		{Name: "remote", Short: "Run agents of a remote service", Make: a.remoteCommand,
			Examples: console.Examples{
				"": {`drover remote run --service ci "fix the build"`},
				"run": {`drover remote run --service ci "fix the build"`,
					`drover remote run -d --type background-pr "update the dependencies"`},
			}},
		{Name: "demo", Short: "Show what Drover does, without an API key", Make: a.demo, Examples: console.Examples{
			"": {"drover demo"},
		}},
	}
}
