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
	tailLines  = 200      // at the begin of a page
	mostBehind = 1 << 20  // bytes; a page that is further behind continues at the end
	searchPart = 1 << 20
	searchMost = 64 << 20               // bytes that a request searches
	searchTime = 150 * time.Millisecond // of one request
	mostFound  = 100
	mostSought = 200 // bytes of the search text
	outputPace = 100 * time.Millisecond
	outputWait = 2 * time.Second // for more output, before the state of the task is read again
)

// part is a part of an output for the page.
type part struct {
	HTML   string `json:"html"`
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"`
	Size   int64  `json:"size"`
	Style  string `json:"style"` // at its end
	Ended  bool   `json:"ended"`
	Left   int64  `json:"left,omitempty"` // number of skipped bytes before it
}

// partOf draws a chunk that begins with a style.
func partOf(c control.Chunk, at style) (part, style) {
	n := len(c.Data)
	if !c.Ended {
		n = whole(c.Data)
	}
	html, s := drawn(string(c.Data[:n]), at)
	return part{HTML: html, Offset: c.Offset, Next: c.Offset + int64(n), Size: c.Size, Style: s.classes(),
		Ended: c.Ended}, s
}

// opened opens the session of a path. If ok is false the request is answered.
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

// output answers with a part of an output from an offset on.
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

// match is a place in an output with the search text.
type match struct {
	Offset int64  `json:"offset"` // of the line
	Line   string `json:"line"`
}

// matches is the result of one request.
type matches struct {
	Found []match `json:"found"`
	Next  int64   `json:"next"` // offset to continue at
	Size  int64   `json:"size"`
}

// search searches an output from an offset on.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	sought := q.Get("text")
	if sought == "" || len(sought) > mostSought {
		refuse(w, http.StatusBadRequest, "the search text must have 1 to 200 bytes")
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

// find searches an output line by line, within bounds. It does not find a text that spans lines.
func find(ctx context.Context, api control.API, ref string, sought []byte, from int64) (matches, error) {
	m := matches{Found: []match{}, Next: from}
	var rest []byte // the beginning of a line
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
		data := append(rest, c.Data...) //nolint:gocritic // rest is replaced below
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

// follow sends the output of a task, from an offset on or its end, and the state of the task, until the task has
// ended or the page is closed.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	api, _, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	out, free := s.begin(w, r)
	if out == nil {
		return
	}
	defer free()
	ctx, ref := r.Context(), r.PathValue("task")
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
		if html := s.views.head(rec, s.Now()); html != shown {
			if out.Send("", "head", html) != nil {
				return
			}
			shown = html
		}
		c, err := api.Output(ctx, req)
		if err != nil {
			break
		}
		p, now := partOf(c, at)
		req.Offset, req.Tail, at = p.Next, 0, now
		if p.Size-p.Next > mostBehind && !first {
			req.Offset = p.Size - partBytes
			p.Left = req.Offset - p.Next
		}
		if (first || len(c.Data) > 0) && out.Send(strconv.FormatInt(req.Offset, 10), "output", p) != nil {
			return
		}
		if p.Ended && rec.Status.Terminal() {
			break
		}
		if req.Wait = outputWait; len(c.Data) == 0 && out.Comment() != nil {
			return
		}
		if p.Next < p.Size && !paces(ctx, outputPace) { // no faster than a person reads
			return
		}
	}
	_ = out.Send("", "end", struct{}{}) // the page stops asking
}

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
