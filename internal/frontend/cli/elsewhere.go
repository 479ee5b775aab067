package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
)

// at is the command line as a session's project sees it: its folder, and so its
// settings, trust and rules. Paths on the command line are still meant from where the
// user is.
func (a *app) at(s Session) (*app, error) {
	b, folder, env, err := a.Backend.At(s)
	if err != nil || folder == a.Cwd {
		return a, err
	}
	there := *a
	there.Backend, there.Cwd, there.Env, there.from = b, folder, env, a.here()
	return &there, nil
}

// here is where the user is, who may have named a session of another folder.
func (a *app) here() string { return cmp.Or(a.from, a.Cwd) }

// of is the command line of the session that a prompt is to go on with: one of this
// folder, or else of another. None is an error of [app.pick].
func (a *app) of(ctx context.Context, p *Prompt) (*app, error) {
	if p.Resume == "" || p.Continue {
		return a, nil
	}
	s, err := a.entry(ctx, p.Resume)
	if notFound(err) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := a.at(s)
	if err == nil && there != a && p.Trust {
		return nil, usage(fmt.Sprintf("--trust is for this folder, and session %s belongs to %s", s.Info().Session,
			there.Cwd),
			"look at `drover trust "+there.Cwd+"`, and leave it out")
	}
	return there, err
}

// entry finds the session that a word means, among those of this folder, else of all.
func (a *app) entry(ctx context.Context, ref string) (Session, error) {
	for _, all := range []bool{false, true} {
		if all && len(ref) < LeastID {
			break
		}
		sessions, err := a.Known(ctx, false, all)
		if err != nil {
			return nil, err
		}
		hits := calledBy(sessions, ref)
		switch {
		case len(hits) == 1, len(hits) > 0 && !all: // of several here the newest is gone on with
			return hits[0], nil
		case len(hits) > 1:
			return nil, severalSessions(ref, hits)
		}
	}
	return nil, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %s", ref),
		Fix: "see `drover sessions --all-sessions`"}
}
