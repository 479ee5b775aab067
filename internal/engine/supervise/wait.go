package supervise

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Await waits for the end of a task or for its move to the background; the returned record has
// not ended in the second case. It is for the parent, with the parent's context, if the task
// has one: in a tree that is being stopped it returns with the parent's own stop.
func (s *Supervisor) Await(ctx context.Context, id task.ID) (task.Record, error) {
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	live, promoted := e.channels()
	select {
	case <-live:
		// A stop of the parent's tree ends the children first. The parent follows, and must
		// start nothing new meanwhile.
		if p := e.parent(); p != nil && p.isFrozen() {
			<-ctx.Done()
			return *e.rec.Load(), context.Cause(ctx)
		}
	case <-promoted:
	case <-ctx.Done():
		return *e.rec.Load(), context.Cause(ctx)
	}
	return *e.rec.Load(), nil
}

// Wait waits for the end of all tasks, or with first of the first one. It returns the current
// records, also with an error.
func (s *Supervisor) Wait(ctx context.Context, ids []task.ID, first bool) ([]task.Record, error) {
	entries := make([]*entry, len(ids))
	for i, id := range ids {
		if entries[i] = s.entry(id); entries[i] == nil {
			return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
		}
	}
	for {
		s.mu.RLock()
		ended := s.ended
		s.mu.RUnlock()
		recs := make([]task.Record, len(ids))
		done := 0
		for i, e := range entries {
			live, _ := e.channels()
			select {
			case <-live:
				done++
			default:
			}
			recs[i] = *e.rec.Load()
		}
		if done == len(ids) || first && done > 0 {
			return recs, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			for i, e := range entries { // records change without an end, too
				recs[i] = *e.rec.Load()
			}
			return recs, context.Cause(ctx)
		}
	}
}

func (e *entry) channels() (live, promoted <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live, e.promoted
}

// Promote moves a foreground task to the background: its waiting caller continues, and its
// owner is notified of the end.
func (s *Supervisor) Promote(ctx context.Context, id task.ID) (task.Record, error) {
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	rec, err := s.apply(ctx, e, lifecycle.Change{Verb: task.Background}, nil, "")
	if err != nil {
		return rec, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free()
	return rec, nil
}

// free releases the callers that wait for a foreground task. It may be called concurrently: any
// goroutine promotes a further run in the background as soon as its record says so. The caller
// holds mu.
func (e *entry) free() {
	select {
	case <-e.promoted:
	default:
		close(e.promoted)
	}
}

// Done is closed when the present run of a task has ended. It is nil for an unknown task.
func (s *Supervisor) Done(id task.ID) <-chan struct{} {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	live, _ := e.channels()
	return live
}
