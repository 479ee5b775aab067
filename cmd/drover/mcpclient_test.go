package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPForeign has agents use a server of the official SDK, in the newest revision and
// in the one before: what it may ask of its client, and what else than tools it offers.
func TestMCPForeign(t *testing.T) {
	bin := build(t)
	for name, test := range mcpForeignCases() {
		for _, revision := range []string{"2026-07-28", "2025-11-25"} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				t.Parallel()
				test(t, newPlace(t, bin), revision == "2026-07-28")
			})
		}
	}
}

// foreign serves a server of the official SDK, configured as f.
func (p *place) foreign(s *mcp.Server, stateless bool) *httptest.Server {
	p.t.Helper()
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
	p.t.Cleanup(srv.Close)
	p.servers(object{"f": object{"type": "http", "url": srv.URL}})
	return srv
}

// asker is a server whose tools ask their client what they are called with.
func asker() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
	add := func(name string, ask func() mcp.InputRequest) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				got := r.Params.InputResponses["it"]
				if got == nil {
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"it": ask()}}, nil
				}
				raw, err := json.Marshal(got)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}, err
			})
	}
	//nolint:staticcheck // what is deprecated is still in use
	add("roots", func() mcp.InputRequest { return &mcp.ListRootsParams{} })
	add("form", func() mcp.InputRequest {
		return &mcp.ElicitParams{Message: "Who?", RequestedSchema: json.RawMessage(`{"type":"object","required":["name"],` +
			`"properties":{"name":{"type":"string","default":"Ahab"},"ship":{"type":"string"}}}`)}
	})
	add("visit", func() mcp.InputRequest {
		return &mcp.ElicitParams{Mode: "url", Message: "Sign in", URL: "https://x.example/in", ElicitationID: "1"}
	})
	add("sample", func() mcp.InputRequest {
		//nolint:staticcheck // what is deprecated is still in use
		messages := []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "rhyme on sea"}}}
		//nolint:staticcheck // as above
		return &mcp.CreateMessageParams{SystemPrompt: "You are a poet.", MaxTokens: 100, Messages: messages}
	})
	var visited atomic.Bool
	s.AddTool(&mcp.Tool{Name: "first", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if !visited.Swap(true) {
				return nil, mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{Mode: "url", Message: "Sign in", URL: "https://x.example/first",
					ElicitationID: "1"}})
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "welcome"}}}, nil
		})
	return s
}

func mcpForeignCases() map[string]func(t *testing.T, p *place, stateless bool) {
	const tools = "--allowed-tools=mcp__f"
	return map[string]func(t *testing.T, p *place, stateless bool){
		"roots": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {calls("mcp__f__roots", object{}), says("done")}})
			p.good("-p", "go", tools)
			real, err := filepath.EvalSymlinks(p.work)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, "the result", m.Requests()[1].LastText(), `"uri":"file://`+real)
		},
		"form": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {calls("mcp__f__form", object{}), says("done")}})
			r := p.start("-p", "go", tools, "--ask-timeout", "1m")
			p.good("approvals", "answer", fmt.Sprint(p.asked("Who?")["id"]), `{"ship":"Pequod"}`)
			r.wait()
			holds(t, "the result", m.Requests()[1].LastText(), `"action":"accept"`, `"name":"Ahab"`, `"ship":"Pequod"`)
		},
		"visit": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {calls("mcp__f__visit", object{}), says("done")}})
			r := p.start("-p", "go", tools, "--ask-timeout", "1m")
			p.good("approvals", "answer", fmt.Sprint(p.asked("https://x.example/in")["id"]), `{}`)
			r.wait()
			if got := m.Requests()[1].LastText(); !strings.Contains(got, `"action":"accept"`) || strings.Contains(got, "content") {
				t.Errorf("the server got %s", got)
			}
		},
		"first": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {calls("mcp__f__first", object{}), says("done")}})
			r := p.start("-p", "go", tools, "--ask-timeout", "1m")
			p.good("approvals", "answer", fmt.Sprint(p.asked("https://x.example/first")["id"]), `{}`)
			r.wait()
			holds(t, "the result", m.Requests()[1].LastText(), "welcome")
		},
		"sample": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {calls("mcp__f__sample", object{}), says("me and the sea"), says("done"),
				calls("mcp__f__sample", object{}), says("end")}})
			r := p.start("-p", "go", tools, "--ask-timeout", "1m")
			q := p.asked("rhyme on sea")
			if q["tool"] != "mcp__f" || q["kind"] != "permission" {
				t.Errorf("asked %v", q)
			}
			p.good("approvals", "allow", fmt.Sprint(q["id"]))
			r.wait()
			got := m.Requests()[1]
			params, err := got.Params()
			if err != nil {
				t.Fatal(err)
			}
			holds(t, "the model is asked", string(params.System)+got.LastText(), "You are a poet.", "rhyme on sea")
			holds(t, "the result", m.Requests()[2].LastText(), "me and the sea", `"stopReason":"endTurn"`)
			p.run("-p", "go", tools)
			holds(t, "the result where nobody can answer", m.Requests()[4].LastText(), "the model was not asked: nobody is there to answer")
		},
	}
}
