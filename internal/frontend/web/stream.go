package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	mostStreams = 512
	mostParts   = 8 // messages that are kept for other pages
	keepAlive   = 15 * time.Second
)

// change is what the page changes at once.
type change struct {
	Reset bool     `json:"reset,omitempty"` // the page drops all that it has first
	Set   []*piece `json:"set,omitempty"`
	Gone  []string `json:"gone,omitempty"`
}

// mark names a change of this board, for the pages of this process only.
func (b *board) mark(number int64) string { return b.boot + "." + strconv.FormatInt(number, 10) }

// numberOf is the number of a mark; 0: it is of another process.
func (b *board) numberOf(mark string) int64 {
	boot, digits, _ := strings.Cut(mark, ".")
	number, err := strconv.ParseInt(digits, 10, 64)
	if boot != b.boot || err != nil {
		return 0
	}
	return number
}

// since is the change from a number on, as a message of the stream, the number after it, and a
// channel that is closed at the next change. No bytes: there is no change. Pages that are equally far
// share the message.
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

// stream sends a page what changes, from the change on that it has.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "too many pages are open (close some)")
		return
	}
	at := s.board.numberOf(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the request has arrived
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	send := func(data []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := w.Write(data)
		return err == nil && out.Flush() == nil
	}
	if !send([]byte(": begins\n\n")) {
		return
	}
	for {
		message, now, next := s.board.since(at)
		if len(message) > 0 && !send(message) {
			return
		}
		at = now
		select {
		case <-next:
		case <-quiet.C:
			if !send([]byte(": quiet\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.ended.Done():
			return
		}
	}
}
