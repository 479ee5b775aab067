package supervise

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Await waits for the end of a task, or for its move to the background: then
// the record that is returned has not ended. It is for the parent, with the
// parent's context, if the task has one: in a tree that is being stopped it
// returns with the parent's own stop.
func (s *Supervisor) Await(ctx context.Context, id task.ID) (task.Record, error) {
	e := s.entry(id)
	if e == nil {
		return task.Record{}, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	live, promoted := e.channels()
	select {
	case <-live:
		// A stop of the parent's tree ends children first. The parent is next, and
		// must not go on to anything new meanwhile.
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

// Wait waits for the end of tasks, or of the first of them with first. The
// records are those of now, also beside an error.
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
			for i, e := range entries { // much may have changed without an end
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

// Promote moves a foreground task to the background: whoever waits for it is
// freed, and its owner is told of the end.
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

// free lets those go who wait for a task in the foreground. Several may do so at once:
// a further run in the background is promoted by anybody as soon as its record says so.
// The caller holds mu.
func (e *entry) free() {
	select {
	case <-e.promoted:
	default:
		close(e.promoted)
	}
}

// Done is closed when the present run of a task has ended. It is nil for a task
// that is not there.
func (s *Supervisor) Done(id task.ID) <-chan struct{} {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	live, _ := e.channels()
	return live
}
