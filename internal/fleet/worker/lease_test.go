package worker

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/fleet/wire"
	"github.com/drover-dev/drover/task"
)

// A lease is renewed at least five times before it ends, by the shortest lease, and not by all workers at once.
func TestRhythm(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, time.Hour} {
		w := New(Config{Name: "w"})
		for i, l := range []time.Duration{2 * time.Hour, lease} {
			id := task.ID([]string{"a", "b"}[i])
			w.claims[id] = newClaim("s", id, wire.Grant{Epoch: 1, Lease: l}, "")
		}
		seen := map[time.Duration]bool{}
		for range 100 {
			d := w.rhythm()
			if seen[d] = true; d > lease/5 || d <= 0 {
				t.Fatalf("a lease of %s is renewed after %s", lease, d)
			}
		}
		if len(seen) < 50 {
			t.Errorf("a lease of %s is renewed after one of %d times", lease, len(seen))
		}
	}
}
