package supervise

import (
	"cmp"
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// handOver gives what a task has left running to its own parent, if it is to and
// ends by itself, before its end is recorded: who dies in between has lost
// nothing. What cannot be given is left to be stopped.
func (s *Supervisor) handOver(e *entry, end lifecycle.Change) {
	if e.rec.Load().OnEnd != task.Reparents || end.Verb == task.Stop {
		return
	}
	s.moves.Lock() // of two that end at once, one below the other, the second finds what the first has done
	defer s.moves.Unlock()
	if s.life.Err() != nil || e.isFrozen() {
		return
	}
	e.mu.Lock()
	children := e.children
	e.mu.Unlock()
	for _, c := range children {
		if !c.rec.Load().Status.Terminal() {
			s.move(e, c)
		}
	}
}

// move gives a child to the parent of the one that it is below. The new parent has
// it before the old one loses it, so that a stop of either finds it.
func (s *Supervisor) move(from, c *entry) {
	ctx := context.WithoutCancel(s.life)
	to, old := from.parent(), *from.rec.Load()
	if to != nil && !to.take(c) {
		return // it is being stopped
	}
	change := lifecycle.Change{Verb: task.Reparent, Parent: old.Parent, Owner: c.rec.Load().Owner, Depth: old.Depth}
	if change.Owner == from.id {
		change.Owner = old.Owner
	}
	rec, err := s.apply(ctx, c, change, nil, "")
	if err != nil { // it has ended meanwhile, or the disk is full
		if to != nil {
			to.part(c)
		}
		return
	}
	c.up.Store(to)
	from.part(c)
	s.mu.Lock()
	c.mu.Lock()
	delete(s.keys, childKey{from.id, c.spec.Key})
	c.spec.Parent, c.spec.Owner, c.spec.Key = rec.Parent, rec.Owner, ""
	c.free()
	c.mu.Unlock()
	s.mu.Unlock()
	s.rise(ctx, c, rec.Depth)
	s.inherit(ctx, c)
	if rec.Owner != "" { // a full mailbox will have its end
		_, _ = s.Post(
			ctx,
			task.Message{To: rec.Owner, From: cmp.Or(old.Name, string(old.ID)), Kind: task.TaskLeft, Text: left(old, rec)},
		)
	}
}

// rise brings the depth of all below a task up to date.
func (s *Supervisor) rise(ctx context.Context, e *entry, depth int) {
	e.mu.Lock()
	children := e.children
	e.mu.Unlock()
	for _, c := range children {
		r := c.rec.Load()
		_, _ = s.apply(
			ctx,
			c,
			lifecycle.Change{Verb: task.Reparent, Parent: r.Parent, Owner: r.Owner, Depth: depth + 1},
			nil,
			"",
		) // it bounds what is started below, and no more
		s.rise(ctx, c, depth+1)
	}
}

// left tells a new owner what it has been left.
func left(from, r task.Record) string {
	return fmt.Sprintf(
		"Agent %s has ended and leaves task %s (%s) to you, which is %s: %s",
		from.ID,
		r.ID,
		r.Kind,
		r.Status,
		cmp.Or(r.Description, r.Command, r.Name),
	)
}

// tick stops or starts the clock of the run.
func (e *entry) tick(how func(*clock)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	how(e.clock)
}
