package task

import (
	"context"
	"fmt"
	"time"
)

// The pause after the first attempt, which doubles with each, and the longest one.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// NextAttempt records that an attempt has failed with a result, and returns when the next one is to begin: 1 s later
// after the first, twice as long after each further one, at most 5 minutes. After an error the run has to end.
func NextAttempt(ctx context.Context, h Retrier, failed Result) error {
	pause := min(firstRetry<<len(h.Record().Attempts), lastRetry)
	now := time.Now().UTC()
	a := Attempt{EndTime: now, ExitCode: failed.ExitCode, Signal: failed.Signal, OutputBytes: h.Output().Size(),
		Next: now.Add(pause)}
	return h.Retry(ctx, a, func(ctx context.Context) error {
		r := h.Record()
		h.Progress(Progress{Message: fmt.Sprintf("attempt %d of %d at %s", len(r.Attempts)+1, r.Retries+1,
			a.Next.Local().Format(time.TimeOnly))})
		select {
		case <-time.After(pause):
			h.Progress(Progress{})
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
