// Package modelwire has the parts that all model providers over HTTP share.
//
// It owns one call from start to end: the concurrency limit, the request, the stream
// idle timeout, the event stream, retries, and the error text. A reply is returned
// only when its decoder reports it as complete. If an answer fails after parts of it
// were delivered, they are reported as void before the retry or the error. Retries
// are bounded in number and time, and reads in bytes. Redirects are never followed.
// The table in rules.go says which failures are retried. The messages of a provider
// are encoded and decoded in the provider's package.
package modelwire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/lines"
)

const (
	patience = 15 * time.Minute // for all tries of a call, from its first failure
	shutFor  = 10 * time.Second // until a refused key is tried again

	// lateTime bounds the wait for events after a whole answer.
	lateTime = 3 * time.Second
)

// Endpoint is a provider at one address, with one key. Host, Limiter and HTTP
// are required. It must not change once it is in use, and may be used by several
// goroutines.
type Endpoint struct {
	Host    string // for error texts; provider, model and host share one rate limit
	Secret  string // identifies a refused key; never sent from here
	KeyVar  string // the variables that a user would set, for error texts; it names the provider too
	URLVar  string
	HTTP    *http.Client
	Limiter *Limiter
	Calls   int                           // of one model at the same time; 0: the limiter's number
	Idle    time.Duration                 // a call that brings no byte for so long is cut; 0: 120 s
	Backoff func(tries int) time.Duration // nil: [Backoff]
}

// Call is one request in the form of its provider.
type Call struct {
	Model  string // in the form that is sent
	URL    string // of the POST request
	Header http.Header
	Body   net.Buffers    // in parts that other calls may share; read only
	From   *agent.Request // the source of Body
	// Decode begins an answer; it is called once for each attempt.
	Decode func(on func(agent.Part)) Decoder
}

// State is the progress of an answer.
type State int

// The states of an answer.
const (
	More   State = iota // it continues
	Enough              // it is whole; later events do not matter
	Done                // nothing follows
)

// Decoder puts one answer together from its events.
type Decoder interface {
	// Take handles one event. An error of type *Refusal is the provider's own
	// account of a failure; other errors say that the wire's rules are broken.
	Take(*Event) (State, error)
	// Finish returns the reply, or io.ErrUnexpectedEOF if it is not whole.
	Finish() (*agent.Reply, error)
	// Partial returns the received part of an answer that was cut.
	Partial() Partial
}

// Partial is the received part of an answer that was cut.
type Partial struct {
	Whole     []agent.Block
	Usage     agent.Usage
	Begun     bool // something of the message came
	Counted   bool // the provider has sent the token counts
	Delivered bool // content was handed on
}

// Reply makes the call, and retries it within bounds. Its errors are documented at
// [agent.Model].
func (e *Endpoint) Reply(ctx context.Context, c *Call, on func(agent.Part)) (*agent.Reply, error) {
	if on == nil {
		on = func(agent.Part) {}
	}
	key := e.key(c.Model)
	if e.Calls > 0 {
		e.Limiter.Limit(key, e.Calls)
	}
	if parked := e.Limiter.Parked(key); parked > 0 {
		on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{After: parked, Most: maxTries - 1,
			Why: agent.ModelError{Kind: "rate_limit", Text: "the provider asked all calls of " + c.Model + " to wait"}}})
	}
	var end time.Time // of our patience; set by the first failure
	var last *retry
	missed := 0 // tries in a row that did not reach the host
	wrong := "" // the defect of the answer before
	for tries := 1; ; tries++ {
		reply, err := e.try(ctx, key, c, end, on)
		if errors.Is(err, errPatience) {
			return nil, last.exhausted(tries - 1)
		}
		if !errors.As(err, &last) {
			return reply, err
		}
		if last.wrong && last.why.Text == wrong {
			return nil, last.again(e.URLVar)
		}
		if wrong = ""; last.wrong {
			wrong = last.why.Text
		}
		if missed++; last.most > maxDials {
			missed = 0
		}
		most := min(maxTries, tries-missed+last.most)
		wait := e.wait(tries, last)
		if end.IsZero() {
			end = time.Now().Add(patience)
		}
		if tries >= most || time.Now().Add(wait).After(end) {
			return nil, last.exhausted(tries)
		}
		if last.after > 0 {
			e.Limiter.Park(key, wait)
		}
		on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: tries, Most: most - 1, After: wait, Why: *last.why}})
		if last.after > 0 {
			continue // try waits with all the others
		}
		if err := Sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("ask model %s: %w", c.Model, err)
		}
	}
}

