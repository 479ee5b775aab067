package session

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/task"
)

// board is a true MCP server with one resource that tells of its changes.
type board struct {
	server *mcp.Server
	http   *httptest.Server
	asked  chan string // subscribe and unsubscribe, in order

	mu   sync.Mutex
	text string
}

const boardURI = "board://lines"

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{asked: make(chan string, 100), text: "old"}
	b.server = mcp.NewServer(&mcp.Implementation{Name: "board", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
			b.asked <- "subscribe " + r.Params.URI
			return nil
		},
		UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
			b.asked <- "unsubscribe " + r.Params.URI
			return nil
		},
	})
	b.server.AddResource(&mcp.Resource{URI: boardURI, Name: "lines"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: boardURI, Text: b.text}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return b.server }, nil)
	b.http = httptest.NewServer(handler)
	t.Cleanup(func() {
		b.http.CloseClientConnections()
		b.http.Close()
	})
	return b
}

// write adds a line and tells of it.
func (b *board) write(t *testing.T, line string) {
	t.Helper()
	b.mu.Lock()
	b.text += "\n" + line
	b.mu.Unlock()
	if err := b.server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: boardURI}); err != nil {
		t.Fatal(err)
	}
}

// A resource is watched at a true server: by two monitors over one connection,
// which asks the server once and lets it go with the last.
func TestMonitorResource(t *testing.T) {
	b := newBoard(t)
	pool := mcpclient.NewPool(mcpclient.Config{})
	r := open(t, "", func(c *Config) {
		c.Agents.MCP = &servers.Config{Pool: pool, Servers: []servers.Server{{Name: "board", Server: mcpclient.Server{URL: b.http.URL}}}}
	})
	start := func(uri string) task.Record {
		return r.run("", watching(control.MonitorRequest{Server: "board", URI: uri}))
	}
	one, two := start(boardURI), start(boardURI)
	for _, rec := range []task.Record{one, two} {
		r.counts(rec.ID, task.MonitorCount{}) // it watches
	}
	b.write(t, "first")
	for _, rec := range []task.Record{one, two} {
		r.counts(rec.ID, task.MonitorCount{Lines: 1, Events: 1})
	}
	r.end(one.ID)
	b.write(t, "second")
	r.counts(two.ID, task.MonitorCount{Lines: 2, Events: 2})
	r.end(two.ID)
	for _, want := range []string{"subscribe " + boardURI, "unsubscribe " + boardURI} {
		if got := <-b.asked; got != want {
			t.Errorf("the server was asked to %s, want %s", got, want)
		}
	}
	c, err := r.Output(r.ctx, control.OutputRequest{Ref: string(two.ID)})
	if err != nil || string(c.Data) != "first\nsecond\n" {
		t.Errorf("output %q, %v", c.Data, err)
	}
	for uri, why := range map[string]string{"board://none": "not found"} {
		if rec := r.wait(string(start(uri).ID))[0]; rec.Status != task.Failed || !strings.Contains(strings.ToLower(rec.Error), why) {
			t.Errorf("%s: %s, %q", uri, rec.Status, rec.Error)
		}
	}
	rec := r.wait(string(r.run("", watching(control.MonitorRequest{Server: "other", URI: "x:y"})).ID))[0]
	if rec.Status != task.Failed || rec.Cause.Reason != task.ReasonStart || !strings.Contains(rec.Error, "other") {
		t.Errorf("an unknown server: %s, %q", rec.Status, rec.Error)
	}
}

// end stops a task.
func (r *testSession) end(id task.ID) {
	r.t.Helper()
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(id)}}); err != nil {
		r.t.Fatal(err)
	}
}

// counts waits until a monitor has counted so much.
func (r *testSession) counts(id task.ID, want task.MonitorCount) {
	r.t.Helper()
	last := ""
	for e, err := range r.log.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatalf("%v; at last %s, want %+v", err, last, want)
		}
		if e.Task.ID != id {
			continue
		}
		if last = string(e.Task.Status); e.Task.Progress != nil && e.Task.Progress.Monitor != nil {
			last = fmt.Sprintf("%+v", *e.Task.Progress.Monitor)
			if *e.Task.Progress.Monitor == want {
				return
			}
		}
		if e.Task.Status.Terminal() {
			r.t.Fatalf("it has ended: %s, %s", e.Task.Error, last)
		}
	}
}
