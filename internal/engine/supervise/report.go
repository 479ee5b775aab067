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

// reporter writes progress. Drivers store their newest progress and continue; one goroutine
// writes an event for each task with new progress. The event takes the value at the time when
// it is written.
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
	default: // the reporter is awake and reads it
	}
}

// take removes and returns the unwritten progress; nil: none. The caller holds the door.
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

// giveBack stores progress again that could not be written.
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
			// after an error, such as a full disk, the next event has the progress
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

// Summarize replaces the summary of a running task and keeps its progress. An empty text
// changes nothing.
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
