package fleetwire

import "time"

// LeaseEnd is when a lease ends at the worker that asked for it then, by the worker's own clock. It counts from the
// question: the session counts from its answer, which is later.
func LeaseEnd(asked time.Time, lease time.Duration) time.Time { return asked.Add(lease) }

// GiveUp is for how long a session waits for the next renewal, by its own clock, until it gives the worker up. The
// lease has ended at the worker by then, unless the session's clock is more than a fifth faster than the worker's.
func GiveUp(lease time.Duration) time.Duration { return lease + lease/5 }

// Begun remembers the claims that a worker has begun. A message with a grant may come twice, also when the first
// lease of the claim has ended here and the session does not know yet; the work is not begun again then. Its zero
// value is ready to use.
type Begun struct {
	known map[string]bool
	order []string // the oldest first
}

// maxBegun limits the remembered claims. A session gives a worker up long before one has begun so many others.
const maxBegun = 10_000

// First reports whether key was not there before, and remembers it.
func (b *Begun) First(key string) bool {
	if b.known[key] {
		return false
	}
	if b.known == nil {
		b.known = map[string]bool{}
	}
	b.known[key] = true
	if b.order = append(b.order, key); len(b.order) > maxBegun {
		delete(b.known, b.order[0])
		b.order = b.order[1:]
	}
	return true
}
