package worker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// A lease is renewed at least five times before it ends, by the shortest lease, and not by all workers at once.
func TestRhythm(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, time.Hour} {
		w := New(Config{Name: "w"})
		for i, l := range []time.Duration{2 * time.Hour, lease} {
			id := task.ID([]string{"a", "b"}[i])
			w.claims[id] = newClaim("s", id, fleetwire.Grant{Epoch: 1, Lease: l}, "")
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

// What a session tells a claim that the worker does not have any more, or of an earlier epoch, does nothing.
func TestStaleCommand(t *testing.T) {
	w := New(Config{Name: "w"})
	c := newClaim("s1", "b1", fleetwire.Grant{Epoch: 7, Lease: time.Hour}, "")
	w.claims[c.id] = c
	for _, one := range []struct {
		session task.ID
		epoch   uint64
		taken   int
	}{{"s1", 6, 0}, {"s1", 8, 0}, {"s2", 7, 0}, {"s1", 7, 1}} {
		data, err := fleetwire.Encode(fleetwire.Command{Kind: fleetwire.Pause, Epoch: one.epoch}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.told(t.Context(), command{subject: fleetwire.CommandTo("w", one.session, c.id), data: data})
		if n := len(c.orders); n != one.taken {
			t.Errorf("of session %s, epoch %d: %d commands are taken, want %d", one.session, one.epoch, n, one.taken)
		}
	}
}

// command is a message of a stream.
type command struct {
	jetstream.Msg
	subject string
	data    []byte
}

func (c command) Subject() string { return c.subject }
func (c command) Data() []byte    { return c.data }
