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
		{Name: "sessions", Short: "List, export, repair and remove sessions", Make: a.sessions, Examples: console.Examples{
			"":   {"drover sessions", "drover sessions --all-sessions"},
			"rm": {"drover sessions rm s1b2c3d4e", "drover sessions rm --old=30d"},
			"export": {"drover sessions export s1b2c3d4e -o talk.md",
				"drover sessions export --format json s1b2c3d4e"},
			"repair": {"drover sessions repair s1b2c3d4e"},
		}},
		{Name: "fork", Short: "Copy a conversation to a new session, as it stands or before an earlier prompt", Make: a.fork,
			Examples: console.Examples{
				"": {"drover fork --list s1b2c3d4e", "drover fork --at 3 s1b2c3d4e"},
			}},
		{Name: "todo", Short: "Show and change the to-do list", Make: a.todoCommand, Examples: console.Examples{
			"":     {"drover todo", `drover todo add "write the release notes"`, "drover todo done 3"},
			"list": {"drover todo list --json"},
			"add":  {`drover todo add "write the release notes"`, `drover todo add --blocked-by 1,2 "publish"`},
			"set": {"drover todo set 3 status=in_progress",
				"drover todo set 4 owner=ann blocked_by=2,3 metadata.ticket=17"},
			"done":  {"drover todo done 3", "drover todo done 3 4 5"},
			"rm":    {"drover todo rm 3"},
			"graph": {"drover todo graph"},
		}},
		{Name: "memory", Short: "Show and change the memory of this project", Make: a.memoryCommand,
			Examples: console.Examples{
				"":            {"drover memory", "drover memory dream"},
				"show":        {"drover memory show"},
				"list":        {"drover memory list"},
				"path":        {"cd \"$(drover memory path)\""},
				"board":       {"drover memory board"},
				"board list":  {"drover memory board list --json"},
				"board add":   {`drover memory board add --tag ci "the nightly job needs go 1.26"`},
				"board prune": {"drover memory board prune m1b2c3"},
				"dream":       {"drover memory dream", "drover memory dream -d"},
			}},
		{Name: "stats", Short: "Show the use of models: tokens, cost, time", Make: a.statsCommand, Examples: console.Examples{
			"": {"drover stats", "drover stats --by day --since 7d"},
		}},
		{Name: "teleport", Short: "Move a session to another folder or machine", Make: a.teleportCommand,
			Examples: console.Examples{
				"": {"drover teleport export s1b2c3d4e -o talk.tar.gz",
					"drover teleport import talk.tar.gz --into ~/project"},
				"export": {"drover teleport export s1b2c3d4e -o talk.tar.gz"},
				"import": {"drover teleport import talk.tar.gz --into ~/project"},
			}},
		{Name: "trust", Short: "Show what the files of a folder would execute, and trust them", Make: a.trustCommand,
			Examples: console.Examples{
				"": {"drover trust", "drover trust --revoke"},
			}},
	}
}
