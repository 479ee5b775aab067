package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
)

// Limits of the time between two polls.
const (
	DefaultBase    = time.Second      // minimum, and the time after the first failure
	DefaultMost    = 30 * time.Second // maximum after failures
	DefaultOffline = 10 * time.Minute // without an answer before the task fails
	quietMost      = 3                // doublings less one: at most four times the base, for a task without news
	retryMost      = 10 * time.Minute // maximum wait that an agent may request
)

// Pace determines when to poll next. It does no I/O and has no clock: the caller passes the time. The zero value has
// the defaults; Jitter must be set.
type Pace struct {
	Base, Most, Offline time.Duration
	Jitter              func() float64 // from 0 to below 1

	quiet  int
	failed int
	since  time.Time // of the first failure in a row
}

func (p *Pace) base() time.Duration    { return or(p.Base, DefaultBase) }
func (p *Pace) most() time.Duration    { return or(p.Most, DefaultMost) }
func (p *Pace) offline() time.Duration { return or(p.Offline, DefaultOffline) }

func or(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// Good returns the wait after a poll that took a given time and returned something new or did not. It is 0 after a
// poll that waited for news; a task without news is polled less and less often.
func (p *Pace) Good(took time.Duration, news bool) time.Duration {
	p.failed, p.since = 0, time.Time{}
	wait := p.base()
	switch {
	case news || took >= p.base():
		p.quiet = 0
	default:
		p.quiet = min(p.quiet+1, quietMost)
		wait <<= p.quiet - 1
	}
	return max(0, wait-took)
}

// Bad returns the wait after a temporary failure: the base, doubled after each further one, less up to a half at
// random, and never less than the agent requests. After the permitted time of failures it returns an
// [*UnreachableError]; a permanent failure is returned at once.
func (p *Pace) Bad(now time.Time, err error) (time.Duration, error) {
	if !a2a.Temporary(err) {
		return 0, err
	}
	if p.failed == 0 {
		p.since = now
	}
	if now.Sub(p.since) >= p.offline() {
		return 0, &UnreachableError{For: now.Sub(p.since).Round(time.Second), Err: err}
	}
	wait := p.most()
	if p.failed < 10 {
		wait = min(p.base()<<p.failed, wait)
	}
	p.failed++
	wait -= time.Duration(p.Jitter() * float64(wait) / 2)
	var status *a2a.StatusError
	if errors.As(err, &status) {
		wait = max(wait, min(status.RetryAfter, retryMost))
	}
	return wait, nil
}

// Failing returns the number of failures in a row.
func (p *Pace) Failing() int { return p.failed }

// UnreachableError means that an agent gave no valid answer for too long.
type UnreachableError struct {
	For time.Duration
	Err error // of the last attempt
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no usable answer for %s: %v", e.For, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }
