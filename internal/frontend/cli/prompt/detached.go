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
			_, err = fmt.Fprintln(a.Stdout, id)
			return err
		}
		if !again || tries == handOvers {
			return err
		}
	}
}

// giveDetached gives the prompt to the host of the session, which is started for it
// if there is none; again says that this host was just going away, and has gone.
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

// hasHost says where a session lives that cannot be gone on with here.
func hasHost(info control.Info) error {
	return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s runs in process %d", info.Session,
		info.PID),
		Fix: fmt.Sprintf("use `drover attach %s`, stop it with `drover stop`, or add --fork-session", info.Session)}
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
		s, err := a.entry(ctx, string(c.Session))
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
	return console.Usage("--resume names no session", "give its ID, see `drover --resume`, or use --continue for the last one")
}

// Of is the command line of the session that a prompt is to go on with: one of this
// folder, or else of another. None is an error of [App.Pick].
func (a *App) Of(ctx context.Context, p *Prompt) (*App, error) {
	if p.Resume == "" || p.Continue {
		return a, nil
	}
	s, err := a.entry(ctx, p.Resume)
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

// entry finds the session that a word means, among those of this folder, else of all.
func (a *App) entry(ctx context.Context, ref string) (console.Session, error) {
	for _, all := range []bool{false, true} {
		if all && len(ref) < console.LeastID {
			break
		}
		sessions, err := a.Known(ctx, false, all)
		if err != nil {
			return nil, err
		}
		hits := console.CalledBy(sessions, ref)
		switch {
		case len(hits) == 1, len(hits) > 0 && !all: // of several here the newest is gone on with
			return hits[0], nil
		case len(hits) > 1:
			return nil, console.SeveralSessions(ref, hits)
		}
	}
	return nil, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %s", ref),
		Fix: "see `drover sessions --all-sessions`"}
}
