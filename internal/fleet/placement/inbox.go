package placement

import (
	"sync"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// inbox is the queue of the goroutine of a task. It needs no
// memory while nothing waits: thousands of tasks may wait for a worker and hear nothing.
type inbox struct {
	wake chan struct{} // capacity 1: something is there

	mu     sync.Mutex
	items  []any      // each an [asked], a [told] or a [fleetwire.Command]; guarded by mu
	count  [kinds]int // of each kind; guarded by mu
	closed bool       // guarded by mu
}

// kinds is how many kinds of things wait, and pendingClaims and pendingCommands how many of each may
// for one task, as [pendingEvents] does. Whoever finds no room comes again.
const (
	kinds           = 3
	pendingClaims   = 64
	pendingCommands = 64
)

// arrival is what became of something that was put into an inbox.
type arrival int

const (
	accepted arrival = iota
	full             // as many others of its kind wait
	tooLate          // the run is over
)

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func kindOf(x any) (kind, most int) {
	switch x.(type) {
	case asked:
		return 0, pendingClaims
	case fleetwire.Command:
		return 1, pendingCommands
	}
	return 2, pendingEvents
}

func (b *inbox) put(x any) arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	kind, most := kindOf(x)
	switch {
	case b.closed:
		return tooLate
	case b.count[kind] >= most:
		return full
	}
	b.items = append(b.items, x)
	b.count[kind]++
	b.ring()
	return accepted
}

// ring wakes the goroutine.
func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default: // it is going to look
	}
}

// next takes the oldest item; nil: none waits. The goroutine is woken again for the rest.
func (b *inbox) next() any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) == 0 {
		return nil
	}
	x := b.items[0]
	b.items[0] = nil
	kind, _ := kindOf(x)
	b.count[kind]--
	if b.items = b.items[1:]; len(b.items) == 0 {
		b.items = nil
	} else {
		b.ring()
	}
	return x
}

// close refuses further items, and returns those that were not taken.
func (b *inbox) close() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.items
}
