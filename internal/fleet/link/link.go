// Package link connects sessions and workers to a hub: an embedded one or a cluster of NATS.
//
// A [Link] is one connection with the streams and buckets of a project on it. It promises that a
// published message is in a stream unless it returns an error, and that it connects again by itself, with
// pauses that differ from machine to machine. It knows nothing of claims.
package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Roles of a connection.
const (
	RoleSession = "session"
	RoleWorker  = "worker"
)

// Options say how to connect.
type Options struct {
	Role string
	Name string // of the worker, or of the session
	Join Join
	// Again reads the join line anew before each connection: a hub that has lost its files has made another. Nil: the
	// line stays as it is.
	Again func() (Join, error)
	// Cluster is a URL of a NATS cluster instead of a hub, and Creds the file with credentials for it.
	Cluster string
	Creds   string
	// Dial opens the connection instead of a call to the address; nil: by TCP.
	Dial func() (net.Conn, error)
	// Seed signs as this key, by which a hub knows a worker again. Nil: without.
	Seed *Key
	// Log gets warnings of messages that wait and of lost connections. Nil: none.
	Log *slog.Logger
}

// Link is a connection to a hub. Its methods may be called by several goroutines.
type Link struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	o    Options

	mu    sync.Mutex
	join  Join            // by which it connects; guarded by mu
	state context.Context // ends when the connection is lost, and when it is there again; guarded by mu
	leave context.CancelFunc

	trouble string // for which the last message was not taken; guarded by mu
}

// Pauses between tries to connect again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// maxPayload is the least limit that a server may have for one message with its headers, in bytes.
const maxPayload = fleetwire.MaxMessage + 8<<10

// askWait limits a question whose context has no limit.
const askWait = time.Minute

type dialer struct{ dial func() (net.Conn, error) }

func (d dialer) Dial(string, string) (net.Conn, error) { return d.dial() }

// Open connects. ctx limits the first try only.
func Open(ctx context.Context, o Options) (*Link, error) {
	l := &Link{o: o, join: o.Join}
	l.state, l.leave = context.WithCancel(context.Background())
	opts := []nats.Option{
		nats.Name(o.Role + "." + o.Name),
		nats.CustomInboxPrefix("_INBOX_" + o.Role + "_" + o.Name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(tries int) time.Duration {
			pause := min(firstPause<<min(tries, 10), lastPause)
			return pause/2 + rand.N(pause) //nolint:gosec // no secret: so that all do not come at once
		}),
		nats.PingInterval(fleetwire.HeartBeat), nats.MaxPingsOutstanding(2),
		nats.IgnoreAuthErrorAbort(), nats.PermissionErrOnSubscribe(true),
		nats.ReconnectBufSize(-1), // nothing is said to be sent that waits in this process
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // each call gets its own error
	}
	opts = append(opts, l.handlers()...)
	if deadline, ok := ctx.Deadline(); ok {
		opts = append(opts, nats.Timeout(max(time.Millisecond, time.Until(deadline))))
	}
	if o.Again != nil && o.Cluster == "" {
		o.Dial = l.dialAgain
	}
	if o.Dial != nil {
		opts = append(opts, nats.SetCustomDialer(dialer{o.Dial}), nats.SkipHostLookup())
	}
	url := o.Cluster
	if url == "" {
		url = "nats://" + o.Join.Address
		opts = append(opts, nats.TokenHandler(func() string { return l.joined().Token }))
		if o.Join.Pin != "" {
			url = "tls://" + o.Join.Address
			opts = append(opts, nats.Secure(pinned(func() string { return l.joined().Pin })))
		}
		if o.Seed != nil {
			opts = append(opts, nats.Nkey(o.Seed.Public, o.Seed.Sign))
		}
	} else if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	conn, err := nats.Connect(url, opts...)
	for n := 1; n < dialTries && early(err); n++ {
		conn, err = nats.Connect(url, opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to hub %s: %w", cmp.Or(o.Cluster, o.Join.Address), explain(err))
	}
	if most := conn.MaxPayload(); most < maxPayload {
		conn.Close()
		return nil, fmt.Errorf("connect to hub %s: its messages have at most %d bytes, and those of Drover up to %d"+
			" (set max_payload: 8MB in the configuration of its servers)", o.Cluster, most, maxPayload)
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(10*time.Second))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to hub: %w", err)
	}
	l.Conn, l.JS = conn, js
	return l, nil
}

// dialTime limits one try to reach the hub, of which there are at most dialTries.
const (
	dialTime  = 5 * time.Second
	dialTries = 3
)

// early reports that the server, after a greeting that took long, looked whether the client is there before it
// answered, which the client library takes for an error.
func early(err error) bool {
	return err != nil && strings.Contains(err.Error(), "expected 'PONG', got 'PING'")
}

