package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/api/repair"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// ended finds a session that no host has, by its folder.
func (b *folder) ended(ctx context.Context, of control.Info) (e host.Entry, err error) {
	entries, err := b.directory().Sessions(ctx, false, true)
	if err != nil {
		return e, err
	}
	for _, e := range entries {
		if e.Place.Dir() != of.Dir {
			continue
		}
		unlock, err := e.Place.Lock()
		if err != nil {
			return e, isOpen(of.Session)
		}
		unlock()
		return e, nil
	}
	return e, console.Missing(fmt.Sprintf("no session %s", of.Session), "see `drover sessions`")
}

func isOpen(id task.ID) error {
	return console.Conflict(fmt.Sprintf("session %s is open", id), "stop its tasks first")
}

// remove removes what an ended session left, in the given way.
func (b storage) remove(ctx context.Context, of control.Info,
	how func(ended.Session) (ended.Removed, error)) (r ended.Removed, err error) {
	e, err := b.ended(ctx, of)
	if err != nil {
		return r, err
	}
	r, err = how(ended.Session{Place: e.Place, Info: e.Info})
	if err == nil && r.Kept != "" {
		return r, console.Conflict("remove session: "+r.Kept, "stop its tasks first, see `drover ps --all-sessions`")
	}
	return r, err
}

// byForce adds to the error of a damaged session that --force removes it.
func byForce(id task.ID, err error) error {
	if !journal.Damaged(err) {
		return err
	}
	return fmt.Errorf("%w, or remove it as it is (`drover sessions rm --force %s`)", err, id)
}

// Discard removes a session whose log may be damaged, and returns what could not be
// looked at.
func (b storage) Discard(ctx context.Context, of control.Info) (unseen string, err error) {
	r, err := b.remove(ctx, of, func(p ended.Session) (ended.Removed, error) { return p.Discard(ctx) })
	return r.Unseen, err
}

// Repair rebuilds the damaged log of a session.
func (b storage) Repair(ctx context.Context, of control.Info, force bool) (out project.Repair, err error) {
	e, err := b.ended(ctx, of)
	if err != nil {
		return out, err
	}
	r, err := repair.Session(ctx, e.Place, force)
	switch {
	case errors.Is(err, home.ErrLocked):
		return out, isOpen(of.Session)
	case errors.Is(err, journal.ErrNewer):
		return out, console.Conflict(err.Error(),
			"use that one; if there never was one this is damage, too, and --force repairs it")
	case err != nil:
		return out, err
	}
	out = project.Repair{Session: of.Session, Intact: r.Sound, Damage: r.Damage, Tasks: r.Kept.Tasks,
		Events:        r.Kept.Events,
		Notifications: r.Kept.Notifications,
		Messages:      r.Kept.Messages, Answers: r.Kept.Answers, MissingTasks: r.Kept.MissingTasks,
		NotificationsLost: r.Kept.Unnotified,
		UnreadablePages:   r.Kept.BadPages, Aside: r.Aside}
	for _, s := range r.Kept.Missing {
		out.Missing = append(out.Missing, s)
	}
	for _, made := range r.Rebuilt {
		out.Rebuilt = append(out.Rebuilt, project.Rebuilt{ID: made.ID, Kind: made.Kind, From: made.From, Running: made.Lives})
	}
	if !e.Info.Damaged {
		return out, nil
	}
	out.Intact, out.DescriptionRebuilt = false, true
	return out, ended.Session{Place: e.Place, Info: e.Info}.Describe(ctx, b.version)
}
