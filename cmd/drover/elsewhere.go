package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/task"
)

// at is the world as a session's project sees it: its folder, and so its settings,
// trust and rules. Paths on the command line are still meant from where the user is.
func (w *world) at(e host.Entry) (*world, error) {
	p := e.Place.Project()
	if p.Dir() == w.root.Project(w.cwd).Dir() {
		return w, nil
	}
	info, err := os.Stat(p.Folder())
	why := ""
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
		why = "which is gone"
	case err != nil:
		why = "which cannot be opened: " + err.Error()
	case w.root.Project(p.Folder()).Dir() != p.Dir():
		why = "which is a link to another one now"
	}
	if why != "" {
		return nil, &control.Error{Code: control.Conflict, Message: fmt.Sprintf("session %s belongs to the folder %s, %s", e.Place.ID(), p.Folder(), why),
			Mend: "put it back, or carry the session to another folder, see `drover teleport --help`"}
	}
	there := *w
	there.cwd, there.from, there.env = p.Folder(), w.here(), host.EnvAt(w.env, p.Folder())
	return &there, nil
}

// here is where the user is, who may have named a session of another folder.
func (w *world) here() string { return cmp.Or(w.from, w.cwd) }

// of is the world of the session that a prompt is to go on with: one of this folder,
// or else of another. None is an error of [world.pick].
func (w *world) of(ctx context.Context, p *promptFlags) (*world, error) {
	if p.Resume == "" || p.Continue {
		return w, nil
	}
	e, err := w.entry(ctx, p.Resume)
	var unknown *control.Error
	if errors.As(err, &unknown) && unknown.Code == control.NotFound {
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	there, err := w.at(e)
	if err == nil && there != w && p.Trust {
		return nil, usage(fmt.Sprintf("--trust is for this folder, and session %s belongs to %s", e.Place.ID(), there.cwd), "look at `drover trust "+there.cwd+"`, and leave it out")
	}
	return there, err
}

// entry finds the session that a word means, among those of this folder, else of all.
func (w *world) entry(ctx context.Context, ref string) (host.Entry, error) {
	d, err := w.directory()
	if err != nil {
		return host.Entry{}, err
	}
	for _, all := range []bool{false, true} {
		if all && len(ref) < cli.LeastID {
			break
		}
		entries, err := d.Sessions(ctx, false, all)
		if err != nil {
			return host.Entry{}, err
		}
		hits := named(entries, ref)
		switch {
		case len(hits) == 1, len(hits) > 0 && !all: // of several here the newest is gone on with
			return hits[0], nil
		case len(hits) > 1:
			e := &control.Error{Code: control.Ambiguous, Message: fmt.Sprintf("%q fits %d sessions of other folders", ref, len(hits)), Mend: "give more of the ID"}
			for _, hit := range hits {
				e.Matches = append(e.Matches, string(hit.Place.ID()))
			}
			return host.Entry{}, e
		}
	}
	return host.Entry{}, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %s", ref), Mend: "see `drover sessions --all-sessions`"}
}

// Revive connects to the detached host of the session's own project.
func (k known) Revive(ctx context.Context) (control.API, func(), error) {
	there, err := k.w.at(k.Entry)
	if err != nil {
		return nil, nil, err
	}
	d, err := there.directory()
	if err != nil {
		return nil, nil, err
	}
	return d.Background(ctx)
}

// conversationOf is [world.conversation] of a session of any project.
func (w *world) conversationOf(ctx context.Context, p promptFlags, id task.ID) (known, error) {
	e, _, err := w.conversation(ctx, p, id)
	return known{e, w}, err
}