// dialAgain calls the hub of the join line as it is now. A line that cannot be read, or that would change whether the
// connection has TLS, leaves the last one as it is.
func (l *Link) dialAgain() (net.Conn, error) {
	if j, err := l.o.Again(); err == nil {
		l.mu.Lock()
		if (j.Pin == "") == (l.join.Pin == "") {
			l.join = j
		}
		l.mu.Unlock()
	}
	return net.DialTimeout("tcp", l.joined().Address, dialTime)
}

func (l *Link) joined() Join {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.join
}

// handlers log lost connections, and each reason why reconnecting fails once. The client calls them one after the
// other.
func (l *Link) handlers() []nats.Option {
	last := ""
	say := func(text string, why error) {
		if l.o.Log != nil && why != nil && why.Error() != last {
			last = why.Error()
			l.o.Log.Warn(text, "error", last)
		}
	}
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.change()
			say("the connection to the hub is lost", err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			say("the hub cannot be reached: it is tried again", explain(err))
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			l.change()
			if last != "" && l.o.Log != nil {
				l.o.Log.Warn("connected to the hub again")
			}
			last = ""
		}),
	}
}

// change ends what waits for the connection as it was.
func (l *Link) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
	l.state, l.leave = context.WithCancel(context.Background())
}

// now ends when the connection is lost, and when it is there again.
func (l *Link) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// During limits a question: by most, and by the loss of the connection, after which no answer comes.
func (l *Link) During(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(l.now(), cancel)
	return ctx, func() { stop(); cancel() }
}

func explain(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w (get a join line from the hub: `drover hub join`)", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("%w (is the hub up? `drover hub status` there says)", err)
	}
	return err
}

// Redial connects again at once, for callers who know that the way to the hub has changed.
func (l *Link) Redial() { _ = l.Conn.ForceReconnect() } // it fails after Close only

// Close closes the connection.
func (l *Link) Close() { l.Conn.Close() }

// DefaultStore is how many bytes what workers tell may take in a project, and parts of folders as many again.
const DefaultStore = 2 << 30

// Ensure makes the streams and buckets of the project, or finds them. A worker must not, and
// finds those that a hub or a session has made.
// most limits the bytes of events, and of parts of folders, each. The configuration of a later protocol is kept.
func Ensure(ctx context.Context, js jetstream.JetStream, most int64) error {
	return ensure(ctx, js, most, 1)
}

// copies is how many servers of a cluster keep each stream.
const copies = 3

// Ensure is the function of this name for a project of a cluster or a hub. On a cluster three servers keep each stream,
// or one if there are fewer.
func (l *Link) Ensure(ctx context.Context) error {
	if l.Conn.ConnectedClusterName() == "" {
		return ensure(ctx, l.JS, DefaultStore, 1)
	}
	err := ensure(ctx, l.JS, DefaultStore, copies)
	refused, ok := errors.AsType[*jetstream.APIError](err)
	if ok && (refused.ErrorCode == noPeers || refused.ErrorCode == notClustered) {
		err = ensure(ctx, l.JS, DefaultStore, 1)
	}
	return err
}

// Error codes of JetStream (ADR-7, errors.json of the NATS server) that the library has no names for.
const (
	noPeers      jetstream.ErrorCode = 10005 // fewer servers than copies
	notClustered jetstream.ErrorCode = 10074 // copies without a cluster
)

