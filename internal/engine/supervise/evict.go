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

// evictGrace is the default of [Config.Grace]: how long an ended task stays in memory, because
// clients that were just notified of its end ask for it.
const evictGrace = 30 * time.Second

// evictBytes is the default of [Config.HeldBytes].
const evictBytes = 32 << 20

// entryWeight is the approximate size of an ended task in memory, without its strings.
const entryWeight = 3 << 10

// recallTries limits the attempts to load a task that other goroutines load and evict at the
// same time.
const recallTries = 16

// recallChunk is how many tasks a listing reads from the log at once.
const recallChunk = 256

func (e *entry) ending() Ended { return NewEnded(e.born, e.root, e.rec.Load()) }

// past has the tasks that were evicted, and the queue of those that may be. Guarded by the
// supervisor's mu.
type past struct {
	packed
	back  int       // how many of packed are in memory again
	queue []*entry  // ended tasks in memory, by time of end
	bytes int       // total weight of the queue
	due   time.Time // nothing can be evicted before
	timer *time.Timer
}

// queueEnded adds a task whose run may have ended to the queue. The caller holds mu.
func (s *Supervisor) queueEnded(e *entry) {
	if s.cfg.Held <= 0 || !e.rec.Load().Status.Terminal() || s.tasks[e.id] != e {
		return
	}
	if e.waiting { // queued since an earlier end; it must not delay the entries after it
		s.past.queue = slices.DeleteFunc(s.past.queue, func(o *entry) bool { return o == e })
		s.past.bytes -= e.weight
	}
	e.waiting, e.weight = true, e.weigh()
	s.past.queue = append(s.past.queue, e)
	s.past.bytes += e.weight
}

// weigh returns the approximate size of an ended task in memory.
func (e *entry) weigh() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return entryWeight + lifecycle.Weight(e.rec.Load()) + len(e.spec.Input)
}

// evict removes the tasks that ended first when there are more than Held, or when they exceed
// HeldBytes. It evicts an eighth more than needed, because each pass copies the order. The
// caller holds mu.
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
			e.waiting = false // its next end queues it again
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
	p.queue = slices.Clone(p.queue) // frees the removed part at the front
}

// evictLater schedules the next pass for the time when the first task is due, and not for each
// the next end if it follows closely, unless memory is exceeded. The caller holds mu.
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

// hurriedGrace is grace while ended tasks exceed HeldBytes.
func (s *Supervisor) hurriedGrace() time.Duration { return s.grace() / 16 }

func (s *Supervisor) heldBytes() int { return cmp.Or(s.cfg.HeldBytes, evictBytes) }

// stays returns how long a task must stay in memory, or that it must stay while a condition
// holds: a further run is being recorded, tasks below it are in memory, or it is a step of a
// running task, which finds it by its key. hurried: HeldBytes is exceeded. The caller holds mu.
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

// forgetEnded keeps of a task only the data to find it in the log. The caller holds mu
// and moves the task from s.order to the packed order.
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

// Remember adds tasks of earlier hosts that have ended. Recall reads their records on demand.
// Call it before [Supervisor.Adopt], which gets none of these tasks, but the ancestors of every
// task that it gets.
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

// Ended yields what the next host of the session must know of every ended task, in the order of
// their first events, and returns the IDs of the others. It is a snapshot, except for tasks
// that get a further run meanwhile; it holds no lock while it yields.
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
		if e.born == 0 { // the log may have the event without having confirmed it
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

// gone reports whether a task was evicted from memory. The caller holds mu.
func (s *Supervisor) gone(id task.ID) bool {
	_, was := s.past.id(id)
	return was && s.tasks[id] == nil
}

// recall loads an evicted task with its ancestors, as far as they can be read. It returns nil
// if the task was not evicted or cannot be read.
func (s *Supervisor) recall(id task.ID) *entry {
	for range recallTries {
		s.mu.RLock()
		e := s.tasks[id]
		at, was := s.past.id(id)
		s.mu.RUnlock()
		if e != nil || !was { // another goroutine loaded it
			return e
		}
		r, ok := s.recorded(id)
		if !ok {
			return nil
		}
		alone := r.Parent != "" && s.entry(r.Parent) == nil // a damaged record of an ancestor must not hide this task
		if e := s.bring(at, r, alone); e != nil {
			return e
		}
	}
	return nil
}

// bring puts a loaded task back; its packed entry stays. It returns nil if the task was loaded
// meanwhile and had a further run, or if its parent is not in memory but must be.
func (s *Supervisor) bring(at place, r task.Record, alone bool) *entry {
	s.mu.Lock() // held throughout: no reader sees the task twice
	defer s.mu.Unlock()
	if now, _ := s.past.id(r.ID); now != at || !s.gone(r.ID) || s.gone(r.Parent) && !alone {
		return nil
	}
	s.retain(Old{Born: s.past.pages.born(at), Task: r, recalled: true})
	s.past.back++
	e := s.tasks[r.ID]
	e.root = s.past.pages.get(at).Root // no other goroutine has it yet
	return e
}

// keyed loads the child that a start with a key would find, if it was evicted.
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

// was reports whether an evicted task has an ID or a name. The caller holds mu.
func (s *Supervisor) was(ref string) bool {
	_, id := s.past.id(task.ID(ref))
	_, name := s.past.name(ref)
	return id || name
}

// shownMatches limits how many evicted tasks an ambiguous reference lists.
const shownMatches = 20

// findGone is [Supervisor.Find] for evicted tasks: the one that ref names, or those whose IDs
// begin with it. The caller holds mu.
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

// Listing is [Supervisor.List] including evicted tasks, which it reads from the log when it
// reaches them. It ends when yield returns false.
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
			if order[n].born == born { // it was loaded meanwhile
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

// firstFrom returns the index of the first element of in for which late is true.
func firstFrom[E any](in []E, late func(E) bool) int {
	n, _ := slices.BinarySearchFunc(in, true, func(e E, _ bool) int {
		if late(e) {
			return 1
		}
		return -1
	})
	return n
}

// chunk reads the newest of the evicted tasks.
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

// Born returns the sequence number of the first event of a task, or 0 for an unknown task.
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