// try makes one attempt when it gets a place, and gives the place back on every path,
// also when on panics.
func (e *Endpoint) try(
	ctx context.Context, key string, c *Call, end time.Time, on func(agent.Part),
) (*agent.Reply, error) {
	release, err := e.enter(ctx, key, c.Model, end)
	if err != nil {
		return nil, err
	}
	defer release()
	reply, err := e.once(ctx, c, on)
	e.shut(c.Model, err) // before the next in line enters
	return reply, err
}

// key returns the key of the rate limit of a call: two providers at one address are separate.
func (e *Endpoint) key(model string) string { return e.KeyVar + " " + e.Host + " " + model }

var errPatience = errors.New("the time for trying is over")

// enter waits for a place among the calls of a model. It does not send a key again
// that was refused a moment ago, even if many agents have it.
func (e *Endpoint) enter(ctx context.Context, key, model string, end time.Time) (release func(), err error) {
	if err := e.refused(model); err != nil {
		return nil, err
	}
	waiting := ctx
	if !end.IsZero() {
		w, cancel := context.WithDeadlineCause(ctx, end, errPatience)
		defer cancel()
		waiting = w
	}
	release, err = e.Limiter.Acquire(waiting, key)
	if err != nil {
		return nil, fmt.Errorf("ask model %s: %w", model, err)
	}
	if err := e.refused(model); err != nil { // while we stood in line
		release()
		return nil, err
	}
	return release, nil
}

func (e *Endpoint) wait(tries int, r *retry) time.Duration {
	if r.after > 0 {
		return min(r.after, MaxWait)
	}
	if e.Backoff != nil {
		return e.Backoff(tries)
	}
	return Backoff(tries)
}

// shut remembers that a key was refused. A 403 may be about the model only.
func (e *Endpoint) shut(model string, err error) {
	var told *agent.ModelError
	if !errors.As(err, &told) || (told.Kind != "auth" && told.Kind != "account") {
		return
	}
	if told.Status == http.StatusForbidden {
		e.Limiter.Shut(e.door(model), shutFor, told)
		return
	}
	e.Limiter.Shut(e.door(""), shutFor, told)
}

func (e *Endpoint) refused(model string) error {
	if err := e.Limiter.Refused(e.door("")); err != nil {
		return err
	}
	return e.Limiter.Refused(e.door(model))
}

// door returns the name of a key at a host, for one model or for all. It is a digest, so that
// no further copy of the key is kept.
func (e *Endpoint) door(model string) string {
	sum := sha256.Sum256([]byte(e.Secret))
	return e.Host + " " + hex.EncodeToString(sum[:8]) + " " + model
}

// once makes one attempt. It returns a *retry if another may succeed.
func (e *Endpoint) once(ctx context.Context, c *Call, on func(agent.Part)) (*agent.Reply, error) {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := e.Idle
	if idle == 0 {
		idle = 120 * time.Second
	}
	w := newWatch(idle, cancel)
	defer w.stop()

	r, err := c.request(call)
	if err != nil {
		return nil, fmt.Errorf("make a request to %s: %w", e.Host, err)
	}
	res, err := e.HTTP.Do(r)
	if err != nil {
		return nil, e.callError(ctx, call, c.Model, err)
	}
	body := &watched{body: res.Body, watch: w}
	res.Body = body
	defer func() { _ = body.Close() }() // an error here changes nothing: the answer is read or given up
	take := taking(res)
	if take == nil {
		return nil, e.callError(ctx, call, c.Model, e.refuse(res, c.Model))
	}
	d := c.Decode(on)
	reply, err := take(call, d, body)
	if err == nil {
		w.drain(body)
		if !d.Partial().Counted {
			reply.Usage = estimated(c.From, reply)
		}
		return reply, nil
	}
	if call.Err() != nil {
		err = context.Cause(call) // says more than the read error that it caused
	}
	return nil, e.fail(ctx, c.Model, d, res, body, err, on)
}