func ensure(ctx context.Context, js jetstream.JetStream, most int64, replicas int) error {
	configured := map[string]string{protocolKey: strconv.Itoa(fleetwire.Version)}
	streams := []jetstream.StreamConfig{
		{Name: fleetwire.Offers, Subjects: []string{"drover.offer.>"}, MaxBytes: 64 << 20},
		{Name: fleetwire.Events, Subjects: []string{"drover.event.>"}, MaxBytes: most},
		{Name: fleetwire.Commands, Subjects: []string{"drover.worker.>"}, MaxBytes: 64 << 20},
	}
	for _, c := range streams {
		c.Retention, c.MaxAge, c.MaxMsgSize = jetstream.WorkQueuePolicy, fleetwire.MessagesAge, maxPayload
		c.Discard, c.Duplicates, c.Metadata, c.Replicas = jetstream.DiscardNew, 2*time.Minute, configured, replicas
		later, err := ofLater(ctx, js, c.Name)
		if err == nil && !later {
			_, err = js.CreateOrUpdateStream(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("make stream %s: %w", c.Name, err)
		}
	}
	// A bucket is such a stream. In contrast to one of the library a header cannot remove what others have put there.
	for bucket, c := range map[string]jetstream.StreamConfig{
		fleetwire.Workers: {MaxAge: fleetwire.WorkerGone, MaxBytes: 64 << 20},
		fleetwire.Parts:   {MaxAge: fleetwire.MessagesAge, MaxBytes: most},
	} {
		c.Name, c.Subjects, c.MaxMsgsPerSubject = "KV_"+bucket, []string{"$KV." + bucket + ".>"}, 1
		c.MaxMsgSize, c.Discard, c.DenyDelete, c.AllowDirect = -1, jetstream.DiscardNew, true, true
		c.Duplicates, c.Metadata, c.Replicas = min(2*time.Minute, c.MaxAge), configured, replicas
		later, err := ofLater(ctx, js, c.Name)
		if err == nil && !later {
			_, err = js.CreateOrUpdateStream(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("make bucket %s: %w", bucket, err)
		}
	}
	return nil
}

// protocolKey is in the metadata of each stream: the protocol of the program that has configured it.
const protocolKey = "drover_protocol"

// ofLater reports whether a program of a later protocol has configured a stream.
func ofLater(ctx context.Context, js jetstream.JetStream, stream string) (bool, error) {
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v, err := strconv.Atoi(s.CachedInfo().Config.Metadata[protocolKey])
	return err == nil && v > fleetwire.Version, nil // one without a number is older than the numbers
}

// Consumer is a durable consumer of a stream, made if it is missing. One that another version has made in another way
// stays as it is.
func (l *Link) Consumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	got, err := l.JS.CreateConsumer(ctx, stream, c)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return l.JS.Consumer(ctx, stream, c.Durable)
	}
	return got, err
}

// Publish puts a message into a stream and returns when it is there. It tries again until ctx
// ends: after a lost connection, or while the stream is full; [Link.Trouble] then says why. A message that
// is published twice with the same id counts once.
func (l *Link) Publish(ctx context.Context, subject, id string, msg []byte) error {
	var opts []jetstream.PublishOpt
	if id != "" {
		opts = append(opts, jetstream.WithMsgID(id))
	}
	return l.insist(ctx, func(one context.Context) error {
		_, err := l.JS.Publish(one, subject, msg, opts...)
		if errors.Is(err, nats.ErrMaxPayload) {
			err = final{fmt.Errorf("publish: %w", err)}
		}
		return err
	})
}

// final is an error for which nothing is tried again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// insist tries something until it succeeds, until its error is final, or until ctx ends.
func (l *Link) insist(ctx context.Context, try func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		state := l.now()
		one, cancel := l.During(ctx, 10*time.Second)
		err := try(one)
		cancel()
		if err == nil {
			l.troubled("")
			return nil
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		if ctx.Err() != nil {
			return err
		}
		l.troubled(l.Why(ctx, err).Error())
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-state.Done(): // lost, or there again
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// whyTime limits the question to a hub about its problem, and maxProblem the shown part of the answer, in columns.
const (
	whyTime    = 2 * time.Second
	maxProblem = 300
)

// Problem returns why the hub takes no messages; empty: it takes them, or does not answer.
func (l *Link) Problem(ctx context.Context) string {
	one, cancel := l.During(ctx, whyTime)
	defer cancel()
	var state fleetwire.HubState
	m, err := l.Conn.RequestWithContext(one, fleetwire.AskHub, nil)
	if err == nil {
		_, err = fleetwire.Decode(m.Data, &state)
	}
	if err != nil {
		return ""
	}
	return excerpt.Line(state.Problem, maxProblem)
}

// Why is the reason for an error of the hub, in the hub's own words if it has some.
func (l *Link) Why(ctx context.Context, err error) error {
	if !l.Conn.IsConnected() {
		return errors.New("the connection to it is lost")
	}
	if problem := l.Problem(ctx); problem != "" {
		return errors.New(problem)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it has not answered in time")
	}
	return err
}

// Trouble is why the hub has not taken the last message that was to go into a stream; empty: it has.
func (l *Link) Trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

func (l *Link) troubled(why string) {
	l.mu.Lock()
	was := l.trouble
	l.trouble = why
	l.mu.Unlock()
	switch {
	case l.o.Log == nil || (was == "") == (why == ""):
	case why == "":
		l.o.Log.Warn("the hub takes messages again")
	default:
		l.o.Log.Warn("the hub takes no messages: they wait", "error", why)
	}
}

// Ask asks once and waits for the answer, which it reads into out.
func (l *Link) Ask(ctx context.Context, subject string, in, out any) ([]byte, error) {
	msg, err := fleetwire.Encode(in, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.During(ctx, askWait)
	defer cancel()
	reply, err := l.Conn.RequestWithContext(ctx, subject, msg)
	if err != nil {
		return nil, err
	}
	return fleetwire.Decode(reply.Data, out)
}

// ConsumerOf returns the name of the consumer of a worker's commands.
func ConsumerOf(worker string) string { return "worker-" + worker }
