package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPResources reads the outputs of tasks as resources, over stdio and HTTP.
func TestMCPResources(t *testing.T) {
	bin := build(t)
	for name, open := range map[string]func(*place, *mcp.ClientOptions) *client{
		"stdio": (*place).client,
		"http":  func(p *place, o *mcp.ClientOptions) *client { return p.mcpHTTP().session("2025-11-25", o) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mcpResources(t, newPlace(t, bin), open)
		})
	}
}

func mcpResources(t *testing.T, p *place, open func(*place, *mcp.ClientOptions) *client) {
	updates := make(chan string, 100)
	c := open(p, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
		updates <- r.Params.URI
	}})
	fifo, further := p.fifo("f"), filepath.Join(p.dir, "further")
	id := fmt.Sprint(c.call("task_run", map[string]any{"command": "echo 0123456789; cat f; seq 20000; until [ -e further ]; do sleep 0.05; done"}).task()["task_id"])
	uri := "drover://task/" + id + "/output"
	read := func(uri string) *mcp.ResourceContents {
		t.Helper()
		res, err := c.s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(res.Contents) != 1 {
			t.Fatalf("%s: %v, %v", uri, res, err)
		}
		return res.Contents[0]
	}
	if !within(patience, func() bool { return read(uri).Text == "0123456789\n" }) {
		t.Error("no output")
	}
	if got := read(uri + "?offset=4&max_bytes=4"); got.Text != "4567" || got.Meta["drover/nextOffset"] != 8.0 {
		t.Errorf("a range is %q, %v", got.Text, got.Meta)
	}
	list, err := c.s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != uri {
		t.Errorf("listed %v, %v", list, err)
	}
	for _, bad := range []string{"drover://task/bnosuch00/output", "drover://task/" + id + "/output?offset=-1", "drover://task/x/y/output", "file:///etc/passwd"} {
		if res, err := c.s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bad}); err == nil || !strings.Contains(err.Error(), "esource not found") {
			t.Errorf("%s: %v, %v", bad, res, err)
		}
	}
	listens := c.s.InitializeResult().ProtocolVersion >= "2026-07-28" // then the client is told on the stream alone
	if err := c.s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "drover://task/bnosuch00/output"}); err == nil && !listens {
		t.Error("subscribed to nothing")
	}
	if err := c.s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	p.free(fifo)
	if !within(patience, func() bool { return len(updates) > 0 }) {
		t.Fatal("more output was not told")
	}
	if got := <-updates; got != uri {
		t.Errorf("updated %s", got)
	}
	if !within(patience, func() bool { return strings.HasSuffix(read(uri).Text, "20000\n") }) {
		t.Error("not all output")
	}
	if err := os.WriteFile(further, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.call("task_wait", map[string]any{"task_id": id})
	if !within(patience, func() bool { return len(updates) > 0 }) {
		t.Error("the end was not told")
	}
	if read(uri).Meta["drover/ended"] != true {
		t.Error("it has not ended")
	}
	if n := len(updates); n > 10 {
		t.Errorf("%d updates", n)
	}
	if err := c.s.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
	_ = c.s.Close() // a session over HTTP may have ended with its server
}
