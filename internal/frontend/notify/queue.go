package notify

import (
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/daypart"
)

// maxSaid is how many announced items are remembered. The list no longer has the oldest ones.
const maxSaid = 4096

// queue decides which items are announced, and when. It does no I/O and reads no clock.
type queue struct {
	after    time.Duration
	blocking bool         // ignore failures
	loud     daypart.Part // the hours with announcements
	opened   time.Time    // older items needed the user before the session was opened

	begun   bool
	waiting []entry         // in the order of the newest list
	said    map[string]bool // announced, or known before
	order   []string        // of said
}

type entry struct {
	key  string
	item control.AttentionItem
	due  time.Time
}

func key(i control.AttentionItem) string {
	return string(i.Session) + " " + i.ID + " " + string(i.Run) + " " + string(i.Kind)
}

// see takes the current list. Items that it no longer has are not announced.
func (q *queue) see(items []control.AttentionItem, now time.Time) {
	due := map[string]time.Time{}
	for _, e := range q.waiting {
		due[e.key] = e.due
	}
	q.waiting = nil
	for _, i := range items {
		k := key(i)
		switch {
		case q.said[k], q.blocking && i.Past():
			continue
		case !q.begun && !i.Since.IsZero() && i.Since.Before(q.opened):
			q.mark(k)
			continue
		}
		at, known := due[k]
		if !known {
			at = now.Add(q.after)
		}
		q.waiting = append(q.waiting, entry{k, i, at})
	}
	q.begun = true
}

// take returns the items to announce now: all waiting ones, once one has waited long enough. They count as announced.
// Wait is the time until the next announcement if the list stays the same; 0: no item waits.
func (q *queue) take(now time.Time) (batch []control.AttentionItem, wait time.Duration) {
	if len(q.waiting) == 0 {
		return nil, 0
	}
	first := q.waiting[0].due
	for _, e := range q.waiting {
		if e.due.Before(first) {
			first = e.due
		}
	}
	if first.Before(now) {
		first = now
	}
	if at := q.loud.Next(first); at.After(now) {
		return nil, at.Sub(now)
	}
	for _, e := range q.waiting {
		batch = append(batch, e.item)
		q.mark(e.key)
	}
	q.waiting = nil
	return batch, 0
}

func (q *queue) mark(k string) {
	if q.said == nil {
		q.said = map[string]bool{}
	}
	q.said[k] = true
	if q.order = append(q.order, k); len(q.order) > maxSaid {
		delete(q.said, q.order[0])
		q.order = q.order[1:]
	}
}
