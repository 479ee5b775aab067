package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/lines"
	"github.com/drover-dev/drover/task"
)

// errorEvent is the name of the event that ends a stream with an error. It is
// no verb.
const errorEvent = "error"

// maxEvent limits one event on the client's side. Older builds wrote the complete record into
// each.
const maxEvent = 64 << 20

// events serves GET /v1/events. The stream is pulled from the API: a slow reader delays only
// its own connection.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	named, err := namedOf(r)
	if err != nil {
		return err
	}
	st := newStream(w)
	st.named, st.last = named, after
	defer st.begin(w, s.heartbeat)()
	if named {
		var follower sync.WaitGroup
		watch, end := context.WithCancel(r.Context())
		follower.Go(func() { s.follow(watch, st) })
		defer func() {
			end()
			follower.Wait()
		}()
	}

	_ = failpoint.Hit("events/open")
	for e, err := range s.api.Events(r.Context(), after) {
		switch {
		case err == nil:
			err = st.task(e.Seq, s.encoded.of(e))
		case r.Context().Err() == nil: // otherwise the client has disconnected, or the session ends
			_ = st.fail(err)
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// afterOf returns the sequence number after which to continue. Last-Event-ID has precedence: a
// browser that reconnects sends it with the original address.
func afterOf(r *http.Request) (task.Seq, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, Refuse(Invalid, fmt.Sprintf("after %.40q: not a sequence number", text),
			"give the id of the last event you have, or 0")
	}
	return task.Seq(n), nil
}

// ownNames requests only Drover's names; allNames also foreign ones.
const (
	ownNames = "own"
	allNames = "all"
)

// namedOf reports whether a reader wants events under foreign names.
func namedOf(r *http.Request) (bool, error) {
	switch text := r.URL.Query().Get("names"); text {
	case "", allNames:
		return true, nil
	case ownNames:
		return false, nil
	default:
		return false, Refuse(Invalid, fmt.Sprintf("names %.40q: neither own nor all", text), "")
	}
}

// lookAgain limits one wait for a state.
const lookAgain = time.Minute

// follow sends changes of the session's state to a stream until ctx ends. An API without a
// state sends none.
func (s *Server) follow(ctx context.Context, st *stream) {
	defer func() { _ = recover() }() // as for a handler: a panic here does not end the session
	var known int64
	for ctx.Err() == nil {
		now, err := s.api.State(ctx, StateRequest{After: known, Wait: lookAgain})
		if err != nil || st.turn(now) != nil {
			return
		}
		known = now.Version
	}
}

// stream writes events. One goroutine flushes: while it writes to the socket, the next events
// accumulate, so catching up needs few calls.
type stream struct {
	rc    *http.ResponseController
	dirty chan struct{} // something waits to be flushed

	named bool // includes foreign names

	mu      sync.Mutex    // guards the fields below
	w       *bufio.Writer // complete events
	last    task.Seq      // last one written
	state   State         // the newest
	rested  int64         // State.Rests as sent
	settled int64         // Completion.N as sent
}

// streamBuffer limits what accumulates for one call of a stream that is not read.
const streamBuffer = 16 << 10

func newStream(w http.ResponseWriter) *stream {
	return &stream{
		w:     bufio.NewWriterSize(w, streamBuffer),
		rc:    http.NewResponseController(w),
		dirty: make(chan struct{}, 1),
	}
}

// begin sends the header of the answer, and flushes in the background until end is called, which flushes the rest.
func (st *stream) begin(w http.ResponseWriter, heartbeat time.Duration) (end func()) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = st.flush() // after an error the first event fails
	done := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() { st.run(done, heartbeat) })
	return func() {
		close(done)
		flusher.Wait()
		_ = st.flush()
	}
}

// task writes an event, and then the foreign events derived from it.
func (st *stream) task(seq task.Seq, e *encodedEvent) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	err := e.err
	if err == nil {
		err = st.write(e.own)
	}
	if !st.named || err != nil {
		return err
	}
	if err := st.write(e.named); err != nil {
		return err
	}
	st.last = seq
	return st.tell()
}

// turn stores a new state of the session.
func (st *stream) turn(now State) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state = now
	return st.tell()
}

// tell writes what is new in the state, once the events that led to it are written. The caller
// holds mu.
func (st *stream) tell() error {
	now := st.state
	if st.last < now.Seq {
		return nil
	}
	if c := now.Completed; c != nil && c.N > st.settled {
		st.settled = c.N
		if err := st.event("", taskCompleteEvent, *c); err != nil {
			return err
		}
	}
	if now.Idle && now.IdleCount > st.rested {
		st.rested = now.IdleCount
		return st.event("", idleEvent, idleData{now.IdleCount})
	}
	return nil
}

// fail writes the error that ends the stream.
func (st *stream) fail(err error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.event("", errorEvent, AsError(err))
}

// event writes one event. The caller holds mu.
func (st *stream) event(id, name string, v any) error {
	b, err := appendEvent(nil, id, name, v)
	if err != nil {
		return err
	}
	return st.write(b)
}

// appendEvent appends the encoded form of an event.
func appendEvent(to []byte, id, name string, v any) ([]byte, error) {
	if id != "" {
		to = fmt.Appendf(to, "id: %s\n", id)
	}
	// The encoder ends with a newline, and JSON has no other.
	data, err := encode(v)
	if err != nil {
		return to, err
	}
	to = slices.Grow(to, len(name)+len(data)+16)
	return append(append(fmt.Appendf(to, "event: %s\ndata: ", name), data...), '\n'), nil
}

// write writes complete events. The caller holds mu.
func (st *stream) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := st.w.Write(b); err != nil {
		return err
	}
	select {
	case st.dirty <- struct{}{}:
	default:
	}
	return nil
}

func (st *stream) flush() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.w.Flush(); err != nil {
		return err
	}
	return st.rc.Flush()
}

// run flushes, and keeps a silent stream alive with comments. After an error it only waits: the
// writer of events gets the same error.
func (st *stream) run(done <-chan struct{}, heartbeat time.Duration) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-st.dirty:
		case <-tick.C:
			st.mu.Lock()
			_, _ = st.w.WriteString(": alive\n\n")
			st.mu.Unlock()
		}
		if st.flush() != nil {
			<-done
			return
		}
	}
}

// frame is one server-sent event.
type frame struct {
	id, event string
	data      []byte
}

// known reports whether this side can parse the frame. A frame that is not an error and has no
// number is an event under a foreign name.
func (f frame) known() bool { return f.id != "" || f.event == errorEvent }

// frames reads server-sent events until r ends. The end of the stream is not an error. The data of a frame is valid
// until the next one.
func frames(r io.Reader) iter.Seq2[frame, error] {
	return func(yield func(frame, error) bool) {
		events := lines.NewEvents(r, maxEvent, fmt.Errorf("event longer than %d bytes", maxEvent))
		for {
			e, err := events.Next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(frame{}, err)
				return
			case !yield(frame{string(e.ID), string(e.Name), e.Data}, nil):
				return
			}
		}
	}
}

// decodeEvent decodes a frame into an event, or the error that ended the stream.
func decodeEvent(f frame) (task.Event, error) {
	if f.event == errorEvent {
		e := new(Error)
		if err := json.Unmarshal(f.data, e); err != nil {
			return task.Event{}, fmt.Errorf("read event: %w", err)
		}
		return task.Event{}, e
	}
	var e task.Event
	if err := json.Unmarshal(f.data, &e); err != nil {
		return task.Event{}, fmt.Errorf("read event %s: %w", strings.ToValidUTF8(f.id, "?"), err)
	}
	return e, nil
}
