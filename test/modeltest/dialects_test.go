package modeltest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

func postTo(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// The same script answers each API in its own form, and reads what is asked in
// the words of the first.
func TestDialects(t *testing.T) {
	chat := `{"model":"m","max_completion_tokens":7,"stream":true,"tools":[{"type":"function","function":{"name":"F","description":"d","parameters":{"type":"object"}}}],
		"messages":[{"role":"system","content":"sys"},{"role":"user","content":"ask"},
		{"role":"assistant","content":"well","tool_calls":[{"id":"c1","type":"function","function":{"name":"F","arguments":"{\"x\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"out"},{"role":"user","content":[{"type":"text","text":"more"},{"type":"image_url","image_url":{"url":"u"}}]}]}`
	responses := `{"model":"m","max_output_tokens":7,"stream":true,"instructions":"sys","tools":[{"type":"function","name":"F","description":"d","parameters":{"type":"object"}}],
		"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"ask"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"well"}]},
		{"type":"function_call","call_id":"c1","name":"F","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c1","output":"out"},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"more"},{"type":"input_image","image_url":"u"}]}]}`
	for _, c := range []struct {
		api  modeltest.API
		body string
		says []string
	}{
		{modeltest.Chat, chat, []string{`"content":"hi"`, `"reasoning_content":"hm"`, `"name":"Bash"`,
			`"arguments":"{\"a\":1}"`, `"finish_reason":"tool_calls"`, `"prompt_tokens":5`, "data: [DONE]\n\n"}},
		{modeltest.Responses, responses, []string{"event: response.created\n", `"delta":"hi"`, `"delta":"hm"`,
			`"delta":"{\"a\":1}"`, `"name":"Bash"`, `"input_tokens":5`, "event: response.completed\n"}},
	} {
		s := serve(t, modeltest.Turns(map[string][]modeltest.Answer{"": {
			{Blocks: []agent.Block{{Type: "thinking", Thinking: "hm"}, agent.TextBlock("hi"),
				modeltest.ToolUse("", "Bash", map[string]int{"a": 1})}, Usage: agent.Usage{InputTokens: 2, CacheReadTokens: 3}},
			modeltest.Error(400, "bad_kind", "bad words"),
		}}))
		status, got := postTo(t, s.URL+string(c.api), c.body)
		for _, want := range c.says {
			if status != 200 || !strings.Contains(got, want) {
				t.Errorf("%s: %d, no %s in %s", c.api, status, want, got)
			}
		}
		if status, got := postTo(t, s.URL+string(c.api), c.body); status != 400 || !strings.HasPrefix(got, `{"error":{`) ||
			!strings.Contains(got, "bad words") {
			t.Errorf("%s: error %d %s", c.api, status, got)
		}
		p, err := s.Requests()[0].Params()
		if err != nil {
			t.Fatal(err)
		}
		if p.Model != "m" || p.MaxTokens != 7 || !p.Stream || string(p.System) != `"sys"` || len(p.Tools) != 1 ||
			p.Tools[0].Name != "F" {
			t.Errorf("%s: params %+v", c.api, p)
		}
		var kinds []string
		for _, m := range p.Messages {
			blocks, err := m.Blocks()
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range blocks {
				kinds = append(kinds, string(m.Role())+" "+b.Type)
			}
		}
		if got, want := strings.Join(kinds, ", "),
			"user text, assistant text, assistant tool_use, user tool_result, user text, user image"; got != want {
			t.Errorf("%s: %s, want %s", c.api, got, want)
		}
		if got := s.Requests()[0].LastText(); got != "out\nmore" {
			t.Errorf("%s: LastText = %q", c.api, got)
		}
	}
}

func TestDialectsRefuse(t *testing.T) {
	s := serve(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("hi") })
	if status, got := postTo(t, s.URL+"/v1/responses", "{oops"); status != 400 || !strings.HasPrefix(got, `{"error":{`) {
		t.Errorf("a body that is no JSON got %d %s", status, got)
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"wizard"}]}`, "/v1/responses": `{"input":[{"type":"spell"}]}`,
	} {
		postTo(t, s.URL+path, body)
		all := s.Requests()
		if _, err := all[len(all)-1].Params(); err == nil {
			t.Errorf("%s: params of %s", path, body)
		}
	}
}
