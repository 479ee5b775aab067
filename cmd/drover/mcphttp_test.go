package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPOverHTTP speaks with `drover mcp serve --http` as clients do.
func TestMCPOverHTTP(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"clients": mcpHTTPClients, "refused": mcpHTTPRefused, "left": mcpHTTPLeft, "ended": mcpHTTPEnded, "token": mcpHTTPToken,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// httpServer is a server process, and how it is reached.
type httpServer struct {
	*place
	r          *running
	url, token string
}

func (p *place) mcpHTTP(more ...string) *httpServer {
	p.t.Helper()
	s := &httpServer{place: p, r: p.start(append([]string{"mcp", "serve", "--http", "127.0.0.1:0"}, more...)...)}
	s.url = s.r.until("http://127.0.0.1:")
	file := strings.TrimPrefix(s.r.until("token: "), "token: ")
	data, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		p.t.Errorf("the token's file: %v, %v", info.Mode(), err)
	}
	s.token = strings.TrimSpace(string(data))
	p.t.Cleanup(s.end)
	return s
}

// end ends the server as a shutdown would.
func (s *httpServer) end() {
	if s.r != nil {
		_ = s.r.cmd.Process.Signal(syscall.SIGTERM)
		s.r.wait()
		s.r = nil
	}
}

// RoundTrip sends a request with the token.
func (s *httpServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+s.token)
	return http.DefaultTransport.RoundTrip(r)
}

// session is a client of a revision.
func (s *httpServer) session(revision string, options *mcp.ClientOptions) *client {
	s.t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(s.t.Context(),
		&mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: s}},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		s.t.Fatal(err)
	}
	return &client{t: s.t, s: c}
}

// post sends a message as it is.
func (s *httpServer) post(body string, header map[string]string) (status int, answer string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+s.token)
	for k, v := range header {
		if k == "Host" {
			r.Host = v
		} else if r.Header.Set(k, v); v == "" {
			r.Header.Del(k)
		}
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// Clients with sessions and without share the tasks; each has its own revision.
func mcpHTTPClients(t *testing.T, p *place) {
	s := p.mcpHTTP()
	old, newest := s.session("2025-11-25", nil), s.session("2026-07-28", nil)
	if a, b := old.s.ID(), newest.s.ID(); a == "" || b != "" {
		t.Errorf("sessions %q and %q", a, b)
	}
	for _, c := range []*client{old, newest} {
		done := c.call("task_run", map[string]any{"command": "echo out; exit 3", "background": false})
		if rec := done.task(); rec["status"] != "failed" || rec["exit_code"] != 3.0 || done["output"] != "out\n" {
			t.Errorf("foreground %v", done)
		}
	}
	id := newest.call("task_run", map[string]any{"command": "sleep 630"}).task()["task_id"]
	if tasks, _ := old.call("task_list", nil)["tasks"].([]any); len(tasks) != 1 {
		t.Errorf("listed %v, want %v", tasks, id)
	}
	if err := newest.s.Close(); err != nil {
		t.Error(err)
	}
	p.alive("sleep 630") // it has no client that goes
	old.call("task_stop", map[string]any{"task_id": id})
	p.leaves(patience, "sleep 630")
}

// What is no request of a client with the token is refused with an error of JSON-RPC, and
// the server goes on.
func mcpHTTPRefused(t *testing.T, p *place) {
	s := p.mcpHTTP()
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		status int
		says   string
	}{
		"no token":      {list, map[string]string{"Authorization": ""}, 401, "no valid token"},
		"wrong token":   {list, map[string]string{"Authorization": "Bearer " + s.token + "x"}, 401, "no valid token"},
		"other host":    {list, map[string]string{"Host": "evil.example"}, 403, "evil.example"},
		"other origin":  {list, map[string]string{"Origin": "http://evil.example"}, 403, "evil.example"},
		"no origin":     {list, map[string]string{"Origin": "null"}, 403, "null"},
		"garbage":       {"{]", nil, 400, "-32700"},
		"nothing":       {"", nil, 400, "-32700"},
		"no message":    {`{"id":7}`, nil, 400, `"id":7,"error":{"code":-32600`},
		"too long":      {`{"x":"` + strings.Repeat("x", 17<<20) + `"}`, nil, 413, "longer than"},
		"no session":    {list, map[string]string{"Mcp-Session-Id": "none"}, 404, ""},
		"other task":    {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a"}}`, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Name": "b"}, 400, "-32020"},
		"future":        {list, map[string]string{"Mcp-Protocol-Version": "2099-01-01"}, 400, ""},
		"header alone":  {list, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}, 400, "-32602"},
		"message alone": {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, nil, 400, "-32020"},
	} {
		if status, answer := s.post(c.body, c.header); status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s: status %d, %s", name, status, answer)
		}
	}
	if n := len(s.session("2025-11-25", nil).call("task_list", nil)); n == 0 {
		t.Error("no answer after bad requests")
	}
}

