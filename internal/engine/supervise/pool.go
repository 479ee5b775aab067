package supervise

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// pool hands out a limited number of places, first come, first served. Who had
// a place and wants it back goes before those who never had one.
type pool struct {
	cfg Pool

	mu    sync.Mutex
	taken int
	owing int       // counted, and not come for their place yet
	line  list.List // of *turn
	back  list.List // the same, for those who had one
	total int       // runs so far
	roots map[task.ID]*started
}

// turn is somebody who waits for a place. Thousands may wait, and all go at once.
type turn struct {
	came chan struct{} // closed when the place is theirs
	in   *list.List
	at   *list.Element
}

// join puts somebody at the end of a line. The caller holds mu.
func join(line *list.List) *turn {
	t := &turn{came: make(chan struct{}), in: line}
	t.at = line.PushBack(t)
	return t
}

// started is what one root has started.
type started struct {
	runs   int
	latest []time.Time // those of the last rateWindow, oldest first; not kept without a rate
}

// rateWindow is the time in which [Pool.Rate] is counted.
const rateWindow = time.Minute

func newPool(cfg Pool) *pool { return &pool{cfg: cfg, roots: map[task.ID]*started{}} }

// allows says whether a run may come up now. Who asks counts it before somebody
// else asks.
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

// count takes a run in, which comes for its place with enter, or is taken back by
// uncount.
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

// byRoot reports whether anything hangs on what one tree has started: else nothing is
// kept of it, and there may be as many trees as tasks.
func (p *pool) byRoot() bool { return p.cfg.PerRoot > 0 || p.cfg.Rate > 0 }

// countAll takes in what earlier hosts have started. When that was does not count:
// clocks may have been set since.
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

// of is what a root has started, without the times that do not count any more.
// The caller holds mu.
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

// enter asks for a place. Nil means that it is taken already; otherwise place
// counts from 1, and is to be waited for.
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

// wait waits for a turn. After an error the caller has no place.
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
	case <-t.came: // it came at the same moment: pass it on
		p.mu.Unlock()
		p.leave()
		return context.Cause(ctx)
	default:
	}
	t.in.Remove(t.at)
	p.mu.Unlock()
	return context.Cause(ctx)
}

// leave gives a place back.
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

// again asks for a place that was given back for a while.
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
