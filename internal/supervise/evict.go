package supervise

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// evictGrace is how long an ended task stays in memory at least, if nothing else
// is asked for: who has just heard of its end asks about it.
const evictGrace = 30 * time.Second

// recallTries bounds how often it is tried to bring a task back that others bring
// back, and forget, at the same time.
const recallTries = 16

// recallChunk is how many tasks a listing reads from the log at once.
const recallChunk = 256

// tomb is what is kept of a task that has left the memory: its ID and its name
// are never given to another.
type tomb struct {
	id   task.ID
	born task.Seq
	name string
}

// past is what has left the memory, and what may. The supervisor's mu guards it.
type past struct {
	tasks map[task.ID]*tomb
	names map[string]*tomb
	keys  map[childKey]*tomb
	order []*tomb   // by first event; never changed in place
	queue []*entry  // ended tasks in memory, by their ends
	due   time.Time // until then nothing can leave
	timer *time.Timer
}

// queueEnded is called for a task whose run may have ended. The caller holds mu.
func (s *Supervisor) queueEnded(e *entry) {
	if s.cfg.Held <= 0 || !e.rec.Load().Status.Terminal() || s.tasks[e.id] != e {
		return
	}
	if e.waiting { // since an earlier end: those behind it must not wait for this one
		s.past.queue = slices.DeleteFunc(s.past.queue, func(o *entry) bool { return o == e })
	}
	e.waiting = true
	s.past.queue = append(s.past.queue, e)
}

// evict takes out of the memory what ended first, when more ended tasks are held
// than may be: an eighth of them at once, since each time costs a copy of the
// order. The caller holds mu.
func (s *Supervisor) evict(now time.Time) {
	p := &s.past
	if len(p.queue) <= s.cfg.Held || s.closing || now.Before(p.due) {
		return
	}
	most := len(p.queue) - (s.cfg.Held - s.cfg.Held/8)
	out := map[*entry]bool{}
	for range len(p.queue) {
		e := p.queue[0]
		wait, stays := s.stays(e, now)
		if len(out) >= most || wait > 0 {
			s.evictLater(now, wait)
			break
		}
		p.queue = p.queue[1:]
		switch {
		case !e.rec.Load().Status.Terminal():
			e.waiting = false // its next end brings it back
		case stays:
			p.queue = append(p.queue, e)
		default:
			out[e] = true
			s.forgetEnded(e)
		}
	}
	if len(out) == 0 {
		return
	}
	s.order = slices.DeleteFunc(slices.Clone(s.order), func(e *entry) bool { return out[e] })
	order := slices.Clone(p.order)
	for e := range out {
		order = append(order, p.tasks[e.id])
	}
	slices.SortFunc(order, byBirth)
	p.order = order
	p.queue = slices.Clone(p.queue) // what was taken from its front is let go of
}

func byBirth(a, b *tomb) int { return cmp.Compare(a.born, b.born) }

// evictLater looks again when the first is due, and not for each that follows it
// closely. The caller holds mu.
func (s *Supervisor) evictLater(now time.Time, wait time.Duration) {
	if wait <= 0 {
		return
	}
	wait = max(wait, s.grace()/8)
	s.past.due = now.Add(wait)
	if s.past.timer != nil {
		s.past.timer.Stop()
	}
	s.past.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.evict(time.Now())
	})
}

func (s *Supervisor) grace() time.Duration { return cmp.Or(s.cfg.Grace, evictGrace) }

// stays says how long a task must stay in memory still, or that it must for as long
// as something is as it is: it is given a further run, tasks below it are held, or
// it is a step of something at work, which finds it by its key. The caller holds mu.
func (s *Supervisor) stays(e *entry, now time.Time) (wait time.Duration, stays bool) {
	r := e.rec.Load()
	if !r.Status.Terminal() || r.EndTime == nil {
		return 0, true
	}
	last := *r.EndTime
	if e.recalled.After(last) {
		last = e.recalled
	}
	if wait = last.Add(s.grace()).Sub(now); wait > 0 {
		return wait, false
	}
	e.mu.Lock()
	children, live := len(e.children), e.live
	e.mu.Unlock()
	select {
	case <-live:
	default:
		return 0, true
	}
	p := e.parent()
	return 0, e.pinned > 0 || children > 0 || r.Key != "" && p != nil && !p.rec.Load().Status.Terminal()
}

// forgetEnded leaves of a task what is needed to find it in the log. The caller
// holds mu, and takes it out of order.
func (s *Supervisor) forgetEnded(e *entry) {
	r := e.rec.Load()
	g := &tomb{id: e.id, born: e.born, name: r.Name}
	if s.past.tasks == nil {
		s.past.tasks, s.past.names, s.past.keys = map[task.ID]*tomb{}, map[string]*tomb{}, map[childKey]*tomb{}
	}
	s.past.tasks[g.id] = g
	delete(s.tasks, e.id)
	if r.Name != "" && s.names[r.Name] == e {
		delete(s.names, r.Name)
		s.past.names[r.Name] = g
	}
	if k := (childKey{r.Parent, r.Key}); r.Key != "" && s.keys[k] == e {
		delete(s.keys, k)
		s.past.keys[k] = g
	}
	if p := e.parent(); p != nil {
		p.part(e)
	}
}

