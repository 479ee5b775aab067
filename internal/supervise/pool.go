package supervise

import (
	"context"
	"slices"
	"sync"
)

// pool hands out a limited number of places, first come, first served. Who had
// a place and wants it back goes before those who never had one.
type pool struct {
	cfg Pool

	mu    sync.Mutex
	taken int
	line  []chan struct{} // closed when the place is theirs
	back  []chan struct{} // the same, for those who had one
}

func newPool(cfg Pool) *pool { return &pool{cfg: cfg} }

func (p *pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.line)
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
