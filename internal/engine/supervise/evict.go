package supervise

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// evictGrace is how long an ended task stays in memory at least, if nothing else
// is asked for: who has just heard of its end asks about it.
const evictGrace = 30 * time.Second

// evictBytes is how much ended tasks in memory may take, if nothing else is asked for.
const evictBytes = 32 << 20

// entryWeight is about what an ended task in memory takes beside its texts.
const entryWeight = 3 << 10

// recallTries bounds how often it is tried to bring a task back that others bring
// back, and forget, at the same time.
const recallTries = 16

// recallChunk is how many tasks a listing reads from the log at once.
const recallChunk = 256

func (e *entry) ending() Ended { return NewEnded(e.born, e.root, e.rec.Load()) }

// past is what has left the memory, and what may. The supervisor's mu guards it.
type past struct {
	packed
	back  int       // how many of those are in memory again
	queue []*entry  // ended tasks in memory, by their ends
	bytes int       // that those in the queue take
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
		s.past.bytes -= e.weight
	}
	e.waiting, e.weight = true, e.weigh()
	s.past.queue = append(s.past.queue, e)
	s.past.bytes += e.weight
}

// weigh is about how much memory an ended task takes.
func (e *entry) weigh() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return entryWeight + lifecycle.Weight(e.rec.Load()) + len(e.spec.Input)
}

// evict takes out of the memory what ended first, when more ended tasks are held
// than may be, or when they take too much: an eighth more than that at once, since
// each time costs a copy of the order. The caller holds mu.
func (s *Supervisor) evict(now time.Time) {
	p := &s.past
	most, bytes := len(p.queue)-s.cfg.Held, p.bytes-s.heldBytes()
	if s.cfg.Held <= 0 || most <= 0 && bytes <= 0 || s.closing || bytes <= 0 && now.Before(p.due) {
		return
	}
	if most > 0 {
		most += s.cfg.Held / 8
	}
	if bytes > 0 {
		bytes += s.heldBytes() / 8
	}
	out := map[*entry]bool{}
	var gone []place
	for range len(p.queue) {
		if len(out) >= most && bytes <= 0 {
			break
		}
		e := p.queue[0]
		wait, stays := s.stays(e, now, bytes > 0)
		if wait > 0 {
			s.evictLater(now, wait, bytes > 0)
			break
		}
		p.queue = p.queue[1:]
		switch {
		case !e.rec.Load().Status.Terminal():
			e.waiting = false // its next end brings it back
			p.bytes, bytes = p.bytes-e.weight, bytes-e.weight
		case stays:
			p.queue = append(p.queue, e)
		default:
			out[e] = true
			gone = append(gone, s.forgetEnded(e))
			p.bytes, bytes = p.bytes-e.weight, bytes-e.weight
		}
	}
	if len(out) == 0 {
		return
	}
	s.order = slices.DeleteFunc(slices.Clone(s.order), func(e *entry) bool { return out[e] })
	p.sortIn(gone)
	p.queue = slices.Clone(p.queue) // what was taken from its front is let go of
}

