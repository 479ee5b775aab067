package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckCard(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://example.com/agent-card.json": true, "https://example.com/a/.well-known/agent-card.json": true, "http://127.0.0.1:80/agent-card.json": true,
		"http://[::1]:80/agent-card.json": true, "http://localhost:1/agent-card.json": true, "http://example.com/agent-card.json": false,
		"http://127.0.0.1.example.com/agent-card.json": false, "https://u:p@example.com/agent-card.json": false, "https://example.com/agent-card.json?a=b": false,
		"ftp://example.com/agent-card.json": false, "https://": false, "": false, "example.com": false, "http://0.0.0.0:1/agent-card.json": false,
		"https://example.com/agent-card.json#x": false, "file:///etc": false, "https://example.com/drover": false,
	} {
		if err := CheckCard(text, false); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := CheckCard("https://example.com/card", true); err != nil {
		t.Errorf("by the word of the user: %v", err)
	}
	if onlyLocal("tcp", "192.0.2.1:80", nil) == nil || onlyLocal("tcp", "127.0.0.1:80", nil) != nil {
		t.Error("a name of this machine may lead elsewhere")
	}
	if _, err := Dial("https://example.com/agent-card.json", "a\nb"); err == nil {
		t.Error("a token with a line break was taken")
	}
}

func TestCheckID(t *testing.T) {
	for id, ok := range map[string]bool{"s1": true, "rs-a.b_c:d": true, "": false, "..": false, ".": false, "a/b": false, "a%2fb": false, "a b": false, "é": false, strings.Repeat("x", 201): false} {
		if err := CheckID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// dial returns a client of a server that answers every request by one function.
func dial(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := Dial(s.URL+CardPath, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// An error status is one harmless line, and says whether another try may help.
func TestStatus(t *testing.T) {
	for code, temporary := range map[int]bool{408: true, 429: true, 500: true, 502: true, 503: true, 400: false, 401: false, 404: false, 410: false} {
		c := dial(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"not\ntoday\u001b[31m"}}`)
		})
		_, err := c.Find(t.Context(), "m")
		var status *StatusError
		if !errors.As(err, &status) || status.Code != code || status.RetryAfter != 7*time.Second || Temporary(err) != temporary ||
			!strings.Contains(err.Error(), "not today") || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%d: %v (temporary: %v)", code, err, Temporary(err))
		}
	}
}

// The end of the caller's context ends a request at once, with its cause.
func TestSlow(t *testing.T) {
	asked, free := make(chan struct{}), make(chan struct{})
	c := dial(t, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-free
	})
	defer close(free)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() { // ends with the request
		<-asked
		cancel(enough)
	}()
	if _, err := c.Find(ctx, "m"); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

// A request that is too large is not tried again.
func TestTooLarge(t *testing.T) {
	c := dial(t, nil)
	c.agent = &agent{url: "http://127.0.0.1:1"}
	m := Message{ID: "m", Role: RoleUser, Parts: []Part{TextPart(strings.Repeat("\x01", maxBody/5))}}
	if _, err := c.Start(t.Context(), m, false); err == nil || Temporary(err) {
		t.Errorf("it is tried again: %v", err)
	}
}

// Times are written as the protocol has them.
func TestTimes(t *testing.T) {
	var at Time
	if err := json.Unmarshal([]byte(`"2026-01-02T03:04:05Z"`), &at); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(At(at.Time))
	if err != nil || string(data) != `"2026-01-02T03:04:05.000Z"` {
		t.Errorf("%s %v", data, err)
	}
	if err := json.Unmarshal([]byte(`"yesterday"`), &at); err == nil {
		t.Error("no time was read")
	}
}

var errNone = errors.New("none")

// Reading events survives any bytes.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{"", "data: {}\n\n", ":x\r\ndata:a\r\ndata: b\r\n\r\n", "data: cut", "event: e\n\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_ = frames(strings.NewReader(text), func(data []byte) error {
			if len(data) == 0 {
				t.Error("an event without data")
			}
			var e Event
			if json.Unmarshal(data, &e) != nil {
				return errNone
			}
			s := (&Client{}).follower("t-1")
			_ = s.take(e)
			s.news()
			s.Close()
			return nil
		})
	})
}
