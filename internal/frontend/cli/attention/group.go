// Package attention lists what needs the user in all sessions of all projects, follows the list,
// and marks failures as seen.
package attention

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// MarkSeen records in the files of an ended session that the user knows how tasks ended.
	MarkSeen(ctx context.Context, of control.Info, ids []task.ID) error
	// TryNotify sends a message by every channel that the settings under notify name.
	TryNotify(ctx context.Context) ([]Sent, error)
}

// App is what these commands share.
type App struct {
	console.Console
	Outside
}

// Commands returns the commands of this package.
func Commands(c console.Console, out Outside) []console.Command {
	a := &App{c, out}
	return []console.Command{
		{Name: "attention", Short: "List what needs you, across sessions and projects", Make: a.attention},
	}
}
