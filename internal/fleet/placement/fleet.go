// Package placement places tasks of a session on workers, which are on other machines.
//
// A [Fleet] is the side of one session: its connection to the hub, which is opened when the first
// task needs it, and the tasks that are offered to workers or run there. A task on a worker is an
// ordinary task, whose driver represents a driver there: events of the worker become its output
// and its end, and actions on it here become commands to the worker.
//
// The session alone decides who works on a task. It grants a claim with an epoch, durably and
// before the worker knows; it refuses whatever comes with another epoch and keeps that as
// evidence; and it gives a worker up that has not renewed its lease, by the session's own clock.
package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// DefaultLease is how long a worker may continue without an answer of the session.
const DefaultLease = 30 * time.Second

// Config configures the fleet of a session.
type Config struct {
	Session task.ID
	// Open connects to the hub.
	Open  func(ctx context.Context) (*link.Link, error)
	Lease time.Duration // 0: [DefaultLease]
	Place home.Session  // whose folder takes what comes back of folders without git
	// Task is a task of the session as it is now.
	Task func(task.ID) (task.Record, bool)
	// Refused keeps evidence of events with an epoch that does not count.
	Refused func(Evidence)
	// Say tells the user about a task that has ended; nil: it is not said.
	Say func(about task.ID, text string)
}

// Evidence is something that was refused.
type Evidence struct {
	At     time.Time           `json:"at"`
	Task   task.ID             `json:"task_id"`
	Worker string              `json:"worker"`
	Epoch  uint64              `json:"epoch"`
	Kind   fleetwire.EventKind `json:"kind"`
	Why    string              `json:"why"`
	Bytes  int                 `json:"bytes,omitempty"` // of output
	End    *fleetwire.End      `json:"end,omitempty"`
}

// Fleet is the fleet of one session. Its methods may be called by several goroutines.
type Fleet struct {
	cfg Config

	opening sync.Mutex // held while the connection is opened
	lookout lookout

	mu     sync.Mutex
	link   *link.Link        // nil: not open yet; guarded by mu
	works  map[task.ID]*work // guarded by mu
	stop   func()            // ends the consumer; guarded by mu
	closed bool

	left chan left // capacity [maxLeft]
}

// New returns a fleet that has no connection yet.
func New(c Config) *Fleet {
	if c.Lease <= 0 {
		c.Lease = DefaultLease
	}
	return &Fleet{cfg: c, works: map[task.ID]*work{}, left: make(chan left, maxLeft)}
}

// errClosed is returned when a task is placed while the session closes.
var errClosed = errors.New("the session is closing")

// eventsIdle is after how long without its session the hub forgets up to where it has read; the
// events themselves stay.
const eventsIdle = 10 * time.Minute

// pendingEvents limits delivered events that wait for their tasks, for all tasks together.
const pendingEvents = 256

