package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

// sent is the body of a request, which must be JSON.
func sent(t *testing.T, req *agent.Request) string {
	t.Helper()
	m := connect(t, Config{})
	parts, err := m.body(req, "m")
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Join(parts, nil)
	if !json.Valid(body) {
		t.Fatalf("no JSON: %s", body)
	}
	return string(body)
}

// step is a reply with n calls and the message with their results.
func step(n int) []agent.Message {
	var calls, results []agent.Block
	for i := range n {
		id := fmt.Sprint("toolu_", i)
		calls = append(calls, modeltest.ToolUse(id, "Bash", map[string]any{"n": i}))
		results = append(results, agent.ToolResultBlock(id, "ok", false))
	}
	return []agent.Message{agent.NewMessage(agent.Assistant, calls...), agent.NewMessage(agent.User, results...)}
}

// Marks stand after the tools, after the system prompt, and at the top for the
// last message. After a step that is longer than the provider looks back there
// is one more, where the request before this one ended.
func TestMarks(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	for _, c := range []struct{ calls, marks int }{{1, 3}, {9, 3}, {10, 4}, {40, 4}} {
		req := request("begin")
		req.Tools = append(req.Tools, agent.ToolSpec{Name: "Last", InputSchema: json.RawMessage(`{}`)})
		req.Messages = append(req.Messages, step(1)...)
		req.Messages = append(req.Messages, step(c.calls)...)
		body := sent(t, req)
		if n := strings.Count(body, mark); n != c.marks {
			t.Errorf("%d calls: %d marks, want %d", c.calls, n, c.marks)
		}
		if !strings.Contains(body, `"name":"Last","description":"","input_schema":{},`+mark) ||
			!strings.Contains(body, `"text":"be <brief>",`+mark) {
			t.Errorf("marks in %s", body)
		}
		if c.marks == 4 && !strings.Contains(body, `"tool_use_id":"toolu_0","content":"ok",`+mark+`}]},{"role":"assistant"`) {
			t.Errorf("the fourth mark is not where the last request ended: %s", body)
		}
	}
	bare := sent(t, &agent.Request{Messages: step(30)[:1]})
	if n := strings.Count(bare, mark); n != 1 {
		t.Errorf("%d marks without tools and system: %s", n, bare)
	}
}

// What is kept for an hour stands before what is kept for minutes.
func TestLongMarks(t *testing.T) {
	const short, long = `"cache_control":{"type":"ephemeral"}`, `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	for _, c := range []struct {
		retain      agent.Retain
		short, long int
	}{{agent.Retain{}, 4, 0}, {agent.Retain{Head: true}, 2, 2}, {agent.Retain{All: true}, 0, 4}} {
		req := request("begin")
		req.Tools = append(req.Tools, agent.ToolSpec{Name: "Last", InputSchema: json.RawMessage(`{}`)})
		req.Messages = append(req.Messages, step(40)...)
		req.Retain = c.retain
		body := sent(t, req)
		if s, l := strings.Count(body, short), strings.Count(body, long); s != c.short || l != c.long {
			t.Errorf("%+v: %d marks for minutes and %d for an hour, want %d and %d", c.retain, s, l, c.short, c.long)
		}
		if c.retain.Head && (!strings.Contains(body, `"input_schema":{},`+long) || !strings.Contains(body, `"text":"be <brief>",`+long)) {
			t.Errorf("%+v: %s", c.retain, body)
		}
	}
}

// A message in a form that is not ours is left alone by the fourth mark.
func TestMarkOdd(t *testing.T) {
	for _, raw := range []string{`{"role":"user","content":"text"}`,
		`{ "role":"user","content":[{"type":"text","text":"x"}]}`,
		`{"content":[{"type":"text","text":"}]}"}],"role":"user"}`} {
		var odd agent.Message
		if err := odd.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		if body := sent(t, &agent.Request{Messages: append([]agent.Message{odd}, step(20)...)}); !strings.Contains(body,
			raw) {
			t.Errorf("%s was changed: %s", raw, body)
		}
	}
}

// Thoughts without a signature are another provider's and stay here; all else,
// signed thoughts too, goes as it is, in the same bytes each time.
func TestForeignThoughts(t *testing.T) {
	own := agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "own", Signature: "sig"},
		agent.TextBlock("a"))
	foreign := agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "foreign"},
		agent.TextBlock("b <&>"), agent.Block{Type: "tool_use", ID: "t", Name: "Bash", Input: json.RawMessage(`{"c":"<"}`)})
	only := agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "foreign"})
	talk := agent.NewMessage(agent.User, agent.TextBlock(`is "thinking" a word?`))
	req := &agent.Request{Messages: []agent.Message{own, talk, foreign, only}}
	m := connect(t, Config{})
	var before []byte
	for range 2 {
		parts, err := m.body(req, "m")
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Join(parts, nil)
		want := string(own.Encoded()) + "," + string(talk.Encoded()) +
			`,{"role":"assistant","content":[{"type":"text","text":"b ` +
			`<&>"},{"type":"tool_use","id":"t","name":"Bash","input":{"c":"<"}}]}` +
			`,{"role":"assistant","content":[{"type":"text","text":"(no answer)"}]}]}`
		if got := string(body[bytes.Index(body, []byte(`"messages":[`))+len(`"messages":[`):]); got != want {
			t.Errorf("sent\n%s\nwant\n%s", got, want)
		}
		if before != nil && !bytes.Equal(before, body) {
			t.Error("the second request differs")
		}
		before = body
	}
}
