package supervise

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// pool hands out a limited number of slots, first come, first served. A task that had a slot
// and wants it back precedes those that never had one.
type pool struct {
	cfg Pool

	mu    sync.Mutex
	taken int
	owing int       // counted starts that have not called enter yet
	line  list.List // of *turn
	back  list.List // the same, of those that had a slot
	total int       // number of runs so far
	roots map[task.ID]*started
}

// turn is one waiter for a slot. Thousands may wait, and all may leave at once.
type turn struct {
	came chan struct{} // closed when the slot is assigned
	in   *list.List
	at   *list.Element
}

// join appends a waiter to a queue. The caller holds mu.
func join(line *list.List) *turn {
	t := &turn{came: make(chan struct{}), in: line}
	t.at = line.PushBack(t)
	return t
}

// started counts the starts of one root.
type started struct {
	runs   int
	latest []time.Time // the starts of the last rateWindow, oldest first; empty without a rate
}

// rateWindow is the period of [Pool.Rate].
const rateWindow = time.Minute

func newPool(cfg Pool) *pool { return &pool{cfg: cfg, roots: map[task.ID]*started{}} }

// allows reports whether a run may start now. The caller counts the run before anybody else
// calls allows.
func (p *pool) allows(root task.ID, depth int, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of(root, now)
	switch {
	case p.cfg.Depth > 0 && depth > p.cfg.Depth:
		return &LimitError{Limit: "depth", N: p.cfg.Depth}
	case p.cfg.PerRoot > 0 && of.runs >= p.cfg.PerRoot:
		return &LimitError{Limit: "per_root", N: p.cfg.PerRoot}
	case p.cfg.PerSession > 0 && p.total >= p.cfg.PerSession:
		return &LimitError{Limit: "per_session", N: p.cfg.PerSession}
	case p.cfg.Rate > 0 && len(of.latest) >= p.cfg.Rate:
		return &LimitError{Limit: "rate", N: p.cfg.Rate, Wait: of.latest[len(of.latest)-p.cfg.Rate].Add(rateWindow).Sub(now)}
	case p.cfg.Queue > 0 && p.taken+p.line.Len()+p.owing >= p.cfg.Size+p.cfg.Queue:
		return &LimitError{Limit: "queue", N: p.cfg.Size}
	}
	return nil
}

// count counts a run. A call of enter or uncount follows.
func (p *pool) count(root task.ID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	p.owing++
	if !p.byRoot() {
		return
	}
	of := p.of(root, now)
	p.roots[root] = of
	of.runs++
	if p.cfg.Rate > 0 {
		of.latest = append(of.latest, now)
	}
}

// byRoot reports whether a limit depends on the starts of one tree. If not, nothing is stored
// per tree, since there may be as many trees as tasks.
func (p *pool) byRoot() bool { return p.cfg.PerRoot > 0 || p.cfg.Rate > 0 }

// countAll counts the starts of earlier hosts, without their times: the clock may have been set
// since.
func (p *pool) countAll(root task.ID, runs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += runs
	if !p.byRoot() {
		return
	}
	of := p.of(root, time.Time{})
	p.roots[root] = of
	of.runs += runs
}

func (p *pool) uncount(root task.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	p.owing--
	if !p.byRoot() {
		return
	}
	of := p.roots[root]
	if of.runs--; len(of.latest) > 0 {
		of.latest = of.latest[:len(of.latest)-1]
	}
}

// of returns the starts of a root, without expired times. The caller holds mu.
func (p *pool) of(root task.ID, now time.Time) *started {
	of := p.roots[root]
	if of == nil {
		return &started{}
	}
	old := 0
	for old < len(of.latest) && now.Sub(of.latest[old]) >= rateWindow {
		old++
	}
	of.latest = slices.Delete(of.latest, 0, old)
	return of
}

// enter requests a slot. If turn is nil the slot is assigned; otherwise place is the position
// in the queue, from 1, and the caller calls wait.
func (p *pool) enter() (t *turn, place int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owing--
	if p.taken < p.cfg.Size {
		p.taken++
		return nil, 0
	}
	return join(&p.line), p.line.Len()
}

// wait waits for a turn. After an error the caller has no slot.
func (p *pool) wait(ctx context.Context, t *turn) error {
	if t == nil {
		return nil
	}
	select {
	case <-t.came:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-t.came: // assigned at the same moment: pass it on
		p.mu.Unlock()
		p.leave()
		return context.Cause(ctx)
	default:
	}
	t.in.Remove(t.at)
	p.mu.Unlock()
	return context.Cause(ctx)
}

// leave returns a slot.
func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range []*list.List{&p.back, &p.line} {
		if first := line.Front(); first != nil {
			close(line.Remove(first).(*turn).came)
			return
		}
	}
	p.taken--
}

// again requests a slot that was returned temporarily.
func (p *pool) again(ctx context.Context) error {
	p.mu.Lock()
	if p.taken < p.cfg.Size {
		p.taken++
		p.mu.Unlock()
		return nil
	}
	t := join(&p.back)
	p.mu.Unlock()
	return p.wait(ctx, t)
}
