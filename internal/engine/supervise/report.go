package supervise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// reportEvery bounds how often the progress of all tasks is written.
const reportEvery = 50 * time.Millisecond

// reporter writes progress: drivers leave their newest here and go on, and one
// goroutine has an event made for each that has left some. What is in it is taken
// when the event is made, by whichever comes first.
type reporter struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	newest map[*entry]task.Progress
}

func (r *reporter) put(e *entry, p task.Progress) {
	r.mu.Lock()
	if r.newest == nil {
		r.newest = map[*entry]task.Progress{}
	}
	r.newest[e] = p
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it is awake and will look again
	}
}

// take gives what has not been written yet; nil: nothing. The caller holds the door.
func (r *reporter) take(e *entry) *task.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.newest[e]
	if !ok {
		return nil
	}
	delete(r.newest, e)
	return &p
}

// giveBack is for what was taken and could not be written.
func (r *reporter) giveBack(e *entry, p *task.Progress) {
	if p == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, newer := r.newest[e]; !newer {
		r.newest[e] = *p
	}
}

func (r *reporter) run(life context.Context, s *Supervisor) {
	for {
		select {
		case <-r.wake:
		case <-life.Done():
			return
		}
		r.mu.Lock()
		batch := slices.Collect(maps.Keys(r.newest))
		r.mu.Unlock()
		for _, e := range batch {
			// what a full disk refuses is for the next event
			_, _ = s.apply(life, e, lifecycle.Change{Verb: task.Report}, nil, "")
		}
		pause := time.NewTimer(reportEvery)
		select {
		case <-pause.C:
		case <-life.Done():
			pause.Stop()
			return
		}
	}
}

// Summarize replaces the summary of a running task, and leaves its progress
// alone. An empty text changes nothing.
func (s *Supervisor) Summarize(ctx context.Context, id task.ID, text string) error {
	e := s.entry(id)
	if e == nil {
		return fmt.Errorf("summarize: %w: %s", ErrUnknown, id)
	}
	if text == "" {
		return nil
	}
	_, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Report, Summary: text}, nil, "")
	return err
}
