// Package prompt is `drover -p` with its flags, and `drover record` and `drover replay`, which take
// the same. It checks a prompt completely before anything starts: a detached host gets only prompts
// that can run.
package prompt

import (
	"context"
	"io"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// For returns the same for the sessions of another folder.
	For(folder string) Outside
	// Answer answers a prompt in this process and prints the answer. The session is a new one if
	// id is empty.
	Answer(ctx context.Context, p *Prompt, id task.ID) error
	// Record does the same and writes a recording of the run to w.
	Record(ctx context.Context, p *Prompt, w io.Writer) error
	// Replay plays a recording in a new session and prints the answer.
	Replay(ctx context.Context, r Replay) error
	// Conversation finds the live host of a conversation or starts a detached one with p; started
	// reports which. Only a host that is started gets the prompt of p.
	Conversation(ctx context.Context, p Prompt, id task.ID) (s console.Session, started bool, err error)
	// Fork makes a new session with the conversation of another one so far, or before a prompt.
	Fork(from task.ID, req control.ForkRequest) (control.Forked, error)
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
		{Name: "record", Short: "Answer one prompt like drover -p, and record the run in a file for drover replay",
			Make: a.record},
		{Name: "replay", Short: "Play a recorded run again, without network and without a model", Make: a.replay},
	}
}
