package hub_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// What a program of a later protocol has configured is not taken back by one of this protocol.
func TestConfiguredByLater(t *testing.T) {
	h, c := open(t, "127.0.0.1:0")
	l, err := connect(t, join(t, h, "main", link.RoleSession), link.RoleSession, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	later := map[string]string{"drover_protocol": "2"}
	if fleetwire.Version >= 2 {
		t.Fatalf("the later protocol is not later than %d", fleetwire.Version)
	}
	if _, err := l.JS.UpdateStream(t.Context(), jetstream.StreamConfig{
		Name: fleetwire.Offers, Subjects: []string{"drover.offer.>", "drover.later.>"}, MaxBytes: 1 << 20,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, Metadata: later,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.JS.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: fleetwire.Workers, TTL: time.Hour, History: 1, MaxBytes: 1 << 20, Metadata: later,
	}); err != nil {
		t.Fatal(err)
	}
	h.Close()
	again, _ := reopen(t, c)
	if l, err = connect(t, join(t, again, "main", link.RoleSession), link.RoleSession, "s", nil); err != nil {
		t.Fatal(err)
	}
	s, err := l.JS.Stream(t.Context(), fleetwire.Offers)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().Config; len(got.Subjects) != 2 || got.MaxBytes != 1<<20 {
		t.Errorf("the stream was configured anew: %v, %d bytes", got.Subjects, got.MaxBytes)
	}
	kv, err := l.JS.KeyValue(t.Context(), fleetwire.Workers)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kv.Status(t.Context()); err != nil || got.TTL() != time.Hour {
		t.Errorf("the bucket was configured anew: %v, %v", got.TTL(), err)
	}
}

// A consumer that another version has configured in another way is used as it is.
func TestConsumerOfLater(t *testing.T) {
	h, _ := open(t, "127.0.0.1:0")
	l, err := connect(t, join(t, h, "main", link.RoleSession), link.RoleSession, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := jetstream.ConsumerConfig{Durable: "one", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 7}
	theirs := mine
	theirs.MaxDeliver = 9
	for range 2 { // the second finds what the first has made
		if _, err := l.Consumer(t.Context(), fleetwire.Offers, theirs); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.Consumer(t.Context(), fleetwire.Offers, mine)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config.MaxDeliver; got != 9 {
		t.Errorf("it delivers %d times, want 9", got)
	}
}
