package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// foreignMode makes the test binary a server of the official SDK.
const foreignMode = "FOREIGN_MCP"

// foreign is a server of the official SDK, whose tools do what their names say.
func foreign() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "foreign", Version: "2"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	said := func(format string, args ...any) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil
	}
	add := func(name, schema string, f mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}, f)
	}
	add("echo", `{"type":"object"}`, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said("%s", r.Params.Arguments)
	})
	add("headed", `{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"},"none":{"type":"string","x-mcp-header":"None"},`+
		`"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Extra == nil || r.Extra.Header == nil {
				return said("no headers")
			}
			return said("%s %s %q", r.Extra.Header.Get("Mcp-Param-City"), r.Extra.Header.Get("Mcp-Param-N"), r.Extra.Header["Mcp-Param-None"])
		})
	add("ask", `{"type":"object"}`, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.InputResponses == nil {
			return &mcp.CallToolResult{RequestState: "opaque", InputRequests: mcp.InputRequestMap{
				"who": &mcp.ElicitParams{Message: "name?"}, "where": &mcp.ElicitParams{Message: "place?"}}}, nil
		}
		who, _ := r.Params.InputResponses["who"].(*mcp.ElicitResult)
		where, _ := r.Params.InputResponses["where"].(*mcp.ElicitResult)
		return said("%s %s %v %v", r.Params.RequestState, who.Action, who.Content["name"], where.Content["name"])
	})
	hung := make(chan string, 1)
	add("hang", `{"type":"object"}`, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		hung <- "ended"
		return nil, ctx.Err()
	})
	add("hung", `{"type":"object"}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said("%s", <-hung)
	})
	add("change", `{"type":"object"}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add("new", `{"type":"object"}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return said("new")
		})
		return said("changed")
	})
	add("touch", `{"type":"object"}`, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "note:1"}); err != nil {
			return nil, err
		}
		return said("touched")
	})
	s.AddResource(&mcp.Resource{Name: "note", URI: "note:1"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "note:1", Text: "a note"}}}, nil
		})
	return s
}

func foreignStdio() {
	_ = foreign().Run(context.Background(), &mcp.StdioTransport{}) // to the end of stdin
}

// foreigners runs a test over both transports.
func foreigners(t *testing.T, f func(t *testing.T, s Server)) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("stdio", func(t *testing.T) {
		f(t, Server{Command: self, Env: map[string]string{foreignMode: "1"}})
	})
	t.Run("http", func(t *testing.T) {
		one := foreign()
		h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return one },
			&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		f(t, Server{URL: srv.URL})
	})
}

// A server of the newest revision is spoken to in it: each request says who we are,
// and its headers what the server checks them against.
func TestStateless(t *testing.T) {
	foreigners(t, func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{Version: "7"}), s))
		if c.Revision() != "2026-07-28" || !c.Stateless() || c.About() != "foreign 2" {
			t.Errorf("%s, %s", c.Revision(), c.About())
		}
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Errorf("echo: %q", got)
		}
		raw, err := c.Call(t.Context(), "tools/call", map[string]any{"name": "headed",
			"arguments": map[string]any{"city": "Köln", "none": "", "deep": map[string]any{"n": 7}}})
		if err != nil {
			t.Fatal(err)
		}
		want := `=?base64?S8O2bG4=?= 7 ["=?base64??="]`
		if s.URL == "" {
			want = "no headers"
		}
		if got := textOf(t, raw); got != want {
			t.Errorf("headers %q, want %q", got, want)
		}
		raw, err = c.Call(t.Context(), "resources/read", map[string]string{"uri": "note:1"})
		if err != nil || !strings.Contains(string(raw), "a note") {
			t.Errorf("read: %s, %v", raw, err)
		}
		_, err = c.Call(t.Context(), "tools/call", params("nothing"))
		var rpc *RPCError
		if !errors.As(err, &rpc) || rpc.Code != CodeBadParams {
			t.Errorf("an unknown tool: %v", err)
		}
	})
}

