package mcpclient

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// set changes the site while nobody looks.
func (s *site) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// One session: its header, its revision, its end.
func TestHTTPSession(t *testing.T) {
	s := newSite(t, "")
	p := pool(t, Config{})
	c := live(t, use(t, p, Server{URL: s.URL, Headers: map[string]string{"Authorization": "Bearer t"}}))
	text(t, c, "echo")
	s.set(func() {
		for name, want := range map[string]string{"Mcp-Session-Id": "session-1", "Mcp-Protocol-Version": "2025-11-25", "Authorization": "Bearer t",
			"Accept": "application/json, text/event-stream", "Content-Type": "application/json"} {
			if got := s.headers.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
	p.Close()
	s.set(func() {
		if s.methods[len(s.methods)-1] != http.MethodDelete || s.headers.Get("Mcp-Session-Id") != "session-1" {
			t.Errorf("the session was not ended: %q", s.methods)
		}
	})
}

// An answer may be the body, in as many lines as the server likes.
func TestHTTPPlain(t *testing.T) {
	s := newSite(t, "")
	s.set(func() { s.plain = true })
	if got := text(t, live(t, use(t, pool(t, Config{}), Server{URL: s.URL})), "echo"); got != `{"a":1}` {
		t.Errorf("echo: %q", got)
	}
}

// Bodies that are too long cost the connection nothing afterwards.
func TestHTTPLong(t *testing.T) {
	s := newSite(t, "")
	s.set(func() { s.plain = true })
	c := live(t, use(t, pool(t, Config{FrameBytes: 256 << 10}), Server{URL: s.URL}))
	for range 5 {
		if _, err := c.Call(t.Context(), "tools/call", params("huge")); !errors.Is(err, ErrTooLong) {
			t.Errorf("a long answer: %v", err)
		}
	}
	if got := text(t, c, "echo"); got != `{"a":1}` {
		t.Errorf("after that %q", got)
	}
}

// What the server says by itself comes on a stream that stays open.
func TestHTTPPush(t *testing.T) {
	s := newSite(t, "")
	s.set(func() { s.pushed = make(chan string, 1) })
	c := live(t, use(t, pool(t, Config{}), Server{URL: s.URL}))
	s.fake.mu.Lock()
	s.fake.tools++
	s.fake.mu.Unlock()
	s.pushed <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	for c.Tools()[0].Description != "version 1" {
		text(t, c, "echo")
	}
}

// Who gets a connection hears all that the server says from then on, also if its stream
// of notifications is slow to begin.
func TestHTTPHears(t *testing.T) {
	s := newSite(t, "")
	var begun atomic.Bool
	s.set(func() {
		s.pushed = make(chan string, 1)
		s.whole = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				time.Sleep(hearWait / 5) // the server is slow
				begun.Store(true)
			}
			return false
		}
	})
	live(t, use(t, pool(t, Config{}), Server{URL: s.URL}))
	if !begun.Load() {
		t.Error("the connection was given before the stream of notifications had begun")
	}
}

// A server whose stream of notifications does not begin can be used all the same.
func TestHTTPDeaf(t *testing.T) {
	s := newSite(t, "")
	s.set(func() {
		s.whole = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				<-r.Context().Done()
			}
			return r.Method == http.MethodGet
		}
	})
	if got := text(t, live(t, use(t, pool(t, Config{}), Server{URL: s.URL})), "echo"); got != `{"a":1}` {
		t.Errorf("echo: %q", got)
	}
}

// A stream that breaks is taken up where it was.
func TestHTTPResume(t *testing.T) {
	s := newSite(t, "")
	c := live(t, use(t, pool(t, Config{}), Server{URL: s.URL}))
	s.set(func() { s.broken = true })
	if got := text(t, c, "echo"); got != `{"a":1}` {
		t.Errorf("echo: %q", got)
	}
	s.set(func() {
		if i := slices.Index(s.methods, http.MethodGet); i < 0 || s.headers.Get("Last-Event-ID") != "e1" {
			t.Errorf("methods %q, headers %v", s.methods, s.headers)
		}
	})
}

// M4: what is no answer of the protocol is an error that says what it was.
func TestHTTPOdd(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirection was followed") }))
	defer other.Close()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"page":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Welcome</html>")) }, "it answered with no message of JSON-RPC"},
		"batch":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }, "it answered with an array of messages"},
		"wrong id": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":77,"result":{}}`)) }, "it answered with something else"},
		"moved":    {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "it has moved to"},
		"scope": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="files:write admin"`)
			w.WriteHeader(http.StatusForbidden)
		}, "for want of the scope files:write, admin (sign in again with `drover mcp login --scope files:write --scope admin "},
		"odd scope": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer error=\"insufficient_scope\", scope=\"`id`\"")
			w.WriteHeader(http.StatusForbidden)
		}, "refuses the call with status 403 (give what"},
		"secret":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "refuses the call with status 401 (give what it wants as a header"},
		"broken":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status 502"},
		"accepted": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, "status 202, without an answer"},
		"with a reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no seats"}}`))
		}, "status 400: no seats (code -32000)"},
		"short stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\ndata: cut"))
		}, "its stream ended without the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			conn := live(t, use(t, pool(t, Config{}), Server{URL: s.URL}))
			s.set(func() {
				s.whole = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPost {
						c.answer(w, r)
					}
					return r.Method == http.MethodPost
				}
			})
			_, err := conn.Call(t.Context(), "tools/call", params("echo"))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "MCP server fake") {
				t.Errorf("error %v, want %s", err, c.want)
			}
			s.set(func() { s.whole = nil })
			if got := text(t, conn, "echo"); got != `{"a":1}` {
				t.Errorf("the next call: %q", got)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	for in, want := range map[string][]string{
		"data: a\n\n":                           {"a"},
		"\xef\xbb\xbfdata:a\r\ndata: b\r\n\r\n": {"a\nb"},
		": hi\nevent: x\n\nid: 7\ndata: a\n\n":  {"a"},
		"data:\n\ndata: x\n\n":                  {"x"},
		"data: cut":                             nil,
		"data\n\n":                              nil,
	} {
		e := newEvents(strings.NewReader(in), 100, &meter{most: 1000})
		var got []string
		for {
			data, err := e.next()
			if err != nil {
				break
			}
			got = append(got, string(data))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	e := newEvents(strings.NewReader("data: "+strings.Repeat("x", 200)+"\n\n"), 100, &meter{most: 1000})
	if _, err := e.next(); !errors.Is(err, ErrTooLong) {
		t.Errorf("a long event: %v", err)
	}
	m := &meter{most: 1000}
	e = newEvents(strings.NewReader(strings.Repeat("data: x\n", 200)), 100, m)
	if _, err := e.next(); !errors.Is(err, ErrTooLong) {
		t.Errorf("an event without an end: %v", err)
	}
	e.lines.done()
	if m.used.Load() != 0 {
		t.Errorf("%d bytes are still counted", m.used.Load())
	}
}
