package tree

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Find returns the task that ref means: its ID, a prefix of it, its name, the name of a
// teammate without the team if it is unique, or, last, the session ID of a remote agent: its
// service chooses that ID, which must not hide another task.
func (s *Tree) Find(ref string) (task.Record, error) {
	r, err := s.Tasks.Find(ref)
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
	s.Tasks.List(0)(look)
	if len(teammates)+len(elsewhere) == 0 && errors.Is(err, supervise.ErrUnknown) { // it may have been evicted from memory
		if err := s.Tasks.Listing(context.Background(), 0, look); err != nil {
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
func (s *Tree) FindNear(ref, who string) (task.Record, error) {
	if _, team, ok := lifecycle.SplitTeam(who); ok {
		if r, err := s.Tasks.Find(ref + "@" + team); err == nil && r.Team != nil {
			return r, nil
		}
	}
	return s.Find(ref)
}

// Below reports whether r is root or below it.
func (s *Tree) Below(r task.Record, root task.ID) bool {
	for r.ID != root {
		if r.Parent == "" {
			return false
		}
		p, ok := s.Tasks.Get(r.Parent)
		if !ok {
			return false
		}
		r = p
	}
	return true
}

// IsolatedMark is the checkpoint of an isolated agent before it gets its checkout: a further run
// after a crash must not take place in the user's folder.
const IsolatedMark = `{"v":1,"isolation":"worktree"}`

// Isolated reports whether an agent has a checkout of its own.
func Isolated(r task.Record) bool {
	return r.Kind.IsAgent() && (r.Worktree != nil || string(r.Checkpoint) == IsolatedMark)
}

// Isolated returns the nearest agent above a task, or itself, that has its own checkout; empty:
// it works in the folder of the session.
func (s *Tree) Isolated(id task.ID) task.ID {
	for id != "" {
		r, ok := s.Tasks.Get(id)
		if !ok {
			return ""
		}
		if Isolated(r) {
			return id
		}
		id = r.Parent
	}
	return ""
}

// Child finds a child by its key. It reads all tasks, which only the further run of a workflow
// needs: a start checks the key of a new one.
func (s *Tree) Child(ctx context.Context, parent task.ID, key string) (child task.Record, found bool, err error) {
	born := s.Tasks.Born(parent)
	err = s.Tasks.Listing(ctx, 0, func(at task.Seq, r task.Record) bool {
		if r.Parent == parent && r.Key == key {
			child, found = r, true
		}
		return !found && at > born
	})
	return child, found, err
}

// Background returns the running and waiting background tasks of an agent, oldest first. For a
// top-level agent they include those without an owner.
func (s *Tree) Background(agent task.ID, top bool) []task.Record {
	var live []task.Record
	for _, r := range s.Tasks.Living() {
		mine := r.Owner == agent || r.Owner == "" && top
		if mine && r.Background() && r.ID != s.Info.Session {
			live = append(live, r)
		}
	}
	slices.Reverse(live)
	return live
}

// Latest returns a task as of the log. The log has a change slightly before the record: a
// caller that was woken by the log and reads only the record may wait for an event that does
// not come.
func (s *Tree) Latest(id task.ID) task.Record {
	var newest task.Record
	for e := range s.Recent {
		if e.Task.ID == id {
			newest = e.Task
		}
	}
	if newest.ID == "" {
		newest, _ = s.Tasks.Get(id)
	}
	return newest
}

// recently is how many events are read again to find idle agents.
const recently = 256

// Recent yields the newest events, a page in memory at a time. An unreadable event is soon in
// the records.
func (s *Tree) Recent(yield func(task.Event) bool) {
	for after := max(0, s.Log.Last()-recently); ; {
		page, err := s.Log.Since(context.Background(), after)
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
func (s *Tree) Begun(ctx context.Context, r task.Record) task.Record {
	limit, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	for {
		committed := s.Log.NextCommit()
		r = s.Latest(r.ID)
		if r.Status != task.Pending {
			return r
		}
		select {
		case <-committed:
		case <-limit.Done():
			return r
		}
	}
}
