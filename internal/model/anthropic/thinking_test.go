package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func TestThinkingOnTheWire(t *testing.T) {
	for _, c := range []struct {
		model string
		ask   agent.Thinking
		most  int
		want  string // thinking, output_config and max_tokens
	}{
		{"claude-opus-4-5", agent.Thinking{}, 9000, `null null 9000`},
		{"claude-opus-4-5", agent.Thinking{Tokens: 5000}, 9000, `{"type":"enabled","budget_tokens":5000} null 9000`},
		{"claude-opus-4-5", agent.Thinking{Tokens: 9000}, 9000, `{"type":"enabled","budget_tokens":9000} null 13096`},
		{"claude-opus-4-5", agent.Thinking{Tokens: 90_000}, 0, `{"type":"enabled","budget_tokens":59904} null 64000`},
		{"claude-opus-4-5", agent.Thinking{Tokens: 1}, 9000, `{"type":"enabled","budget_tokens":1024} null 9000`},
		{"claude-opus-4-5", agent.Thinking{Effort: "low"}, 9000, `{"type":"enabled","budget_tokens":4096} null 9000`},
		{"claude-sonnet-4-6", agent.Thinking{Effort: "max"}, 9000, `{"type":"adaptive"} {"effort":"max"} 9000`},
		{"claude-opus-5-5", agent.Thinking{Tokens: 10_000}, 9000, `{"type":"adaptive"} {"effort":"medium"} 9000`},
		{"claude-opus-5-20270101", agent.Thinking{Effort: "xhigh"}, 9000, `{"type":"adaptive"} {"effort":"xhigh"} 9000`},
		{"claude-opus-5-5", agent.Thinking{Tokens: -1}, 9000, `{"type":"disabled"} null 9000`},
		{"claude-opus-4-20250514", agent.Thinking{Tokens: 2000}, 9000, `{"type":"enabled","budget_tokens":2000} null 9000`},
	} {
		s := answers(t, modeltest.Text("ok"))
		m := connect(t, Config{Account: modelwire.Account{BaseURL: s.URL}})
		req := request("hi")
		req.Model, req.Thinking, req.MaxTokens = c.model, c.ask, c.most
		if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Thinking json.RawMessage `json:"thinking"`
			Output   json.RawMessage `json:"output_config"`
			Most     json.RawMessage `json:"max_tokens"`
		}
		if err := json.Unmarshal(s.Requests()[0].Body, &got); err != nil {
			t.Fatal(err)
		}
		null := func(raw json.RawMessage) string {
			if raw == nil {
				return "null"
			}
			return string(raw)
		}
		if line := null(got.Thinking) + " " + null(got.Output) + " " + string(got.Most); line != c.want {
			t.Errorf("%s %+v: %s, want %s", c.model, c.ask, line, c.want)
		}
	}
}