// A session that is ended takes its calls and tasks along.
func mcpHTTPLeft(t *testing.T, p *place) {
	s := p.mcpHTTP()
	c := s.session("2025-11-25", nil)
	c.call("task_run", map[string]any{"command": "sleep 631"})
	done := make(chan error, 1)
	go func() { // ends with the call, which is waited for below
		_, err := c.s.CallTool(t.Context(), &mcp.CallToolParams{Name: "task_run", Arguments: map[string]any{
			"command": "sleep 632", "background": false,
		}})
		done <- err
	}()
	p.alive("sleep 632")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", c.s.ID())
	res, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	p.leaves(patience, "sleep 631")
	p.leaves(patience, "sleep 632")
	<-done
	_ = c.s.Close() // its session is gone already
}

// A server that is ended leaves nothing, whatever is under way.
func mcpHTTPEnded(t *testing.T, p *place) {
	s := p.mcpHTTP()
	c, newest := s.session("2025-11-25", nil), s.session("2026-07-28", nil)
	c.call("task_run", map[string]any{"command": "sleep 633"})
	newest.call("task_run", map[string]any{"command": "sleep 634"})
	done := make(chan error, 1)
	go func() { // ends with the call, which is waited for below
		_, err := newest.s.CallTool(t.Context(), &mcp.CallToolParams{Name: "task_run", Arguments: map[string]any{
			"command": "sleep 635", "background": false,
		}})
		done <- err
	}()
	p.alive("sleep 635")
	s.end()
	<-done
	for _, command := range []string{"sleep 633", "sleep 634", "sleep 635"} {
		p.leaves(patience, command)
	}
	_ = c.s.Close() // its server has gone
	_ = newest.s.Close()
}

func mcpHTTPToken(t *testing.T, p *place) {
	p.fails(2, []string{"mcp", "serve", "--http", "0.0.0.0:0"}, "other machines", "--any-address")
	p.fails(2, []string{"mcp", "serve", "--http", "nowhere"}, "nowhere")
	p.fails(2, []string{"mcp", "serve", "--token-file", "x"}, "--http")
	file := filepath.Join(p.dir, "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o644); err != nil { //nolint:gosec // too wide on purpose
		t.Fatal(err)
	}
	p.fails(2, []string{"mcp", "serve", "--http", "127.0.0.1:0", "--token-file", "token"}, "other users", "chmod 600")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.mcpHTTP("--token-file", "token")
	if s.token != "0123456789abcdef" {
		t.Errorf("token %q", s.token)
	}
	a := p.mcpHTTP()
	b := p.mcpHTTP()
	if a.token != b.token || a.token == s.token || len(a.token) < 20 {
		t.Errorf("tokens %q and %q", a.token, b.token)
	}
	raw, err := json.Marshal(b.session("", nil).call("task_list", nil))
	if err != nil || !strings.Contains(string(raw), "tasks") {
		t.Errorf("%s, %v", raw, err)
	}
}
