package supervise

import (
	"cmp"
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// handOver moves the running children of a task to its parent, if the task is defined so and
// ends by itself. It does so before the end is recorded, so that a crash in between loses
// nothing. Children that cannot be moved are stopped later.
func (s *Supervisor) handOver(e *entry, end lifecycle.Change) {
	if e.rec.Load().OnEnd != task.Reparents || end.Verb == task.Stop {
		return
	}
	s.moves.Lock() // of a parent and a child that end at the same time, the second sees the result of the first
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

// move gives a child to its grandparent. The new parent has the child before the old one loses
// it, so a stop of either finds it.
func (s *Supervisor) move(from, c *entry) {
	ctx := context.WithoutCancel(s.life)
	to, old := from.parent(), *from.rec.Load()
	if to != nil && !to.take(c) {
		return // the new parent is being stopped
	}
	change := lifecycle.Change{Verb: task.Reparent, Parent: old.Parent, Owner: c.rec.Load().Owner, Depth: old.Depth}
	if change.Owner == from.id {
		change.Owner = old.Owner
	}
	rec, err := s.apply(ctx, c, change, nil, "")
	if err != nil { // the child has ended meanwhile, or the disk is full
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
	if rec.Owner != "" { // if the mailbox is full, the notification of the end still follows
		_, _ = s.Post(
			ctx,
			task.Message{To: rec.Owner, From: cmp.Or(old.Name, string(old.ID)), Kind: task.TaskLeft, Text: left(old, rec)},
		)
	}
}

// rise updates the depth of all tasks below a task.
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
		) // the depth only limits further starts below it
		s.rise(ctx, c, depth+1)
	}
}

// left sends the new owner a message about the tasks that it has received.
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

// tick starts or stops the clock of the run.
func (e *entry) tick(how func(*clock)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	how(e.clock)
}