// taking returns the reader of the answer's content type; nil: the response is not an answer.
func taking(res *http.Response) func(context.Context, Decoder, *watched) (*agent.Reply, error) {
	switch {
	case res.StatusCode != http.StatusOK:
		return nil
	case typeOf(res) == "text/event-stream":
		return read
	case typeOf(res) == "application/json":
		return readWhole
	}
	return nil
}

// readWhole reads an answer that came as one value in place of the requested stream.
func readWhole(_ context.Context, d Decoder, body *watched) (*agent.Reply, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	_, err = d.Take(&Event{Data: data})
	if err == nil {
		reply, err := d.Finish()
		if err == nil {
			return reply, nil
		}
	}
	if told, ok := ParseRefusal(data); ok && told.Message != "" {
		return nil, told
	}
	return nil, &Useless{fmt.Sprintf("no event stream, but application/json of %s", sizeText(len(data)))}
}

// maxEvent bounds one event in bytes: more than the longest tool input that a tool
// accepts, and little enough to hold.
const maxEvent = 16 << 20

// Event is one server-sent event of an answer.
type Event = lines.Event

// NewEvents reads the events of an answer.
func NewEvents(r io.Reader) *lines.Events {
	return lines.NewEvents(r, maxEvent, &Useless{fmt.Sprintf("an event is larger than %d MiB", maxEvent>>20)})
}

// read takes events until the answer is whole.
func read(call context.Context, d Decoder, body *watched) (*agent.Reply, error) {
	events := NewEvents(body)
	state := More
	for state != Done {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && body.read == 0:
			return nil, &Useless{"empty"}
		case errors.Is(err, io.EOF):
			return d.Finish() // the body ended in order
		case err != nil && state == Enough && (call.Err() == nil || errors.Is(context.Cause(call), errIdle)):
			return d.Finish() // a server that keeps the line open, or breaks it
		case err != nil:
			return nil, err
		}
		if state, err = d.Take(event); err != nil {
			return nil, err
		}
		if state == Enough {
			body.watch.idle = min(body.watch.idle, lateTime)
		}
	}
	body.ended = true
	return d.Finish()
}

// fail returns the error for an answer that was cut, and takes back its delivered
// parts. The caller keeps the parts of an answer that the user interrupted.
func (e *Endpoint) fail(
	ctx context.Context, model string, d Decoder, res *http.Response, body *watched, err error, on func(agent.Part),
) error {
	p := d.Partial()
	if ctx.Err() != nil {
		why := fmt.Errorf("ask model %s: %w", model, context.Cause(ctx))
		if !p.Delivered && p.Usage == (agent.Usage{}) {
			return why
		}
		return &agent.CutError{Whole: p.Whole, Usage: p.Usage, Err: why}
	}
	if p.Delivered || p.Usage != (agent.Usage{}) {
		on(agent.Part{Kind: agent.VoidPart, Usage: p.Usage})
	}
	var refused *Refusal
	var bad *BadFormat
	var useless *Useless
	switch {
	case errors.As(err, &refused):
		err := e.failure(refused.status(res.StatusCode), refused, res.Header, model)
		if again := (*retry)(nil); errors.As(err, &again) {
			again.wrong = typeOf(res) != "text/event-stream"
		}
		return err
	case errors.As(err, &useless) && body.read > 0:
		return &agent.ModelError{Status: res.StatusCode, Kind: "bad_answer",
			Text: fmt.Sprintf("the answer of %s cannot be used: %s (check %s)", e.Host, useless.Text, e.URLVar)}
	case errors.As(err, &useless), errors.As(err, &bad) && !p.Begun:
		return e.badAnswer(res, body.read, err.Error())
	}
	again := e.broken(err)
	again.wrong = errors.As(err, &bad) || body.ended
	return again
}
