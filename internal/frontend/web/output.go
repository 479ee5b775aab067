package web

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	partBytes  = 64 << 10 // of output in a part of the page
	tailLines  = 200      // with which a page begins
	behind     = 1 << 20  // bytes; a page that is further behind goes on at the end
	searchPart = 1 << 20
	searchMost = 64 << 20               // bytes that a request looks through
	searchTime = 150 * time.Millisecond // after which it answers with what it has
	mostFound  = 100
	mostSought = 200 // bytes of a text that is looked for
	outputPace = 100 * time.Millisecond
)

// part is a part of an output as the page shows it.
type part struct {
	HTML   string `json:"html"`
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"`
	Size   int64  `json:"size"`
	Style  string `json:"style"` // at its end
	Ended  bool   `json:"ended"`
	Left   int64  `json:"left,omitempty"` // bytes before it that the page has not been given
}

// partOf draws a chunk from a style on.
func partOf(c control.Chunk, at style) (part, style) {
	n := len(c.Data)
	if !c.Ended {
		n = whole(c.Data)
	}
	html, s := drawn(string(c.Data[:n]), at)
	return part{HTML: html, Offset: c.Offset, Next: c.Offset + int64(n), Size: c.Size, Style: s.classes(),
		Ended: c.Ended}, s
}

// opened is the API of the session that a path names. ok is false when the request has been answered.
func (s *Server) opened(w http.ResponseWriter, r *http.Request) (api control.API, of Session, done func(), ok bool) {
	of, err := s.session(r.Context(), task.ID(r.PathValue("session")))
	if err == nil {
		api, done, err = of.Open(r.Context())
	}
	if err != nil {
		answer(w, nil, err)
		return nil, nil, nil, false
	}
	return api, of, done, true
}

// output answers with a part of an output from a byte on.
func (s *Server) output(w http.ResponseWriter, r *http.Request) {
	api, _, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	q := r.URL.Query()
	c, err := api.Output(r.Context(), control.OutputRequest{Ref: r.PathValue("task"), Offset: number(q.Get("offset")),
		Max: partBytes})
	p, _ := partOf(c, styleOf(q.Get("style")))
	answer(w, p, err)
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// match is a place of an output that has a text.
type match struct {
	Offset int64  `json:"offset"` // of the line
	Line   string `json:"line"`
}

// matches are the places that a request has found.
type matches struct {
	Found []match `json:"found"`
	Next  int64   `json:"next"` // where to go on
	Size  int64   `json:"size"`
}

// search looks for a text in an output from a byte on.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	sought := q.Get("text")
	if sought == "" || len(sought) > mostSought {
		refuse(w, http.StatusBadRequest, "a text of 1 to 200 bytes is looked for")
		return
	}
	api, _, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	m, err := find(r.Context(), api, r.PathValue("task"), []byte(sought), number(q.Get("offset")))
	answer(w, m, err)
}

// find looks through an output line by line, within bounds. A text that spans lines is not found.
func find(ctx context.Context, api control.API, ref string, sought []byte, from int64) (matches, error) {
	m := matches{Found: []match{}, Next: from}
	var rest []byte // the begin of a line
	for begin, end := time.Now(), from+searchMost; m.Next < end && len(m.Found) < mostFound; {
		if m.Next > from && time.Since(begin) > searchTime {
			break
		}
		c, err := api.Output(ctx, control.OutputRequest{Ref: ref, Offset: m.Next, Max: searchPart})
		if err != nil {
			return m, err
		}
		m.Size = c.Size
		if len(c.Data) == 0 {
			break
		}
		data := append(rest, c.Data...) //nolint:gocritic // rest is not used again
		at := m.Next - int64(len(rest))
		last := c.Next >= c.Size
		for len(data) > 0 {
			n := bytes.IndexByte(data, '\n') + 1
			if n == 0 && !last && len(data) < searchPart {
				break
			}
			if n == 0 {
				n = len(data)
			}
			if hit := bytes.Index(data[:n], sought); hit >= 0 && len(m.Found) < mostFound {
				begin := max(0, hit-80)
				m.Found = append(m.Found, match{at + int64(begin), line(string(data[begin:n]), 300)})
			}
			data, at = data[n:], at+int64(n)
		}
		rest = bytes.Clone(data)
		m.Next = c.Next
	}
	m.Next -= int64(len(rest))
	if len(m.Found) >= mostFound {
		m.Next = m.Found[len(m.Found)-1].Offset + 1
	}
	return m, nil
}

// follow sends what a task prints, from a byte on or the end, and how the task stands, until it has
// ended or the page is closed.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	api, of, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	out, free := s.begin(w)
	if out == nil {
		return
	}
	defer free()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	ref := r.PathValue("task")
	req := control.OutputRequest{Ref: ref, Tail: tailLines, Max: partBytes}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		req.Tail, req.Offset = 0, number(id)
	}
	var at style
	var shown string
	for first := true; ; first = false {
		rec, err := api.Get(ctx, ref)
		if err != nil {
			break
		}
		if html := s.views.head(of.Info(), rec, s.Now()); html != shown {
			if out.send("", "head", html) != nil {
				return
			}
			shown = html
		}
		c, err := api.Output(ctx, req)
		if err != nil {
			break
		}
		p, now := partOf(c, at)
		var left int64
		if p.Size-p.Next > behind && !first {
			req.Offset, req.Tail, left = p.Size-partBytes, 0, p.Size-partBytes-p.Next
		} else {
			req.Offset, req.Tail = p.Next, 0
		}
		p.Left = left
		at = now
		if (first || len(c.Data) > 0) && out.send(strconv.FormatInt(req.Offset, 10), "output", p) != nil {
			return
		}
		if p.Ended && rec.Status.Terminal() {
			break
		}
		if req.Wait = outputWait; len(c.Data) == 0 && out.comment() != nil {
			return
		}
		if p.Next < p.Size { // there is more: not faster than it can be read
			if !paces(ctx, outputPace) {
				return
			}
		}
	}
	_ = out.send("", "end", struct{}{}) // the page does not ask again
}

// outputWait is how long a stream waits for more output before it looks how the task stands.
const outputWait = 2 * time.Second

// paces waits; false: ctx has ended.
func paces(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