// evictLater looks again when the first is due, and not for each that follows it
// closely unless too much memory is taken. The caller holds mu.
func (s *Supervisor) evictLater(now time.Time, wait time.Duration, hurried bool) {
	if wait <= 0 {
		return
	}
	if !hurried {
		wait = max(wait, s.grace()/8)
	}
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

// hurriedGrace is grace while ended tasks take too much memory.
func (s *Supervisor) hurriedGrace() time.Duration { return s.grace() / 16 }

func (s *Supervisor) heldBytes() int { return cmp.Or(s.cfg.HeldBytes, evictBytes) }

// stays says how long a task must stay in memory still, or that it must for as long
// as something is as it is: it is given a further run, tasks below it are held, or
// it is a step of something at work, which finds it by its key. hurried: too much memory
// is taken. The caller holds mu.
func (s *Supervisor) stays(e *entry, now time.Time, hurried bool) (wait time.Duration, stays bool) {
	r := e.rec.Load()
	if !r.Status.Terminal() || r.EndTime == nil {
		return 0, true
	}
	last := *r.EndTime
	if e.recalled.After(last) {
		last = e.recalled
	}
	grace := s.grace()
	if hurried {
		grace = s.hurriedGrace()
	}
	if wait = last.Add(grace).Sub(now); wait > 0 {
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
// holds mu, takes it out of the one order and into the other.
func (s *Supervisor) forgetEnded(e *entry) place {
	g := e.ending()
	delete(s.tasks, e.id)
	s.dropName(e)
	if k := (childKey{g.Parent, g.Key}); s.keys[k] == e {
		delete(s.keys, k)
	}
	at, known := s.past.add(&g)
	if known {
		s.past.back--
	}
	if p := e.parent(); p != nil {
		p.part(e)
	}
	return at
}

// Remember takes in tasks of earlier hosts that have ended. Their records are read by
// Recall when they are asked for. It comes before [Supervisor.Adopt], which is given
// none of them, and the parents of all that it is given.
func (s *Supervisor) Remember(ended iter.Seq[Ended]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []place
	for g := range ended {
		at, _ := s.past.add(&g)
		all = append(all, at)
		if p := s.pools[g.Pool]; p != nil {
			p.countAll(g.Root, g.Runs)
		}
	}
	s.past.sortIn(all)
}

// Ended yields what the next host of the session must know of every task that has
// ended, in the order of their first events, and returns the IDs of the others. It is a
// snapshot, but for what is given a further run meanwhile; no lock is held while it yields.
func (s *Supervisor) Ended() (ended iter.Seq[Ended], live []task.ID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var held []*entry
	for _, e := range s.order {
		if e.rec.Load().Status.Terminal() {
			held = append(held, e)
		} else {
			live = append(live, e.id)
		}
	}
	for _, e := range s.tasks {
		if e.born == 0 { // the log may have it, and not have said so
			live = append(live, e.id)
		}
	}
	pages, order := s.past.pages, s.past.order
	return func(yield func(Ended) bool) {
		held := held
		for _, at := range order {
			born := pages.born(at)
			for len(held) > 0 && held[0].born < born {
				if !yield(held[0].ending()) {
					return
				}
				held = held[1:]
			}
			if (len(held) == 0 || held[0].born > born) && !yield(pages.get(at)) {
				return
			}
		}
		for _, e := range held {
			if !yield(e.ending()) {
				return
			}
		}
	}, live
}

// gone reports whether a task has left the memory. The caller holds mu.
func (s *Supervisor) gone(id task.ID) bool {
	_, was := s.past.id(id)
	return was && s.tasks[id] == nil
}

// recall brings a task back that has left the memory, with all that it is below, as far
// as that can be read. Nil: it has not, or cannot be read itself.
func (s *Supervisor) recall(id task.ID) *entry {
	for range recallTries {
		s.mu.RLock()
		e := s.tasks[id]
		at, was := s.past.id(id)
		s.mu.RUnlock()
		if e != nil || !was { // another was faster
			return e
		}
		r, ok := s.recorded(id)
		if !ok {
			return nil
		}
		alone := r.Parent != "" && s.entry(r.Parent) == nil // a damaged record must not take those below it along
		if e := s.bring(at, r, alone); e != nil {
			return e
		}
	}
	return nil
}

// bring puts a task back, of which what is kept stays where it is. Nil: it has come back,
// and had a further run, since it was read, or what it is below is not in memory, where
// it is not to be alone.
func (s *Supervisor) bring(at place, r task.Record, alone bool) *entry {
	s.mu.Lock() // over all: nobody finds it twice
	defer s.mu.Unlock()
	if now, _ := s.past.id(r.ID); now != at || !s.gone(r.ID) || s.gone(r.Parent) && !alone {
		return nil
	}
	s.retain(Old{Born: s.past.pages.born(at), Task: r, recalled: true})
	s.past.back++
	e := s.tasks[r.ID]
	e.root = s.past.pages.get(at).Root // nobody else has it yet
	return e
}

// keyed brings back the child that a start by a key would find, if it has left the
// memory.
func (s *Supervisor) keyed(spec task.Spec) error {
	if spec.Key == "" {
		return nil
	}
	s.mu.RLock()
	at, was := s.past.key(childKey{spec.Parent, spec.Key})
	pages := s.past.pages
	s.mu.RUnlock()
	if was && s.recall(pages.id(at)) == nil {
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
// memory once. The caller holds mu.
func (s *Supervisor) was(ref string) bool {
	_, id := s.past.id(task.ID(ref))
	_, name := s.past.name(ref)
	return id || name
}

// shownMatches bounds the tasks that an ambiguous reference names from the log.
const shownMatches = 20

// findGone is [Supervisor.Find] among what has left the memory: the one that ref
// names, or those that begin with it. The caller holds mu.
func (s *Supervisor) findGone(ref string) (ids []task.ID, named bool) {
	p := &s.past
	at, named := p.id(task.ID(ref))
	if !named {
		at, named = p.name(ref)
	}
	if named {
		return []task.ID{p.pages.id(at)}, true
	}
	if len(ref) < 2 {
		return nil, false
	}
	for _, at := range p.order {
		if !p.pages.begins(at, ref) || len(ids) == shownMatches {
			continue
		}
		if id := p.pages.id(at); s.tasks[id] == nil {
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
	pages, old := s.past.pages, s.past.order
	s.mu.RUnlock()
	if before > 0 {
		order = order[:firstFrom(order, func(e *entry) bool { return e.born >= before })]
		old = old[:firstFrom(old, func(at place) bool { return pages.born(at) >= before })]
	}
	var read map[task.ID]task.Record
	for len(order)+len(old) > 0 {
		var born task.Seq
		if len(old) > 0 {
			born = pages.born(old[len(old)-1])
		}
		if n := len(order) - 1; n >= 0 && order[n].born >= born {
			if order[n].born == born { // it has come back
				old = old[:len(old)-1]
			}
			if !yield(order[n].born, *order[n].rec.Load()) {
				return nil
			}
			order = order[:n]
			continue
		}
		id := pages.id(old[len(old)-1])
		r, ok := read[id]
		if !ok {
			var err error
			if read, err = s.chunk(ctx, pages, old); err != nil {
				return err
			}
			if r, ok = read[id]; !ok {
				return fmt.Errorf("list tasks: the log does not know %s", id)
			}
		}
		old = old[:len(old)-1]
		if !yield(born, r) {
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
func (s *Supervisor) chunk(ctx context.Context, pages pages, old []place) (map[task.ID]task.Record, error) {
	old = old[max(0, len(old)-recallChunk):]
	ids := make([]task.ID, len(old))
	for i, at := range old {
		ids[i] = pages.id(at)
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
	if at, was := s.past.id(id); was {
		return s.past.pages.born(at)
	}
	return 0
}