// Questions in an answer are put, and the call is made again with the answers.
func TestStatelessAsks(t *testing.T) {
	foreigners(t, func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{}), s))
		raw, err := c.CallOpt(t.Context(), "tools/call", params("ask"), CallOptions{
			Answer: func(_ context.Context, method string, params json.RawMessage) (any, error) {
				if method != "elicitation/create" || !strings.Contains(string(params), "name?") {
					return nil, ErrNotMine
				}
				return map[string]any{"action": "accept", "content": map[string]string{"name": "Ahab"}}, nil
			}})
		if err != nil || textOf(t, raw) != "opaque accept Ahab <nil>" {
			t.Errorf("%s, %v", raw, err)
		}
	})
}

// A call that is broken off is broken off at the server.
func TestStatelessCancel(t *testing.T) {
	foreigners(t, func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{Call: time.Minute}), s))
		if _, err := c.CallOpt(t.Context(), "tools/call", params("hang"), CallOptions{Timeout: 50 * time.Millisecond}); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("the call: %v", err)
		}
		if got := text(t, c, "hung"); got != "ended" {
			t.Errorf("the server says %q", got)
		}
	})
}

// Changes of tools and of watched resources are told on a request that stays open.
func TestStatelessListen(t *testing.T) {
	foreigners(t, func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{}), s))
		heard := make(chan string, 10)
		defer c.Listen("notifications/resources/updated", func(p json.RawMessage) { heard <- string(p) })()
		if err := c.Subscribe(t.Context(), "note:1"); err != nil {
			t.Fatal(err)
		}
		text(t, c, "touch")
		if got := <-heard; !strings.Contains(got, "note:1") {
			t.Errorf("heard %s", got)
		}
		text(t, c, "change")
		has := func(tool Tool) bool { return tool.Name == "new" }
		for !slices.ContainsFunc(c.Tools(), has) {
			text(t, c, "echo")
		}
		if err := c.Unsubscribe(t.Context(), "note:1"); err != nil {
			t.Error(err)
		}
	})
}

// A server that does not know the newest revision gets a session, also if it answers
// nothing to what it does not know; one that starts slowly and knows only the newest
// is found all the same.
func TestAgree(t *testing.T) {
	for mode, want := range map[string]string{"silent": "2025-11-25", "newest": "2026-07-28", "slow newest": "2026-07-28",
		"reluctant newest": "2026-07-28"} {
		transports(t, mode, func(t *testing.T, s Server) {
			if mode == "slow newest" && s.URL != "" {
				t.Skip("the site answers in one go")
			}
			c := live(t, use(t, pool(t, Config{}), s))
			if c.Revision() != want {
				t.Errorf("%s: revision %s, want %s", mode, c.Revision(), want)
			}
			if got := text(t, c, "echo"); got != `{"a":1}` {
				t.Errorf("%s: echo: %q", mode, got)
			}
		})
	}
}

// A server cannot keep a call at asking without end.
func TestStatelessBounds(t *testing.T) {
	transports(t, "newest", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{}), s))
		for tool, want := range map[string]string{"asksalways": "it still asks after 10 answers", "asksall": "17 questions at the same time",
			"busy": "it is busy", "asksodd": "method not found: files/read"} {
			if _, err := c.Call(t.Context(), "tools/call", params(tool)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", tool, err, want)
			}
		}
		if got := text(t, c, "echo"); got != `{"a":1}` {
			t.Errorf("echo: %q", got)
		}
	})
}

// Tools whose headers could not be sent are left out.
func TestHeadersValid(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object"}`: true,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"}}}`: true,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`:  false,
		`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`:                                           false,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A: b"}}}`:                                        false,
		`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`:                                             false,
	} {
		if got := (Tool{InputSchema: json.RawMessage(schema)}).headersValid(); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
