package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/httpserve"
)

const (
	mostStreams = 512
	mostParts   = 8 // messages kept for other pages
	keepAlive   = 15 * time.Second
)

// change is one change of the page.
type change struct {
	Reset bool     `json:"reset,omitempty"` // the page first drops all pieces
	Set   []*piece `json:"set,omitempty"`
	Gone  []string `json:"gone,omitempty"`
}

// mark names a change. Marks are valid in this process only.
func (b *board) mark(number int64) string { return b.boot + "." + strconv.FormatInt(number, 10) }

// numberOf is the number of a mark; 0: of another process.
func (b *board) numberOf(mark string) int64 {
	boot, digits, _ := strings.Cut(mark, ".")
	number, err := strconv.ParseInt(digits, 10, 64)
	if boot != b.boot || err != nil {
		return 0
	}
	return number
}

// since returns the change from a number on as a message of the stream, empty for none, the number after it, and a
// channel that is closed at the next change. Pages with the same number share the message.
func (b *board) since(number int64) (message []byte, now int64, next <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number == b.number {
		return nil, b.number, b.changed
	}
	if m := b.parts[number]; m != nil {
		return m, b.number, b.changed
	}
	var c change
	if number <= 0 || number < b.forgot || number > b.number {
		c.Reset, number = true, 0
	}
	for _, p := range b.pieces {
		if p.changed > number {
			c.Set = append(c.Set, p)
		}
	}
	slices.SortFunc(c.Set, func(x, y *piece) int { return cmp.Compare(x.Key, y.Key) })
	for _, g := range b.gone {
		if g.at > number && b.pieces[g.id] == nil {
			c.Gone = append(c.Gone, g.id)
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		data = []byte(`{"reset":true}`) // texts always encode
	}
	m := fmt.Appendf(nil, "id: %s\nevent: change\ndata: %s\n\n", b.mark(b.number), data)
	if len(b.parts) < mostParts {
		b.parts[number] = m
	}
	return m, b.number, b.changed
}

// next returns a channel that is closed at the next change.
func (b *board) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// stream sends a page the changes after its last one.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("charts") {
		s.charts(w, r)
		return
	}
	at := s.board.numberOf(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	out, free := s.begin(w, r)
	if out == nil {
		return
	}
	defer free()
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		message, now, next := s.board.since(at)
		if len(message) > 0 && out.write(message) != nil {
			return
		}
		at = now
		select {
		case <-next:
		case <-quiet.C:
			if out.comment() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// events is a stream of server-sent events to one page.
type events struct {
	w       http.ResponseWriter
	out     *http.ResponseController
	paired  func() bool // the browser still is
	checked time.Time
}

// checkEvery is how long an open page is not asked whether its browser is still paired.
const checkEvery = time.Second

var errRevoked = errors.New("the browser is not paired any more")

// begin begins a stream; nil: the limit is reached, and the request is answered.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) (e *events, free func()) {
	select {
	case s.streams <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "too many pages are open (close some)")
		return nil, nil
	}
	closed := s.board.page()
	free = func() { closed(); <-s.streams }
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	httpserve.KeepOpen(w)
	timed := httpserve.Timed(w)
	e = &events{timed, http.NewResponseController(timed), func() bool { return s.access.reads(r) }, time.Now()}
	if e.comment() != nil {
		free()
		return nil, nil
	}
	return e, free
}

func (e *events) write(data []byte) error {
	if now := time.Now(); now.Sub(e.checked) >= checkEvery {
		if e.checked = now; !e.paired() {
			return errRevoked
		}
	}
	if _, err := e.w.Write(data); err != nil {
		return err
	}
	return e.out.Flush()
}

// comment keeps the connection alive.
func (e *events) comment() error { return e.write([]byte(":\n\n")) }

// send sends one event. With an empty ID the page continues from the event before it.
func (e *events) send(id, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return e.write(fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", id, name, data))
}
