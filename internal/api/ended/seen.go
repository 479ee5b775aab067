package ended

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// MarkSeen records in the log of an ended session that the user has seen how tasks ended. Tasks
// that are marked or have not ended stay unchanged.
func MarkSeen(ctx context.Context, place home.Session, ids []task.ID) error {
	wait, cancel := context.WithTimeoutCause(ctx, otherWait, home.ErrLocked)
	defer cancel()
	unlock, err := home.Await(wait, place.Lock)
	if err != nil {
		return fmt.Errorf("mark tasks of session %s as seen: %w", place.ID(), err)
	}
	defer unlock()
	log, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		return fmt.Errorf("mark tasks of session %s as seen: %w", place.ID(), stored.Explain(place, err))
	}
	defer func() { _ = log.Close() }() // each event was synced when it was written
	states, err := log.Some(ctx, ids)
	if err != nil {
		return fmt.Errorf("mark tasks of session %s as seen: %w", place.ID(), stored.Explain(place, err))
	}
	for _, s := range states {
		now := time.Now().UTC()
		next, err := lifecycle.Apply(s.Task, lifecycle.Change{Verb: task.MarkSeen, At: now})
		if errors.Is(err, lifecycle.ErrNoChange) {
			continue
		}
		if err == nil {
			_, err = log.Append(ctx, lifecycle.Entry{Verb: task.MarkSeen, At: now, Task: next})
		}
		if err != nil {
			return fmt.Errorf("mark task %s as seen: %w", s.Task.ID, err)
		}
	}
	return nil
}
