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
		if len(message) > 0 {
			if _, err := out.Write(message); err != nil {
				return
			}
		}
		at = now
		select {
		case <-next:
		case <-quiet.C:
			if out.Comment() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// checked writes to an open page while its browser is paired.
type checked struct {
	http.ResponseWriter
	paired func() bool
	at     time.Time // of the last check
}

// checkEvery is how long a page that is written to can outlive its pairing; see also keepAlive.
const checkEvery = time.Second

var errRevoked = errors.New("the browser is not paired any more")

func (c *checked) Write(data []byte) (int, error) {
	if now := time.Now(); now.Sub(c.at) >= checkEvery {
		if c.at = now; !c.paired() {
			return 0, errRevoked
		}
	}
	return c.ResponseWriter.Write(data)
}

func (c *checked) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// begin begins a stream; nil: the limit is reached, and the request is answered.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) (e *httpserve.Events, free func()) {
	select {
	case s.streams <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "too many pages are open (close some)")
		return nil, nil
	}
	closed := s.board.page()
	free = func() { closed(); <-s.streams }
	e = httpserve.NewEvents(&checked{w, func() bool { return s.access.reads(r) }, time.Now()})
	if e.Comment() != nil {
		free()
		return nil, nil
	}
	return e, free
}
