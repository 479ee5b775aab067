// Package summary says what has become of tasks over a day: what ended and how, what runs and what
// is parked, and what it has cost.
//
// It is a pure function of records: reading them, and telling the user, is elsewhere.
package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const maxFailures = 20 // that are listed

// Summary is what has become of tasks.
type Summary struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`

	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Stopped   int `json:"killed"`
	Scheduled int `json:"scheduled"` // of those that ended, started by a schedule
	Retried   int `json:"retried"`   // of those that ended, started more than once
	Running   int `json:"running"`   // now, with those that are pending
	Parked    int `json:"parked"`    // of those, held by a usage limit

	Failures []Failure `json:"failures"` // the newest first
	More     int       `json:"more_failures,omitempty"`

	Tokens   int64    `json:"tokens"`         // of the tasks that ended
	CostUSD  *float64 `json:"cost_usd"`       // of those whose price is known; nil: of none
	Unpriced int      `json:"unpriced_tasks"` // the others
}

// Failure is a task that ended badly.
type Failure struct {
	ID   task.ID   `json:"task_id"`
	Name string    `json:"name"`
	Time time.Time `json:"time"`
	Why  string    `json:"why"`
}

// Of sums up the tasks that ended in a time, and those that run at its end.
func Of(tasks []task.Record, since, until time.Time) Summary {
	s := Summary{Since: since, Until: until, Failures: []Failure{}}
	for _, r := range tasks {
		switch {
		case r.IsConversation():
			continue
		case !r.Status.Terminal():
			s.Running++
			if _, _, ok := r.ParkedUntil(until); ok {
				s.Parked++
			}
			continue
		case r.EndTime == nil || r.EndTime.Before(since) || r.EndTime.After(until):
			continue
		}
		s.ended(r)
	}
	slices.SortStableFunc(s.Failures, func(a, b Failure) int { return b.Time.Compare(a.Time) })
	s.More = max(0, len(s.Failures)-maxFailures)
	s.Failures = s.Failures[:len(s.Failures)-s.More]
	return s
}

func (s *Summary) ended(r task.Record) {
	switch r.Status {
	case task.Completed:
		s.Completed++
	case task.Failed:
		s.Failed++
		s.Failures = append(s.Failures, Failure{r.ID, r.Name, *r.EndTime, excerpt.Line(cmp.Or(r.Error, "not known"), 300)})
	default:
		s.Stopped++
	}
	if r.Schedule != "" {
		s.Scheduled++
	}
	if len(r.Attempts) > 0 {
		s.Retried++
	}
	u := r.Usage
	if u == nil || r.Traits().NoUsage || r.Traits().Work == task.BySteps { // the steps have theirs
		return
	}
	s.Tokens += u.InputTokens + u.OutputTokens + u.CacheRead + u.CacheWrite
	if u.CostUSD == nil {
		s.Unpriced++
		return
	}
	sum := *u.CostUSD
	if s.CostUSD != nil {
		sum += *s.CostUSD
	}
	s.CostUSD = &sum
}

// Text is a summary in a few lines. money writes US dollars.
func (s Summary) Text(money func(float64) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "since %s: %d completed, %d failed, %d stopped", s.Since.Local().Format("2006-01-02 15:04"),
		s.Completed, s.Failed, s.Stopped)
	for _, part := range []struct {
		n    int
		what string
	}{{s.Scheduled, "by schedules"}, {s.Retried, "after retries"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.what)
		}
	}
	fmt.Fprintf(&b, "\nnow: %d running, %d of them parked\n", s.Running, s.Parked)
	switch {
	case s.CostUSD != nil && s.Unpriced > 0:
		fmt.Fprintf(&b, "agents that ended: %d tokens, at least %s (the price of %d is not known)\n", s.Tokens, money(*s.CostUSD),
			s.Unpriced)
	case s.CostUSD != nil:
		fmt.Fprintf(&b, "agents that ended: %d tokens, %s\n", s.Tokens, money(*s.CostUSD))
	case s.Unpriced > 0:
		fmt.Fprintf(&b, "agents that ended: %d tokens, cost not known\n", s.Tokens)
	}
	for _, f := range s.Failures {
		fmt.Fprintf(&b, "failed: %s %s: %s\n", f.ID, excerpt.Line(f.Name, 80), f.Why)
	}
	if s.More > 0 {
		fmt.Fprintf(&b, "failed: %d more\n", s.More)
	}
	return b.String()
}
