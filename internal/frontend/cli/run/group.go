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
		{Name: "run", Short: "Run a command as a task", Make: a.run},
		{Name: "agent", Short: "Run one agent", Make: a.agentCommand},
		{Name: "workflow", Short: "Run, check and draw workflows", Make: a.workflowCommand},
		{Name: "compete", Short: "Give one task to several agents and compare what they change", Make: a.competeCommand},
		{Name: "merge", Short: "Merge what agents have changed in their worktrees", Make: a.merge},
		{Name: "monitor", Short: "Watch a command, a file or an MCP resource", Make: a.monitorCommand},
		{Name: "schedule", Short: "Start commands and agents at certain times", Make: a.scheduleCommand},
		{Name: "remote", Short: "Run agents of a remote service", Make: a.remoteCommand},
		{Name: "demo", Short: "Show what Drover does, without an API key", Make: a.demo},
	}
}
