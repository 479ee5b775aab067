package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// offers reads the offers of one subject, which several workers share.
type offers struct {
	link     *link.Link
	subject  string
	consumer jetstream.Consumer // nil: to be found, or made
}

// Limits of offers. A thousand workers wait for one each, and offers of sessions that do not answer are
// pending until then: neither may keep others waiting.
const (
	fetchTime    = 20 * time.Second // for one offer
	offerTries   = 50
	mostWaiting  = 20_000
	mostPending  = 100_000
	consumerIdle = 24 * time.Hour // until the hub forgets an unused consumer; the offers stay
)

// next waits for one offer; nil: there was none. After an error the consumer is looked for again: the
// hub may have lost it.
func (o *offers) next(ctx context.Context) (msg jetstream.Msg, err error) {
	if o.consumer == nil {
		if err := o.find(ctx); err != nil {
			return nil, err
		}
	}
	one, cancel := o.link.During(ctx, fetchTime)
	defer cancel()
	batch, err := o.consumer.Fetch(1, jetstream.FetchContext(one))
	if err == nil {
		for m := range batch.Messages() {
			msg = m
		}
		err = batch.Error()
	}
	if msg != nil || err == nil || errors.Is(err, context.DeadlineExceeded) {
		return msg, nil
	}
	o.consumer = nil
	return nil, err
}

func (o *offers) find(ctx context.Context) (err error) {
	name := "offers-" + strings.NewReplacer("drover.offer.", "", ".", "-").Replace(o.subject)
	o.consumer, err = o.link.Consumer(ctx, fleetwire.Offers, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: o.subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: fleetwire.OfferWait,
		MaxDeliver: offerTries, MaxWaiting: mostWaiting, MaxAckPending: mostPending, InactiveThreshold: consumerIdle,
	})
	return err
}

// later gives an offer back whose session does not answer. Others come first, more and more.
func later(msg jetstream.Msg) {
	pause := firstLater
	if m, err := msg.Metadata(); err == nil {
		pause = min(firstLater<<min(m.NumDelivered-1, 10), lastLater)
	}
	_ = msg.NakWithDelay(pause)
}

// Pauses until an offer is delivered again.
const (
	firstLater = 5 * time.Second
	lastLater  = 5 * time.Minute
)
