// Package daily tells the user once a day what has become of the tasks that a project started or
// held by itself.
package daily

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/api/summary"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/task"
)

const (
	hour    = 8         // of the day, in local time, from which on the user is told
	longest = time.Hour // between two looks at the clock: a machine may have slept
)

// Config configures a [Teller]. All fields are required.
type Config struct {
	Last  time.Time             // when the user was told last, or the first host began
	Store func(time.Time) error // keeps the next Last
	Tasks func(context.Context) ([]task.Record, error)
	Tell  func(ctx context.Context, text string)
	Fail  func(error) // what went wrong is told
}

// Teller tells the user of one project. It is for one goroutine.
type Teller struct{ cfg Config }

// New returns a teller.
func New(cfg Config) *Teller { return &Teller{cfg} }

// Run tells the user each day until ctx ends. A day on which no schedule has started a task and no
// usage limit holds an agent is passed over. What a host was not there to tell is told by the next
// one, of all days together.
func (t *Teller) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := time.Now().Round(0)
		if !now.Before(next(t.cfg.Last)) {
			if err := t.tell(ctx, now); err != nil {
				t.cfg.Fail(err)
			}
			t.cfg.Last = now // told or not: it is tried again tomorrow
		}
		timer.Reset(min(longest, max(time.Second, time.Until(next(t.cfg.Last)))))
	}
}

// tell tells the user what has become of the tasks since the last time.
func (t *Teller) tell(ctx context.Context, now time.Time) error {
	tasks, err := t.cfg.Tasks(ctx)
	if err != nil {
		return err
	}
	s := summary.Of(tasks, t.cfg.Last, now)
	if err := t.cfg.Store(now); err != nil { // the next host would tell it again
		return err
	}
	if s.Scheduled > 0 || s.Parked > 0 {
		t.cfg.Tell(ctx, s.Text(usage.Dollars))
	}
	return nil
}

// next is when the user is told after he was told at last.
func next(last time.Time) time.Time {
	l := last.Local()
	at := time.Date(l.Year(), l.Month(), l.Day(), hour, 0, 0, 0, l.Location())
	if !at.After(l) {
		at = time.Date(l.Year(), l.Month(), l.Day()+1, hour, 0, 0, 0, l.Location())
	}
	return at
}