// open connects once.
func (f *Fleet) open(ctx context.Context) (*link.Link, error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	l, closed := f.link, f.closed
	f.mu.Unlock()
	if l != nil {
		return l, nil
	}
	if closed {
		return nil, errClosed
	}
	l, err := f.cfg.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.listen(ctx, l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (f *Fleet) listen(ctx context.Context, l *link.Link) error {
	sid := f.cfg.Session
	for what, answer := range map[string]nats.MsgHandler{fleetwire.AskClaim: f.claimed, fleetwire.AskRenew: f.renewed} {
		if _, err := l.Conn.Subscribe(fleetwire.Ask(sid, what, "*"), answer); err != nil {
			return fmt.Errorf("listen to workers: %w", err)
		}
	}
	c, err := f.consumer(ctx, l)
	if err != nil {
		return fmt.Errorf("listen to workers: %w", l.Why(ctx, err))
	}
	life, stop := context.WithCancel(context.Background())
	var hearing sync.WaitGroup
	hearing.Go(func() { f.hear(life, l, c) })
	hearing.Go(func() { f.takeLeft(life, l) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.link = l
	f.stop = func() {
		stop()
		hearing.Wait()
	}
	return nil
}

// consumer finds the consumer of the session, or makes it.
func (f *Fleet) consumer(ctx context.Context, l *link.Link) (jetstream.Consumer, error) {
	want := jetstream.ConsumerConfig{
		Durable: "session-" + string(f.cfg.Session), FilterSubject: fleetwire.EventOf(f.cfg.Session, "*", "*"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: pendingEvents,
		InactiveThreshold: eventsIdle,
	}
	c, err := l.Consumer(ctx, fleetwire.Events, want)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return c, err
	}
	if err := l.Ensure(ctx); err != nil { // a new cluster
		return nil, err
	}
	return l.Consumer(ctx, fleetwire.Events, want)
}

// hearAgain is the pause after an error of the consumer.
const hearAgain = time.Second

// hear takes what workers tell until ctx ends. A hub that has forgotten the consumer, because it was out of reach for
// longer than eventsIdle or has lost its files, is given it again.
func (f *Fleet) hear(ctx context.Context, l *link.Link, c jetstream.Consumer) {
	for ctx.Err() == nil {
		f.hearFrom(ctx, c)
		select {
		case <-time.After(hearAgain):
		case <-ctx.Done():
			return
		}
		if again, err := f.consumer(ctx, l); err == nil {
			c = again
		}
	}
}

// hearFrom returns when nothing more is heard from the consumer.
func (f *Fleet) hearFrom(ctx context.Context, c jetstream.Consumer) {
	msgs, err := c.Messages(jetstream.PullMaxMessages(pendingEvents), jetstream.PullHeartbeat(fleetwire.HeartBeat))
	if err != nil {
		return
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)()
	for {
		m, err := msgs.Next()
		if err != nil {
			return
		}
		f.told(m)
	}
}

// Close ends the connection. No task of the session runs any more.
func (f *Fleet) Close() {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	l, stop := f.link, f.stop
	f.closed, f.link = true, nil
	f.mu.Unlock()
	if l == nil {
		return
	}
	f.lookout.close()
	stop()
	l.Close()
}

func (f *Fleet) find(id task.ID) *work {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.works[id]
}

func (f *Fleet) add(w *work) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.works[w.id] = w
}

func (f *Fleet) remove(w *work) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.works, w.id)
}

// claimed passes the claim of a worker to the task.
func (f *Fleet) claimed(m *nats.Msg) {
	var c fleetwire.Claim
	_, err := fleetwire.Decode(m.Data, &c)
	if err == nil && c.Worker != fleetwire.Token(m.Subject, 4) {
		err = errors.New("the claim is in the name of another worker")
	}
	if err == nil {
		_, err = fleetwire.Speaks("worker "+c.Worker, c.Oldest, c.Newest)
	}
	w := f.find(c.Task)
	if err == nil && w == nil {
		err = errors.New("the task waits for nobody any more")
	}
	if err != nil {
		answer(m, fleetwire.Grant{Refused: err.Error()})
		return
	}
	if w.inbox.put(asked{c, m}) == tooLate { // full: the worker asks again
		answer(m, fleetwire.Grant{Refused: errOver.Error()})
	}
}

// answer replies. The error is ignored: a worker without an answer asks again.
func answer(m *nats.Msg, v any) {
	if data, err := fleetwire.Encode(v, nil); err == nil {
		_ = m.Respond(data)
	}
}

// renewed answers whether the claims of a worker still count.
func (f *Fleet) renewed(m *nats.Msg) {
	var r fleetwire.Renewal
	if _, err := fleetwire.Decode(m.Data, &r); err != nil || r.Worker != fleetwire.Token(m.Subject, 4) {
		return
	}
	out := fleetwire.Renewed{Tasks: make([]fleetwire.Lease, len(r.Tasks))}
	for i, h := range r.Tasks {
		if w := f.find(h.Task); w != nil {
			out.Tasks[i] = w.renew(r, h.Epoch)
			continue
		}
		rec, ok := f.cfg.Task(h.Task)
		if ok && !rec.Status.Terminal() && rec.Worker == r.Worker {
			b, err := readBook(rec.Checkpoint) // it is about to be taken up by this host
			out.Tasks[i].Valid = err == nil && rec.ContinuesElsewhere() && b.Valid(r.Worker, r.Instance, h.Epoch) == nil
		}
	}
	answer(m, out)
}

// unknownTries is how often an event comes again of a task that this host does not have yet.
const unknownTries = 5

// told passes an event to its task.
func (f *Fleet) told(m jetstream.Msg) {
	id, worker := task.ID(fleetwire.Token(m.Subject(), 4)), fleetwire.Token(m.Subject(), 3)
	var e fleetwire.Event
	data, err := fleetwire.Decode(m.Data(), &e)
	if err != nil {
		f.refuse(m, Evidence{Task: id, Worker: worker, Why: err.Error()})
		return
	}
	if e.Kind == fleetwire.Left {
		f.leftOver(m, id, worker, e)
		return
	}
	if w := f.find(id); w != nil {
		if w.inbox.put(told{e, data, worker, m}) != tooLate { // full: the hub delivers it again
			return
		}
	} else if rec, ok := f.cfg.Task(id); ok && rec.ContinuesElsewhere() && !rec.Status.Terminal() {
		if meta, err := m.Metadata(); err == nil && meta.NumDelivered < unknownTries {
			_ = m.NakWithDelay(time.Second)
			return
		}
	}
	f.late(m, Evidence{Task: id, Worker: worker, Epoch: e.Epoch, Kind: e.Kind, Why: errOver.Error(), Bytes: len(data),
		End: e.End}, e)
}

// late refuses what does not count, and keeps what an end that comes too late has brought back.
func (f *Fleet) late(m jetstream.Msg, why Evidence, e fleetwire.Event) {
	if e.Kind == fleetwire.Ended && e.End != nil && len(e.End.Return) > 0 {
		f.leftOver(m, why.Task, why.Worker, e)
		return
	}
	f.refuse(m, why)
}

// refuse keeps what does not count as evidence. Output is only counted.
func (f *Fleet) refuse(m jetstream.Msg, e Evidence) {
	e.At = time.Now().UTC()
	if f.cfg.Refused != nil {
		f.cfg.Refused(e)
	}
	_ = m.Ack() // otherwise the hub delivers it again
}

// List reads what each worker says of itself, by name.
func List(ctx context.Context, js jetstream.JetStream) ([]fleetwire.Worker, error) {
	kv, err := js.KeyValue(ctx, fleetwire.Workers)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil // a new cluster
	}
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	all, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	defer func() { _ = all.Stop() }()
	found := map[string]fleetwire.Worker{} // a worker that reports meanwhile is listed twice
	for more := true; more; {
		select {
		case entry, open := <-all.Updates():
			if !open {
				return nil, errors.New("list workers: the connection was closed")
			}
			if more = entry != nil; !more {
				break
			}
			var w fleetwire.Worker
			if _, err := fleetwire.Decode(entry.Value(), &w); err == nil && w.Name == entry.Key() { // else it is a stranger's
				found[w.Name] = w
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("list workers: %w", context.Cause(ctx))
		}
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b fleetwire.Worker) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
