// Package console is what all commands of the command line share: where they read and write, how
// they print tables, JSON and errors, which exit codes they end with, and how a word becomes a
// session or a task.
//
// It promises stdout for results and nothing else, and that no byte of a task reaches a terminal
// alive unless the user asks for it. It knows no command and no engine: [Folder] finds and opens
// sessions.
package console

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/settings"
)

// Console is where a command runs.
type Console struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string // handed to the tasks that are started
	Cwd            string   // absolute
	Version        string
	Root           home.Root // the state directory
	Folder

	// OnInterrupt calls a function on the next SIGINT, once; nil: signals are not watched.
	OnInterrupt func(context.Context, func())
	IsTerminal  func(io.Writer) bool // nil: nothing is a terminal
	Columns     func() int           // of the terminal on stdout, or 0; nil: 0
	Now         func() time.Time     // nil: time.Now

	OpenTerminal func() (*Terminal, error) // gives a command the terminal on stdin and stdout; nil: there is none

	from string // the folder of the user, if Cwd is the folder of a session elsewhere
}

// Folder is a folder with its sessions and settings.
type Folder interface {
	// Known returns the sessions of the project, or of all projects: live ones and what the others
	// left, newest first. With live, only live ones.
	Known(ctx context.Context, live, all bool) ([]Session, error)
	// Background returns the project's detached session, started if necessary, and a function that
	// lets go of it.
	Background(ctx context.Context) (control.API, func(), error)
	// Here opens a session in this process, gives its API to do, and closes it.
	Here(ctx context.Context, o Opening, do func(context.Context, control.API) error) error
	// Settings returns the settings of the folder, with those of a flag. Ignored parts are noted on
	// stderr, once.
	Settings(flag string) (settings.Settings, error)
	// Agents returns the definitions of agents of the folder, after those that are given as JSON.
	// With fresh, the server that the settings name is asked; otherwise only if it never was.
	Agents(given string, fresh bool) *catalog.Files
	// At returns the folder that a session belongs to, its path and the environment there.
	At(s Session) (f Folder, path string, env []string, err error)
}

// Filled returns the console with a value for each function that may be nil, except OnInterrupt
// and OpenTerminal.
func (a Console) Filled() Console {
	if a.IsTerminal == nil {
		a.IsTerminal = func(io.Writer) bool { return false }
	}
	if a.Columns == nil {
		a.Columns = func() int { return 0 }
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	return a
}

// InFolderOf returns the console in the folder of a session, with its settings, trust and rules.
// Paths on the command line are still relative to the folder of the user.
func (a Console) InFolderOf(s Session) (Console, error) {
	f, path, env, err := a.At(s)
	if err != nil || path == a.Cwd {
		return a, err
	}
	a.from = a.UserCwd()
	a.Folder, a.Cwd, a.Env = f, path, env
	return a, nil
}

// Path returns a path of a command line as an absolute one.
func (a Console) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(a.UserCwd(), name)
}

// UserCwd is the folder of the user, who may have named a session of another folder.
func (a Console) UserCwd() string { return cmp.Or(a.from, a.Cwd) }

// Command is a command below `drover`. Its tree and flags are made on demand.
type Command struct {
	Name, Short string
	Make        func() *cobra.Command
}
