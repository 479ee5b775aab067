package prompt

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Joining is which conversation somebody attaches to. Session is empty for a new one.
type Joining struct {
	Session task.ID
	Model   string
	Agent   string
	Mode    string // permission mode
	Prompt  string // the first of a new one
}

// handOvers is how often a prompt is offered to hosts that end at that moment.
const handOvers = 5

// promptDetached has a prompt answered by a host of its own, or by that which the
// session has already, and prints the session.
func (a *App) promptDetached(ctx context.Context, p *Prompt) error {
	id, err := a.Pick(ctx, p)
	if err != nil {
		return err
	}
	if id == "" {
		id = task.NewSessionID()
	}
	for tries := 1; ; tries++ {
		again, err := a.giveDetached(ctx, p, id)
		if err == nil {
			return a.Println(id)
		}
		if !again || tries == handOvers {
			return err
		}
	}
}

// giveDetached gives the prompt to the host of the session, which is started for it
// if there is none; again says that this host was ending, and has ended.
func (a *App) giveDetached(ctx context.Context, p *Prompt, id task.ID) (again bool, err error) {
	s, started, err := a.Conversation(ctx, *p, id)
	switch {
	case err != nil || started:
		return false, err
	case !s.Info().Detached:
		return false, hasHost(s.Info())
	}
	api, done, err := s.Open(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if err = api.Prompt(ctx, control.PromptRequest{Text: p.Prompt, Images: p.Images}); !control.Refused(err) {
		return false, err
	}
	return s.Gone(ctx), err
}

// hasHost says which process has a session that cannot be resumed here.
func hasHost(info control.Info) error {
	return console.Conflict(fmt.Sprintf("session %s runs in process %d", info.Session, info.PID),
		fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", info.Session))
}

// Host finds the live host of a conversation that somebody attaches to, or starts one.
func (a *App) Host(ctx context.Context, p Prompt, id task.ID) (console.Session, error) {
	s, _, err := a.Conversation(ctx, p, id)
	return s, err
}

// AttachedTo is how `drover attach` finds a conversation, or starts one.
func (a *App) AttachedTo(ctx context.Context, c Joining) (console.Session, error) {
	p := Prompt{Format: console.PromptFormats()[0], Model: c.Model, Agent: c.Agent, Mode: c.Mode, Attach: true}
	there := a
	if c.Session == "" {
		c.Session = task.NewSessionID()
	} else {
		s, err := a.FindSession(ctx, string(c.Session))
		if err != nil {
			return nil, err
		}
		if there, err = a.in(s); err != nil {
			return nil, err
		}
	}
	if err := there.Check(ctx, &p, nil); err != nil {
		return nil, err
	}
	return there.Host(ctx, p, c.Session)
}

// in is the app in the folder of a session.
func (a *App) in(s console.Session) (*App, error) {
	c, err := a.InFolderOf(s)
	if err != nil || c.Cwd == a.Cwd {
		return a, err
	}
	return &App{c, a.For(c.Cwd)}, nil
}

func ErrNoSessionNamed() error {
	return console.Usage("--resume names no session",
		"give its ID, see `drover --resume`, or use --continue for the last one")
}

// Of returns the app in the folder of the session that a prompt resumes. A missing session is an error
// of [App.Pick].
func (a *App) Of(ctx context.Context, p *Prompt) (*App, error) {
	if p.Resume == "" || p.Continue {
		return a, nil
	}
	s, err := a.FindSession(ctx, p.Resume)
	if console.NotFound(err) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := a.in(s)
	if err == nil && there != a && p.Trust {
		return nil, console.Usage(fmt.Sprintf("--trust is for this folder, and session %s belongs to %s", s.Info().Session,
			there.Cwd),
			"look at `drover trust "+there.Cwd+"`, and leave it out")
	}
	return there, err
}
