// Package tree finds tasks of one session: the task that a name means, the ancestors and
// descendants of a task, and a task as of its newest event.
//
// A Tree owns nothing and changes nothing: it reads the supervisor and the log. Its methods may
// be called by several goroutines.
package tree

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// Tree is the tasks of a session.
type Tree struct {
	session task.ID
	tasks   *supervise.Supervisor
	log     *journal.Journal
}

// New returns the tree of a session.
func New(session task.ID, tasks *supervise.Supervisor, log *journal.Journal) *Tree {
	return &Tree{session: session, tasks: tasks, log: log}
}

// Find returns the task that ref means: its ID, a prefix of it, its name, the name of a
// teammate without the team if it is unique, or, last, the session ID of a remote agent: its
// service chooses that ID, which must not hide another task.
func (t *Tree) Find(ref string) (task.Record, error) {
	r, err := t.tasks.Find(ref)
	if err == nil && (string(r.ID) == ref || r.Name == ref) {
		return r, nil
	}
	teammates := map[string][]task.Record{} // by their whole names
	var elsewhere []task.Record
	look := func(_ task.Seq, m task.Record) bool {
		if m.Team != nil && m.Team.Name == ref {
			teammates[m.Name] = append(teammates[m.Name], m)
		}
		if m.WorksIn(ref) {
			elsewhere = append(elsewhere, m)
		}
		return true
	}
	t.tasks.List(0)(look)
	if len(teammates)+len(elsewhere) == 0 && errors.Is(err, supervise.ErrUnknown) { // it may have been evicted from memory
		if err := t.tasks.Listing(context.Background(), 0, look); err != nil {
			return r, err
		}
	}
	var hits []task.Record
	for _, of := range teammates {
		hits = append(hits, lifecycle.Meant(of))
	}
	if len(hits) == 0 && errors.Is(err, supervise.ErrUnknown) {
		hits = elsewhere
	}
	switch len(hits) {
	case 0:
		return r, err
	case 1:
		return hits[0], nil
	}
	return task.Record{}, &supervise.AmbiguousError{Ref: ref, Matches: hits}
}

// FindNear is Find for an agent with a known name in messages: for a teammate its own team has
// precedence.
func (t *Tree) FindNear(ref, who string) (task.Record, error) {
	if _, team, ok := lifecycle.SplitTeam(who); ok {
		if r, err := t.tasks.Find(ref + "@" + team); err == nil && r.Team != nil {
			return r, nil
		}
	}
	return t.Find(ref)
}

// Below reports whether r is root or below it.
func (t *Tree) Below(r task.Record, root task.ID) bool {
	for r.ID != root {
		if r.Parent == "" {
			return false
		}
		p, ok := t.tasks.Get(r.Parent)
		if !ok {
			return false
		}
		r = p
	}
	return true
}

// Isolated returns the nearest agent above a task, or itself, that has its own checkout; empty:
// it works in the folder of the session.
func (t *Tree) Isolated(id task.ID) task.ID {
	for id != "" {
		r, ok := t.tasks.Get(id)
		if !ok {
			return ""
		}
		if environment.Isolated(r) {
			return id
		}
		id = r.Parent
	}
	return ""
}

// Child finds a child by its key. It reads all tasks, which only the further run of a workflow
// needs: a start checks the key of a new one.
func (t *Tree) Child(ctx context.Context, parent task.ID, key string) (child task.Record, found bool, err error) {
	born := t.tasks.Born(parent)
	err = t.tasks.Listing(ctx, 0, func(at task.Seq, r task.Record) bool {
		if r.Parent == parent && r.Key == key {
			child, found = r, true
		}
		return !found && at > born
	})
	return child, found, err
}

// Background returns the running and waiting background tasks of an agent, oldest first. For a
// top-level agent they include those without an owner.
func (t *Tree) Background(agent task.ID, top bool) []task.Record {
	var live []task.Record
	for _, r := range t.tasks.Living() {
		mine := r.Owner == agent || r.Owner == "" && top
		if mine && r.Background() && r.ID != t.session {
			live = append(live, r)
		}
	}
	slices.Reverse(live)
	return live
}

// Latest returns a task as of the log. The log has a change slightly before the record: a
// caller that was woken by the log and reads only the record may wait for an event that does
// not come.
func (t *Tree) Latest(id task.ID) task.Record {
	var newest task.Record
	for e := range t.Recent {
		if e.Task.ID == id {
			newest = e.Task
		}
	}
	if newest.ID == "" {
		newest, _ = t.tasks.Get(id)
	}
	return newest
}

// recently is how many events are read again to find idle agents.
const recently = 256

// Recent yields the newest events, a page in memory at a time. An unreadable event is soon in
// the records.
func (t *Tree) Recent(yield func(task.Event) bool) {
	for after := max(0, t.log.Last()-recently); ; {
		page, err := t.log.Since(context.Background(), after)
		if err != nil || len(page) == 0 {
			return
		}
		for _, e := range page {
			if after = e.Seq; !yield(e) {
				return
			}
		}
	}
}

// beginWait is how long Begun waits.
const beginWait = 5 * time.Second

// Begun returns a task once it has begun, or unchanged after beginWait.
func (t *Tree) Begun(ctx context.Context, r task.Record) task.Record {
	limit, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	for {
		grown := t.log.Grown()
		r = t.Latest(r.ID)
		if r.Status != task.Pending {
			return r
		}
		select {
		case <-grown:
		case <-limit.Done():
			return r
		}
	}
}
