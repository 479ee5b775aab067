// Package project has the commands about what a folder keeps: sessions, to-dos, memory, the use of
// models, archives of sessions, and the trust in its files.
package project

import (
	"context"
	"io"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// Remove deletes the files of an ended session. The folder of the info names it: sessions of
	// other projects may have the same ID.
	Remove(ctx context.Context, of control.Info) error
	// Discard removes an ended session whose log may be damaged, and names what it could not check.
	Discard(ctx context.Context, of control.Info) (unseen string, err error)
	// RemoveOld removes the ended sessions of this project, or of all, that are older than an age
	// such as 30d; with an empty age, the sessions that the settings do not keep.
	RemoveOld(ctx context.Context, age string, all bool) ([]Removal, error)
	// Repair rebuilds the damaged log of an ended session; with force, also a log of an unknown format.
	Repair(ctx context.Context, of control.Info, force bool) (Repair, error)
	// Export writes the conversation of a session's main agent. An error that wraps
	// [fs.ErrNotExist] says that the session has none.
	Export(ctx context.Context, w io.Writer, of control.Info, form Form) error
	// Fork makes a new session with the conversation of another one so far, or before a prompt.
	Fork(from task.ID, req control.ForkRequest) (control.Forked, error)
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
		{Name: "sessions", Short: "List, export, repair and remove sessions", Make: a.sessions},
		{Name: "fork", Short: "Copy a conversation to a new session, whole or up to an earlier prompt", Make: a.fork},
		{Name: "todo", Short: "Show and change the to-do list", Make: a.todoCommand},
		{Name: "memory", Short: "Show and change the memory of this project", Make: a.memoryCommand},
		{Name: "stats", Short: "Show the use of models: tokens, cost, time", Make: a.statsCommand},
		{Name: "teleport", Short: "Move a session to another folder or machine", Make: a.teleportCommand},
		{Name: "trust", Short: "Show what the files of a folder would execute, and trust them", Make: a.trustCommand},
	}
}
