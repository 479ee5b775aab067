package supervise

import (
	"context"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// handOver moves the running children of a task to its parent, if the task is defined so and
// ends by itself, or if its driver says so. It does so before the end is recorded, so that a crash
// in between loses nothing. Children that cannot be moved are stopped later.
func (s *Supervisor) handOver(e *entry, res task.Result, end lifecycle.Change) (left []task.LeftTask) {
	if end.Verb == task.Stop || e.rec.Load().OnEnd != task.Reparents && !(res.PassOn && end.Verb == task.Complete) {
		return nil
	}
	s.moves.Lock() // of a parent and a child that end at the same time, the second sees the result of the first
	defer s.moves.Unlock()
	if s.life.Err() != nil || e.isFrozen() {
		return nil
	}
	for _, c := range e.below() {
		if r := c.rec.Load(); !r.Status.Terminal() && s.move(e, c) {
			left = append(left, r.Left(task.Running))
		}
	}
	return left
}

// below returns the children of a task.
func (e *entry) below() []*entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.children
}

// unseen returns the children whose ends a task has not been notified of before its own.
func (s *Supervisor) unseen(e *entry) (left []task.LeftTask) {
	if s.cfg.Unseen == nil || len(e.below()) == 0 {
		return nil
	}
	// What cannot be read is named by no one but the children themselves.
	notifications, _ := s.cfg.Unseen(context.WithoutCancel(s.life), e.id)
	for _, n := range notifications {
		if r, ok := s.Get(n.Task); ok && r.Run == n.Run {
			left = append(left, r.Left(r.Status))
		}
	}
	return left
}

// Children returns the running and pending tasks below a task.
func (s *Supervisor) Children(id task.ID) (live []task.Record) {
	if e := s.entry(id); e != nil {
		for _, c := range e.below() {
			if r := *c.rec.Load(); !r.Status.Terminal() {
				live = append(live, r)
			}
		}
	}
	return live
}

// waitsFor names the tasks that an idle agent waits for.
func waitsFor(children []task.Record) string {
	const most = 3
	var names []string
	for _, r := range children {
		if r.WaitedFor() && !r.Resting() {
			names = append(names, r.Label())
		}
	}
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// move gives a child to its grandparent. The new parent has the child before the old one loses
// it, so a stop of either finds it.
func (s *Supervisor) move(from, c *entry) bool {
	ctx := context.WithoutCancel(s.life)
	to, old := from.parent(), *from.rec.Load()
	if to != nil && !to.take(c) {
		return false // the new parent is being stopped
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
		return false
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
	return true
}

// rise updates the depth of all tasks below a task.
func (s *Supervisor) rise(ctx context.Context, e *entry, depth int) {
	for _, c := range e.below() {
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

// tick starts or stops the clock of the run.
func (e *entry) tick(how func(*clock)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	how(e.clock)
}
