// Package modeltest is a model provider for tests: an HTTP server on loopback
// that speaks the Messages API (anthropic-version 2023-06-01) as the true one
// does, streamed or not, and beside it chat completions and responses as OpenAI
// does, streamed only. A handler need not know which of them is called: requests
// are read, and answers written, in the words of the first.
//
// What it answers is a Go function of the request ([Handler]) or a list of
// turns for each agent ([Turns]). It can misbehave on purpose: break a stream
// at any byte, send bytes in pieces, fall silent, answer with something that
// is no model's answer at all. It keeps the newest requests for the test to
// look at. It never checks a key and is no model.
package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
)

// maxBody is the size in bytes of the largest request that is read.
const maxBody = 512 << 20

// Handler decides an answer. It is called by several goroutines at the same
// time. ctx ends when the client goes or the server closes.
type Handler func(ctx context.Context, r *Request) Answer

// Request is one call as it came in.
type Request struct {
	N      int // 1 for the first call of the server
	API    API
	Header http.Header
	Body   []byte
}

// Agent is the label of the calling agent.
func (r *Request) Agent() string { return r.Header.Get("Drover-Agent") }

// AgentID is the task ID of a calling subagent.
func (r *Request) AgentID() string { return r.Header.Get("Drover-Agent-Id") }

// SessionID is the session that the call belongs to.
func (r *Request) SessionID() string { return r.Header.Get("Drover-Session-Id") }

// Params is the body of a [Request].
type Params struct {
	Model     string           `json:"model"`
	MaxTokens int              `json:"max_tokens"`
	Stream    bool             `json:"stream"`
	System    json.RawMessage  `json:"system"`
	Tools     []agent.ToolSpec `json:"tools"`
	Messages  []agent.Message  `json:"messages"`
}

// Params decodes the body. What another API calls by other names is put into
// the words of the Messages API.
func (r *Request) Params() (p Params, err error) {
	switch r.API {
	case Chat:
		p, err = chatParams(r.Body)
	case Responses:
		p, err = responsesParams(r.Body)
	default:
		err = json.Unmarshal(r.Body, &p)
	}
	if err != nil {
		return Params{}, fmt.Errorf("decode request %d: %w", r.N, err)
	}
	return p, nil
}

// LastText is the text of the last message: text blocks and tool results, one
// per line. It is empty for a body that cannot be read.
func (r *Request) LastText() string {
	p, err := r.Params()
	if err != nil || len(p.Messages) == 0 {
		return ""
	}
	blocks, err := p.Messages[len(p.Messages)-1].Blocks()
	if err != nil {
		return ""
	}
	var lines []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			lines = append(lines, b.Text)
		case "tool_result":
			var text string
			if json.Unmarshal(b.Content, &text) != nil {
				text = string(b.Content)
			}
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// Server is the provider. Make it with [New].
type Server struct {
	URL string // such as http://127.0.0.1:40123; the base URL of a client of any API

	handle   Handler
	http     *http.Server
	serving  sync.WaitGroup // the accept loop
	handlers sync.WaitGroup // one per call

	mu       sync.Mutex
	closed   bool
	count    int
	keep     int // how many requests are kept
	requests []*Request
}

// New starts a server on a free loopback port. It keeps the newest 1,000
// requests. The caller closes it.
func New(handle Handler) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start model server: %w", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), handle: handle, keep: 1000}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.serving.Go(func() { _ = s.http.Serve(l) }) // returns when Close closes the listener
	return s, nil
}

// Close ends all connections and waits for the handlers.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.http.Close()
	s.serving.Wait()
	s.handlers.Wait()
}

// Keep sets how many of the newest requests are kept, bodies and all. 0 keeps
// none and looks at no body beyond its head, for benchmarks.
func (s *Server) Keep(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = n
	s.requests = s.requests[max(0, len(s.requests)-n):]
}

// Count is how many calls have come in.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Requests returns the kept requests, oldest first.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.handlers.Add(1)
	s.mu.Unlock()
	defer s.handlers.Done()

	api := API(r.URL.Path)
	if r.Method != http.MethodPost || (api != Messages && api != Chat && api != Responses) {
		why := "no such path: " + r.Method + " " + r.URL.Path
		Error(http.StatusNotFound, "not_found_error", why).write(w, r, Messages, false, "")
		return
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), 16<<20)) + bytes.MinRead)
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		Error(http.StatusRequestEntityTooLarge, "request_too_large", err.Error()).write(w, r, api, false, "")
		return
	}
	req, check := s.record(api, r.Header, buf.Bytes())
	if check && !json.Valid(req.Body) {
		Error(http.StatusBadRequest, "invalid_request_error", "the body is no JSON").write(w, r, api, false, "")
		return
	}
	model, stream := req.head()
	a := s.handle(r.Context(), req)
	if a.ID == "" {
		a.ID = "msg_test" + strconv.Itoa(req.N)
	}
	a.write(w, r, api, stream, model)
}

// record counts a request and keeps it. check tells whether to look at its body.
func (s *Server) record(api API, h http.Header, body []byte) (r *Request, check bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	r = &Request{N: s.count, API: api, Header: h.Clone(), Body: body}
	if s.keep > 0 {
		if len(s.requests) >= s.keep {
			s.requests = append(s.requests[:0], s.requests[len(s.requests)-s.keep+1:]...)
		}
		s.requests = append(s.requests, r)
	}
	return r, s.keep > 0
}

// head reads the model and whether to stream, and no more of a long body than
// it must: clients that are measured put the messages last.
func (r *Request) head() (model string, stream bool) {
	d := json.NewDecoder(bytes.NewReader(r.Body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var hasModel, hasStream bool
	for d.More() && !(hasModel && hasStream) {
		key, err := d.Token()
		if err != nil {
			break
		}
		var skip json.RawMessage
		switch key {
		case "model":
			err, hasModel = d.Decode(&model), true
		case "stream":
			err, hasStream = d.Decode(&stream), true
		default:
			err = d.Decode(&skip)
		}
		if err != nil {
			break
		}
	}
	return model, stream
}
