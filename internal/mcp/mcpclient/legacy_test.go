package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Servers over the transport of 2024 are used like others.
func TestLegacy(t *testing.T) {
	one := foreign()
	one.AddTool(&mcp.Tool{Name: "huge", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 1<<20)}}}, nil
		})
	h := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return one }, nil)
	var authorized atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer t" {
			authorized.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	c := live(t, use(t, pool(t, Config{FrameBytes: 256 << 10}),
		Server{Type: "sse", URL: srv.URL + "/sse", Headers: map[string]string{"Authorization": "Bearer t"}}))
	if c.Revision() != "2025-11-25" {
		t.Errorf("revision %s", c.Revision())
	}
	for range 2 {
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Errorf("echo: %q", got)
		}
		if _, err := c.Call(t.Context(), "tools/call", params("huge")); !errors.Is(err, ErrTooLong) {
			t.Errorf("a long answer: %v", err)
		}
	}
	if authorized.Load() == 0 {
		t.Error("the headers were not sent")
	}
}

// A server that is no such one is an error that says so, and none gets what is meant for
// another host.
func TestLegacyOdd(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"without a stream of events":       func(http.ResponseWriter, *http.Request) {},
		"refuses the call with status 401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"its stream has ended":             func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") },
		"an address of another host": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: endpoint\ndata: http://elsewhere.invalid/\n\n")
		},
	} {
		srv := httptest.NewServer(answer)
		l := use(t, pool(t, Config{}), Server{Type: "sse", URL: srv.URL})
		if _, err := l.Conn(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		l.Release()
		srv.Close()
	}
}
