package session

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// newestHeld is how many of the ended tasks a session that opens has in memory at
// least: lists for agents are of what is in memory.
const newestHeld = 256

// bequest is what a host leaves to the next as the summary of the log, so that it need not read
// the record of every task that has ended. It stays in the form in which it is written: there
// may be a hundred thousand.
type bequest struct {
	live  []task.ID
	parts [][]byte // the ended tasks, in the order of their first events
}

// partBytes is about how long a part is.
const partBytes = 32 << 10

// bequeath yields a bequest part by part, each in the memory of the one before: first what lives.
func bequeath(ended iter.Seq[supervise.Ended], live []task.ID) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := make([]byte, 0, partBytes+partBytes/8)
		for _, id := range live {
			buf = append(append(buf, id...), ' ')
		}
		if !yield(buf) {
			return
		}
		buf = buf[:0]
		for g := range ended {
			if buf = g.Append(buf); len(buf) < partBytes {
				continue
			}
			if !yield(buf) {
				return
			}
			buf = buf[:0]
		}
		if len(buf) > 0 {
			yield(buf)
		}
	}
}

// readBequest reads what [bequeath] has yielded. It is not ok if that was not of this form.
func readBequest(parts [][]byte) (b bequest, ok bool) {
	if len(parts) == 0 {
		return b, false
	}
	for id := range strings.FieldsSeq(string(parts[0])) {
		b.live = append(b.live, task.ID(id))
	}
	b.parts = parts[1:]
	for _, part := range b.parts {
		for len(part) > 0 {
			_, rest, ok := supervise.ReadEnded(part)
			if !ok {
				return bequest{}, false
			}
			part = rest
		}
	}
	return b, true
}

// ended are the tasks that have ended.
func (b bequest) ended(yield func(supervise.Ended) bool) {
	for _, part := range b.parts {
		for len(part) > 0 {
			g, rest, ok := supervise.ReadEnded(part)
			if !ok || !yield(g) {
				return
			}
			part = rest
		}
	}
}

// takeIn gives the supervisor what earlier hosts left.
func (s *Session) takeIn(ctx context.Context) error {
	if s.log.Last() == 0 {
		return nil
	}
	states, ended, err := s.left(ctx)
	if err != nil {
		return err
	}
	old := make([]supervise.Old, len(states))
	begun := archive.Begun(states, s.cfg.Place.ExitFile)
	for i, st := range states {
		old[i] = supervise.Old{Born: st.Born, Task: st.Task}
		if p, ok := begun[st.Task.ID]; ok {
			old[i].Begun = &p
		}
	}
	s.restore(states, ended)
	s.sup.Remember(ended)
	if err := s.sup.Adopt(ctx, old, s.kinds.For); err != nil {
		return err
	}
	_ = failpoint.Hit("session/adopted")
	s.sweepSidecars()
	if err := s.settleLost(ctx, states); err != nil {
		return err
	}
	s.endOrphans()
	return nil
}

// left returns the tasks that are to be in memory, and those for which the summary
// stands, both in the order of their first events.
func (s *Session) left(ctx context.Context) ([]journal.State, iter.Seq[supervise.Ended], error) {
	upTo, parts, err := s.log.Summary(ctx)
	if err != nil {
		return nil, nil, err
	}
	sum, ok := readBequest(parts)
	if !ok {
		upTo = s.log.Last()
		if sum, err = s.drawUp(ctx); err != nil {
			return nil, nil, err
		}
	} else {
		s.sums.upTo.Store(int64(upTo))
	}
	states, err := s.log.Changed(ctx, upTo)
	if err != nil {
		return nil, nil, err
	}
	p := newPast(sum, states)
	for ids := p.first(); len(ids) > 0; ids = p.above() {
		more, err := s.log.Some(ctx, ids)
		if err != nil {
			return nil, nil, err
		}
		p.add(more)
	}
	slices.SortFunc(p.states, func(a, b journal.State) int { return int(a.Born - b.Born) })
	return p.states, p.rest, nil
}

