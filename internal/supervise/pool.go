package supervise

import (
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
	line  []chan struct{} // closed when the place is theirs
	back  []chan struct{} // the same, for those who had one
	total int             // runs so far
	roots map[task.ID]*started
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
	case p.cfg.Queue > 0 && len(p.line) >= p.cfg.Queue:
		return &LimitError{Limit: "queue", N: p.cfg.Size}
	}
	return nil
}

// count takes a run in, and uncount takes it back.
func (p *pool) count(root task.ID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
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

// enter asks for a place. A nil channel means that it is taken already;
// otherwise place counts from 1, and the place is the caller's when the channel
// is closed.
func (p *pool) enter() (turn chan struct{}, place int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken < p.cfg.Size {
		p.taken++
		return nil, 0
	}
	turn = make(chan struct{})
	p.line = append(p.line, turn)
	return turn, len(p.line)
}

// wait waits for a turn. After an error the caller has no place.
func (p *pool) wait(ctx context.Context, turn chan struct{}) error {
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-turn: // it came at the same moment: pass it on
		p.mu.Unlock()
		p.leave()
		return context.Cause(ctx)
	default:
	}
	same := func(c chan struct{}) bool { return c == turn }
	p.line = slices.DeleteFunc(p.line, same)
	p.back = slices.DeleteFunc(p.back, same)
	p.mu.Unlock()
	return context.Cause(ctx)
}

// leave gives a place back.
func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range []*[]chan struct{}{&p.back, &p.line} {
		if len(*line) > 0 {
			close((*line)[0])
			*line = (*line)[1:]
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
	turn := make(chan struct{})
	p.back = append(p.back, turn)
	p.mu.Unlock()
	return p.wait(ctx, turn)
}
