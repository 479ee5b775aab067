package console

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// FollowSessions runs a function for each live session until ctx ends, also for sessions that start
// later: it looks for them at every pace. A function that has returned is run again if its session is
// still found. FollowSessions returns when all functions have returned.
func (a *Console) FollowSessions(
	ctx context.Context, all bool, pace time.Duration, run func(context.Context, Session),
) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var mu sync.Mutex
	on := map[task.ID]bool{} // guarded by mu
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		sessions, err := a.Known(ctx, true, all)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		for _, s := range sessions {
			id := s.Info().Session
			mu.Lock()
			follows := on[id]
			on[id] = true
			mu.Unlock()
			if follows {
				continue
			}
			group.Go(func() {
				run(ctx, s)
				mu.Lock()
				defer mu.Unlock()
				delete(on, id)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WakeUp wakes the reader of a channel with a capacity of one.
func WakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it will look
	}
}
