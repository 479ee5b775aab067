package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/replay"
)

// No secret of a session is in its recording, wherever it was printed, and the recording is played without them.
func TestRecordedSecrets(t *testing.T) {
	p := newPlace(t, build(t))
	secrets := map[string]string{
		"key of the provider": "sk-ant-0123456789abcdef", "key that the settings name": "door/0123+456==\"x\"", "token": "dep-0123456789abcdef",
		"environment of a server": "srv-0123456789abcdef", "header of a server": "hdr-0123456789abcdef", "server of an agent": "agt-0123456789abcdef",
	}
	heard := make(chan string, 10)
	s := mcp.NewServer(&mcp.Implementation{Name: "f", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "leak", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "headers " + r.Extra.Header.Get("Authorization")}}}, nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case heard <- r.Header.Get("Authorization"):
		default:
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	p.servers(object{
		"f": object{"type": "http", "url": srv.URL, "headers": object{"Authorization": "Bearer " + secrets["header of a server"]}},
		"g": object{"command": "drover", "args": []string{"mcp", "serve"}, "env": object{"SERVER_TOKEN": secrets["environment of a server"]}},
	})
	p.file("settings.json", `{"providers": {"openai": {"apiKeyEnv": "LLM_DOOR"}}}`)
	p.model(map[string][]step{"main": {
		calls("Bash", bash("printenv DEPLOY_TOKEN LLM_DOOR; printenv >all; cat all")),
		calls("mcp__f__leak", object{}),
		calls("Bash", bash("echo "+secrets["environment of a server"])),
		calls("Agent", object{"description": "part", "prompt": "use " + secrets["token"], "subagent_type": "own"}),
		says("I was given the keys " + secrets["key of the provider"] + " and " + secrets["key that the settings name"]),
	}, "own": {says("done with " + secrets["token"])}})
	p.env = append(p.env, "ANTHROPIC_API_KEY="+secrets["key of the provider"], "LLM_DOOR="+secrets["key that the settings name"],
		"DEPLOY_TOKEN="+secrets["token"])
	agents, err := json.Marshal(object{"own": object{"description": "d", "prompt": "p", "mcpServers": []any{object{"h": object{
		"command": "drover", "args": []string{"mcp", "serve"}, "env": object{"H_TOKEN": secrets["server of an agent"]}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.work, "run.jsonl")
	r := p.good("record", "--settings", "settings.json", "--permission-mode", "bypassPermissions", "--agents", string(agents), file,
		"deploy with "+secrets["token"])
	if !strings.Contains(r.stdout(), secrets["key of the provider"]) || !strings.Contains(<-heard, secrets["header of a server"]) {
		t.Errorf("the run itself has changed: %s", r.stdout())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := replay.Read(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, e := range f.Entries {
		text += string(e.Data) + "\n"
	}
	for what, s := range secrets {
		if strings.Contains(text, s) || strings.Contains(strings.ReplaceAll(text, `\"`, `"`), s) {
			t.Errorf("the recording has the %s", what)
		}
	}
	for _, mark := range []string{"ANTHROPIC_API_KEY", "LLM_DOOR", "DEPLOY_TOKEN", "SERVER_TOKEN", "Authorization"} {
		if !strings.Contains(text, "[left out: "+mark+"]") {
			t.Errorf("the recording does not say that %s is left out", mark)
		}
	}
	p.env = p.env[:len(p.env)-3]
	if r := p.good("replay", "--check", file); !strings.HasPrefix(r.stdout(), "no difference") {
		t.Error(r.stdout())
	}
}
