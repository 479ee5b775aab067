package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/test/authtest"
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

// library is a server with resources and prompts.
func library() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, nil)
	read := func(text string, blob []byte) mcp.ResourceHandler {
		return func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "image/png", Text: text, Blob: blob}}}, nil
		}
	}
	s.AddResource(&mcp.Resource{Name: "note", URI: "book:1", Description: "A note\u200b."}, read("call me Ishmael", nil))
	s.AddResource(&mcp.Resource{Name: "cover", URI: "book:cover", MIMEType: "image/png"}, read("", []byte("PNG")))
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "page", URITemplate: "book:page/{n}"}, read("a page", nil))
	s.AddPrompt(&mcp.Prompt{Name: "review", Description: "Reviews a book", Arguments: []*mcp.PromptArgument{{Name: "title", Required: true},
		{Name: "tone"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{
			Text: fmt.Sprintf("Review %q in a %s tone.", r.Params.Arguments["title"], r.Params.Arguments["tone"])}}}}, nil
	})
	return s
}

// TestMCPLogin signs in to a server, from outside: who has not is told how, and who has
// stays so when a token expires.
func TestMCPLogin(t *testing.T) {
	p := newPlace(t, build(t))
	s := asker()
	auth := authtest.New(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(auth.Close)
	p.servers(object{"f": object{"type": "http", "url": auth.URL + "/mcp"}, "local": object{"command": "true"}})
	holds(t, "the list", p.run("mcp", "list").stdout(), "status 401", "sign in with `drover mcp login f`")
	login := p.start("mcp", "login", "f")
	res, err := http.Get(login.until(auth.URL + "/authorize"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if r := login.wait(); r.code != 0 || !strings.Contains(r.stdout(), "You are signed in to f.") {
		t.Fatalf("login: %d, %s%s", r.code, r.stdout(), r.stderr)
	}
	m := p.model(map[string][]step{"main": {calls("mcp__f__roots", object{}), says("done"), calls("mcp__f__roots", object{}), says("done")}})
	p.run("-p", "go", "--allowed-tools=mcp__f")
	holds(t, "the result", m.Requests()[1].LastText(), `"uri":"file://`)
	auth.Expire()
	p.run("-p", "go", "--allowed-tools=mcp__f")
	holds(t, "the result after the token has expired", m.Requests()[3].LastText(), `"uri":"file://`)
	if got := fmt.Sprint(auth.Grants()); got != "[authorization_code refresh_token]" {
		t.Errorf("grants %s", got)
	}
	auth.Withdraw()
	holds(t, "the list", p.run("mcp", "list").stdout(), "the sign-in has ended (sign in again with `drover mcp login`)")
	holds(t, "logout", p.good("mcp", "logout", "f").stdout(), "The tokens of f are removed.")
	holds(t, "logout", p.good("mcp", "logout", "f").stdout(), "You were not signed in to f.")
	p.fails(2, []string{"mcp", "login", "local"}, "MCP server local is a command")
	p.fails(3, []string{"mcp", "login", "nobody"}, "no MCP server nobody")
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
		"resources": func(t *testing.T, p *place, stateless bool) {
			p.foreign(library(), stateless)
			read := func(uri string) step { return calls("ReadMcpResource", object{"server": "f", "uri": uri}) }
			m := p.model(map[string][]step{"main": {calls("ListMcpResources", object{}), read("book:1"), read("book:cover"), read("book:page/7"),
				calls("ReadMcpResource", object{"server": "x", "uri": "y"}), says("done"), read("book:1"), says("end")}})
			p.good("-p", "go", "--allowed-tools=ReadMcpResource")
			holds(t, "the list", m.Requests()[1].LastText(), "server f: book:1 - note - A note<U+200B>.", "server f: book:cover - cover - image/png",
				"server f: book:page/{n} (template) - page")
			holds(t, "the note", m.Requests()[2].LastText(), "call me Ishmael")
			path := found(m.Requests()[3], `image/png, 3 bytes: saved to ([^\s\]]+\.png)`)
			if data, err := os.ReadFile(path); err != nil || string(data) != "PNG" {
				t.Errorf("the cover is %q, %v", data, err)
			}
			holds(t, "the page", m.Requests()[4].LastText(), "a page")
			holds(t, "an unknown server", m.Requests()[5].LastText(), `there is no MCP server "x" (there are: f)`)
			p.run("-p", "go")
			holds(t, "without leave", m.Requests()[7].LastText(), "no rule allows ReadMcpResource")
		},
		"prompts": func(t *testing.T, p *place, stateless bool) {
			p.foreign(library(), stateless)
			m := p.model(map[string][]step{"main": {says("a whale of a book")}})
			p.good("-p", `/mcp__f__review "Moby Dick" rather sober`)
			holds(t, "the prompt", m.Requests()[0].LastText(), `Review "Moby Dick" in a rather sober tone.`)
			p.fails(2, []string{"-p", "/mcp__f__review"}, "/mcp__f__review needs title (write it as: /mcp__f__review title [tone])")
			p.fails(2, []string{"-p", "/mcp__f__nothing"}, "there is no command /mcp__f__nothing")
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
		// What a server has the model say is paid by the budget of the session, and not said beyond it.
		"sample budget": func(t *testing.T, p *place, stateless bool) {
			p.foreign(asker(), stateless)
			m := p.model(map[string][]step{"main": {
				using(10_000, 0, calls("mcp__f__sample", object{})), using(10_000, 0, says("me and the sea")), says("never"),
			}})
			r := p.start("-p", "go", tools, "--ask-timeout", "1m", "--model=claude-sonnet-4-5", "--max-budget-usd", "0.05")
			p.good("approvals", "allow", fmt.Sprint(p.asked("rhyme on sea")["id"]))
			holds(t, "stderr", r.wait().stderr, "the budget of $0.05 is spent ($0.06)")
			if n := m.Count(); n != 2 {
				t.Errorf("%d requests to the model", n)
			}
			m = p.model(map[string][]step{"main": {using(20_000, 0, calls("mcp__f__sample", object{})), says("never")}})
			r = p.start("-p", "go", tools, "--ask-timeout", "1m", "--model=claude-sonnet-4-5", "--max-budget-usd", "0.05")
			p.good("approvals", "allow", fmt.Sprint(p.asked("rhyme on sea")["id"]))
			holds(t, "stderr", r.wait().stderr, "the budget of $0.05 is spent ($0.06)")
			if n := m.Count(); n != 1 {
				t.Errorf("%d requests to the model, and the budget was spent with the first", n)
			}
		},
	}
}
