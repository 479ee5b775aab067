// Package tree is the tree of tasks of an open session, and what else its parts share: who the session is,
// its options, its log, and its voice to the user. It finds tasks: by name, above and below a task, and as of
// their newest event.
//
// A [Tree] owns nothing and changes nothing; package session opens and closes what it holds.
package tree

import (
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Tree is an open session as its parts see it. Its methods may be called by several goroutines.
type Tree struct {
	Info    control.Info // Session, Project, Role, Version, Socket, StartTime
	Place   home.Session
	Options options.Options
	Tasks   *supervise.Supervisor
	Log     *journal.Journal
	Report  *Reporter
}

// Say tells the user about the session.
func (s *Tree) Say(text string) { s.Report.Say(s.Info.Session, text) }

// Alive reports whether a task is known and has not ended.
func (s *Tree) Alive(id task.ID) bool {
	r, ok := s.Tasks.Get(id)
	return ok && !r.Status.Terminal()
}

// GoesOn reports whether the work of a task continues without its host, so that the next host
// adopts it: a parked agent in the background session of a project, or work elsewhere.
func (s *Tree) GoesOn(r task.Record) bool {
	parked := s.Info.Role == control.RoleBackground && r.GoesOnParked()
	return parked || r.Traits().Elsewhere == task.AlwaysAway && r.Status == task.Running && r.ContinuesElsewhere()
}
