package placement

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// Only the newest grant of a task counts: a report with another epoch, of another worker, of another start of its
// worker, or after its end is refused.
func TestValid(t *testing.T) {
	b, _, err := Book{Epoch: 6}.Grant("o", "o", "w", "i")
	if err != nil || b.Epoch != 7 {
		t.Fatalf("%+v, %v", b, err)
	}
	for name, c := range map[string]struct {
		b                Book
		worker, instance string
		epoch            uint64
		want             error
	}{
		"newest":      {b, "w", "i", 7, nil},
		"older":       {b, "w", "i", 6, errStale},
		"later":       {b, "w", "i", 8, errStale},
		"other":       {b, "v", "i", 7, errStale},
		"restarted":   {b, "w", "j", 7, errStale},
		"over":        {b.End(), "w", "i", 7, errOver},
		"old-of-over": {b.End(), "w", "i", 6, errStale},
	} {
		if err := c.b.Valid(c.worker, c.instance, c.epoch); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A report with an older epoch changes nothing of the task and is kept as evidence, and its lease is not renewed.
func TestStaleReport(t *testing.T) {
	var refused []Evidence
	w := &work{id: "b1", f: New(Config{Refused: func(e Evidence) { refused = append(refused, e) }}),
		book: Book{Epoch: 7, Worker: "w", Instance: "i", Offer: "o"}}
	report := told{Event: fleetwire.Event{Kind: fleetwire.Ended, Instance: "i", Epoch: 6}, worker: "w", msg: acked{}}
	if _, ended, err := w.take(t.Context(), nil, report); ended || err != nil {
		t.Errorf("ended %v, %v", ended, err)
	}
	if len(refused) != 1 || refused[0].Why != errStale.Error() || refused[0].Epoch != 6 || w.book.Over {
		t.Errorf("refused %+v, %+v", refused, w.book)
	}
	r := fleetwire.Renewal{Worker: "w", Instance: "i"}
	if w.renew(r, 6).Valid || !w.renew(r, 7).Valid {
		t.Error("the lease of the older claim is renewed, or not that of the newest")
	}
}

// acked is a message of a stream, which may only be acknowledged.
type acked struct{ jetstream.Msg }

func (acked) Ack() error { return nil }

// A grant answers the open offer. A worker that asks again gets the same one, and whoever comes late gets none.
func TestGrant(t *testing.T) {
	had := Book{Epoch: 7, Worker: "w", Instance: "i", Offer: "o"}
	for name, c := range map[string]struct {
		b                             Book
		open, offer, worker, instance string
		epoch                         uint64
		fresh                         bool
		err                           error
	}{
		"first":         {Book{}, "o", "o", "w", "i", 1, true, nil},
		"no-offer":      {Book{}, "", "", "w", "i", 0, false, errOther},
		"other-offer":   {had.End(), "p", "o", "w", "i", 7, false, errOther},
		"again":         {had, "", "o", "w", "i", 7, false, nil},
		"other-worker":  {had, "", "o", "v", "i", 7, false, errOther},
		"other-start":   {had, "", "o", "w", "j", 7, false, errOther},
		"again-if-over": {had.End(), "", "o", "w", "i", 7, false, errOther},
		"next":          {had.End(), "p", "p", "v", "j", 8, true, nil},
	} {
		b, fresh, err := c.b.Grant(c.open, c.offer, c.worker, c.instance)
		if b.Epoch != c.epoch || fresh != c.fresh || !errors.Is(err, c.err) {
			t.Errorf("%s: epoch %d, fresh %v, %v", name, b.Epoch, fresh, err)
		}
	}
}