// recall brings a task back that has left the memory, with all that it is below.
// Nil: it has not, or cannot be read.
func (s *Supervisor) recall(id task.ID) *entry {
	for range recallTries {
		s.mu.RLock()
		e, g := s.tasks[id], s.past.tasks[id]
		s.mu.RUnlock()
		if e != nil || g == nil { // another was faster
			return e
		}
		r, ok := s.recorded(id)
		if !ok {
			return nil
		}
		if r.Parent != "" {
			s.entry(r.Parent)
		}
		if e := s.bring(g, r); e != nil {
			return e
		}
	}
	return nil
}

// bring puts a task back. Nil: it is not where it was any more, or what it is below
// is not in memory.
func (s *Supervisor) bring(g *tomb, r task.Record) *entry {
	id := g.id
	s.mu.Lock() // over both steps: nobody finds it in neither place
	defer s.mu.Unlock()
	if s.past.tasks[id] != g || s.past.tasks[r.Parent] != nil {
		return nil
	}
	delete(s.past.tasks, id)
	if s.past.names[g.name] == g {
		delete(s.past.names, g.name)
	}
	if k := (childKey{r.Parent, r.Key}); s.past.keys[k] == g {
		delete(s.past.keys, k)
	}
	s.past.order = slices.DeleteFunc(slices.Clone(s.past.order), func(o *tomb) bool { return o == g })
	s.retain(Old{Born: g.born, Task: r, recalled: true})
	return s.tasks[id]
}

// keyed brings back the child that a start by a key would find, if it has left the
// memory.
func (s *Supervisor) keyed(spec task.Spec) error {
	s.mu.RLock()
	g := s.past.keys[childKey{spec.Parent, spec.Key}]
	s.mu.RUnlock()
	if g != nil && s.recall(g.id) == nil {
		return fmt.Errorf("start task: the child %q of %s cannot be read from the log", spec.Key, spec.Parent)
	}
	return nil
}

// recorded reads one task from the log.
func (s *Supervisor) recorded(id task.ID) (task.Record, bool) {
	records, err := s.cfg.Recall(context.Background(), []task.ID{id})
	if err != nil || len(records) != 1 {
		return task.Record{}, false
	}
	return records[0], true
}

// was reports whether an ID or a name is taken by a task that has left the
// memory. The caller holds mu.
func (s *Supervisor) was(ref string) bool {
	return s.past.tasks[task.ID(ref)] != nil || s.past.names[ref] != nil
}

// shownMatches bounds the tasks that an ambiguous reference names from the log.
const shownMatches = 20

// findGone is [Supervisor.Find] among what has left the memory: the one that ref
// names, or those that begin with it. The caller holds mu.
func (s *Supervisor) findGone(ref string) (ids []task.ID, named bool) {
	if g := cmp.Or(s.past.tasks[task.ID(ref)], s.past.names[ref]); g != nil {
		return []task.ID{g.id}, true
	}
	if len(ref) < 2 {
		return nil, false
	}
	for id := range s.past.tasks {
		if strings.HasPrefix(string(id), ref) && len(ids) < shownMatches {
			ids = append(ids, id)
		}
	}
	return ids, false
}

// Listing is [Supervisor.List] with those that have left the memory, which are read
// as they are reached. It ends when yield returns false.
func (s *Supervisor) Listing(ctx context.Context, before task.Seq, yield func(task.Seq, task.Record) bool) error {
	s.mu.RLock()
	order := s.order[:len(s.order):len(s.order)]
	old := s.past.order
	s.mu.RUnlock()
	if before > 0 {
		order = order[:firstFrom(order, func(e *entry) bool { return e.born >= before })]
		old = old[:firstFrom(old, func(g *tomb) bool { return g.born >= before })]
	}
	var read map[task.ID]task.Record
	for len(order)+len(old) > 0 {
		if len(old) == 0 || len(order) > 0 && order[len(order)-1].born > old[len(old)-1].born {
			e := order[len(order)-1]
			order = order[:len(order)-1]
			if !yield(e.born, *e.rec.Load()) {
				return nil
			}
			continue
		}
		g := old[len(old)-1]
		r, ok := read[g.id]
		if !ok {
			var err error
			if read, err = s.chunk(ctx, old); err != nil {
				return err
			}
			if r, ok = read[g.id]; !ok {
				return fmt.Errorf("list tasks: the log does not know %s", g.id)
			}
		}
		old = old[:len(old)-1]
		if !yield(g.born, r) {
			return nil
		}
	}
	return nil
}

// firstFrom is where what is in order begins to be late.
func firstFrom[E any](in []E, late func(E) bool) int {
	n, _ := slices.BinarySearchFunc(in, true, func(e E, _ bool) int {
		if late(e) {
			return 1
		}
		return -1
	})
	return n
}

// chunk reads the newest of what has left the memory.
func (s *Supervisor) chunk(ctx context.Context, old []*tomb) (map[task.ID]task.Record, error) {
	old = old[max(0, len(old)-recallChunk):]
	ids := make([]task.ID, len(old))
	for i, g := range old {
		ids[i] = g.id
	}
	records, err := s.cfg.Recall(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	read := make(map[task.ID]task.Record, len(records))
	for _, r := range records {
		read[r.ID] = r
	}
	return read, nil
}

// Born is the number of the first event of a task; 0: it is not there.
func (s *Supervisor) Born(id task.ID) task.Seq {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.tasks[id]; e != nil {
		return e.born
	}
	if g := s.past.tasks[id]; g != nil {
		return g.born
	}
	return 0
}