// drawUp reads what an earlier host has not left: all tasks, of which few are in memory at once.
func (s *Session) drawUp(ctx context.Context) (sum bequest, err error) {
	roots := map[task.ID]task.ID{} // of what may be above others
	var part []byte
	err = s.log.Walk(ctx, func(states []journal.State) error {
		for _, st := range states {
			r := st.Task
			root := cmp.Or(roots[r.Parent], r.Owner, r.ID)
			if r.Traits().Work != task.ByCommand {
				roots[r.ID] = root
			}
			if !r.Status.Terminal() {
				sum.live = append(sum.live, r.ID)
				continue
			}
			g := supervise.NewEnded(st.Born, root, &r)
			part = g.Append(part)
		}
		sum.parts, part = append(sum.parts, slices.Clip(part)), nil
		return nil
	})
	return sum, err
}

// past sorts out of a summary what must be read all the same.
type past struct {
	sum    bequest
	newest []task.ID // of the ended
	steps  []step
	states []journal.State
	read   map[task.ID]task.Record // those in states
	asked  map[task.ID]bool
}

// step is an ended task that its parent finds by a key.
type step struct{ id, parent task.ID }

func newPast(sum bequest, changed []journal.State) *past {
	p := &past{sum: sum, read: map[task.ID]task.Record{}, asked: map[task.ID]bool{}}
	for g := range sum.ended {
		if p.newest = append(p.newest, g.ID); len(p.newest) == 2*newestHeld {
			p.newest = append(p.newest[:0], p.newest[newestHeld:]...)
		}
		if g.Key != "" {
			p.steps = append(p.steps, step{g.ID, g.Parent})
		}
	}
	p.newest = p.newest[max(0, len(p.newest)-newestHeld):]
	p.add(changed)
	return p
}

func (p *past) add(states []journal.State) {
	p.states = append(p.states, states...)
	for _, st := range states {
		p.read[st.Task.ID] = st.Task
		p.asked[st.Task.ID] = true
	}
}

// want adds an ID to those that are to be read, once.
func (p *past) want(ids []task.ID, id task.ID) []task.ID {
	if id == "" || p.asked[id] {
		return ids
	}
	p.asked[id] = true
	return append(ids, id)
}

// first is what had not ended, and the newest of what had.
func (p *past) first() (ids []task.ID) {
	for _, id := range slices.Concat(p.sum.live, p.newest) {
		ids = p.want(ids, id)
	}
	return ids
}

// above is what those that were read are below, and the steps of what is at work,
// which are found by their keys.
func (p *past) above() (ids []task.ID) {
	for _, r := range p.read {
		ids = p.want(ids, r.Parent)
	}
	for _, st := range p.steps {
		if r, ok := p.read[st.parent]; ok && !r.Status.Terminal() {
			ids = p.want(ids, st.id)
		}
	}
	return ids
}

// rest is what was not read.
func (p *past) rest(yield func(supervise.Ended) bool) {
	for g := range p.sum.ended {
		if !p.asked[g.ID] && !yield(g) {
			return
		}
	}
}

// A summary is written anew when the log has grown by so many events, and by such a
// share of all: what a host that is killed leaves is read event by event from the last.
const (
	fewEvents   = 4096
	fewAtTheEnd = 768 // when the session closes
	fewShare    = 8
)

// sums is how far summaries have come.
type sums struct {
	upTo atomic.Int64
	due  chan struct{}
}

func newSums() *sums { return &sums{due: make(chan struct{}, 1)} }

func (u *sums) behind(last task.Seq, few int64) bool {
	return int64(last)-u.upTo.Load() >= max(few, int64(last)/fewShare)
}

// ended is told how far the log is when a task has ended.
func (u *sums) ended(last task.Seq) {
	if !u.behind(last, fewEvents) {
		return
	}
	select {
	case u.due <- struct{}{}:
	default: // it is told already
	}
}

// keepSummary writes summaries while the session lives.
func (s *Session) keepSummary() {
	for {
		select {
		case <-s.sums.due:
			s.summarize(fewEvents)
		case <-s.closes:
			return
		}
	}
}

// summarize writes a summary, if the last is so far behind. What goes wrong costs
// the next host time.
func (s *Session) summarize(few int64) {
	last := s.log.Last() // before the look: what comes meanwhile is read as it is
	if !s.sums.behind(last, few) {
		return
	}
	if s.log.Summarize(context.Background(), last, bequeath(s.sup.Ended())) == nil {
		s.sums.upTo.Store(int64(last))
	}
}
