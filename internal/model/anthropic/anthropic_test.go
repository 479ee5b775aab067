package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for a reply.
const patience = 20 * time.Second

func serve(t *testing.T, h modeltest.Handler) *modeltest.Server {
	t.Helper()
	s, err := modeltest.New(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// answers serves the answers one after the other, the last one for ever.
func answers(t *testing.T, list ...modeltest.Answer) *modeltest.Server {
	return serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		return list[min(r.N, len(list))-1]
	})
}

func connect(t *testing.T, c Config) *Model {
	t.Helper()
	if c.APIKey == "" && c.AuthToken == "" {
		c.APIKey = "key-1"
	}
	c.Backoff = func(int) time.Duration { return time.Millisecond }
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func request(text string) *agent.Request {
	return &agent.Request{
		Agent: "explore", AgentID: "a12345678", SessionID: "s12345678", Model: "haiku", System: "be <brief>",
		Tools:    []agent.ToolSpec{{Name: "Bash", Description: "runs", InputSchema: json.RawMessage(`{"type":"object"}`)}},
		Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock(text))},
	}
}

// rich is an answer with every kind of block that a model makes.
func rich() modeltest.Answer {
	return modeltest.Answer{
		ID: "msg_1",
		Blocks: []agent.Block{
			{Type: "thinking", Thinking: strings.Repeat("hm ", 30), Signature: "sig"},
			{Type: "redacted_thinking", Data: "blob"},
			agent.TextBlock("Grüße, 世界 🐑 " + strings.Repeat("ä", 10)),
			modeltest.ToolUse("toolu_1", "Bash", map[string]any{"command": "echo ✓ " + strings.Repeat("x", 10)}),
		},
		Usage: agent.Usage{InputTokens: 11, OutputTokens: 22, CacheReadTokens: 33, CacheWriteTokens: 44, HourWriteTokens: 40},
	}
}

// The history goes out as the bytes it is kept as, and what stands before it
// is the same in every call.
func TestRequest(t *testing.T) {
	s := answers(t, modeltest.Text("ok"))
	m := connect(t, Config{Account: modelwire.Account{BaseURL: s.URL + "/", MaxTokens: 7}})
	var odd agent.Message
	raw := `{ "role":"user",  "content":"kept \u0041s it <is>" }`
	if err := odd.UnmarshalJSON([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	req := request("hi")
	req.Agent = "näme\n"
	if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, agent.NewMessage(agent.Assistant, agent.TextBlock("ok")), odd)
	if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
		t.Fatal(err)
	}
	got := s.Requests()
	head := func(b []byte) string { return string(b[:bytes.Index(b, []byte(`"messages"`))]) }
	if a, b := head(got[0].Body), head(got[1].Body); a != b {
		t.Errorf("the head changed from\n%s\nto\n%s", a, b)
	}
	if !bytes.HasSuffix(got[1].Body, []byte(","+raw+"]}")) {
		t.Errorf("the message was encoded again: %s", got[1].Body)
	}
	p, err := got[1].Params()
	if err != nil {
		t.Fatal(err)
	}
	if p.Model != "claude-haiku-5-5" || p.MaxTokens != 7 || !p.Stream || len(p.Messages) != 3 ||
		len(p.Tools) != 1 {
		t.Errorf("params %+v", p)
	}
	if string(p.System) != `[{"type":"text","text":"be <brief>","cache_control":{"type":"ephemeral"}}]` {
		t.Errorf("system %s", p.System)
	}
	for header, want := range map[string]string{
		"Drover-Agent": "n_me_", "Drover-Agent-Id": "a12345678", "Drover-Session-Id": "s12345678",
		"X-Api-Key": "key-1", "Anthropic-Version": "2023-06-01", "Content-Type": "application/json",
	} {
		if got := got[1].Header.Get(header); got != want {
			t.Errorf("header %s = %q, want %q", header, got, want)
		}
	}
}

// Streams that no server should send, and what becomes of them.
func TestOdd(t *testing.T) {
	sse := func(events ...string) string {
		var b strings.Builder
		for _, e := range events {
			b.WriteString("data: " + e + "\n\n")
		}
		return b.String()
	}
	const (
		start = `{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":3}}}`
		block = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
		delta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`
		end   = `{"type":"content_block_stop","index":0}`
		why   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`
		stop  = `{"type":"message_stop"}`
		tool  = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"Bash",` +
			`"input":{}}}`
		part = `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1"}}`
	)
	good := sse(start, block, delta, end, why, stop)
	huge := strings.Repeat("x", 2<<20)
	for _, c := range []struct{ name, body, want string }{
		{"nameless", good, "reply hi"},
		{"crlf", strings.ReplaceAll(good, "\n", "\r\n"), "reply hi"},
		{"comments", ": hello\n\n" + good, "reply hi"},
		{"unknown", sse(start, `{"type":"later_idea","x":[1]}`, block,
			`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}`, delta, end, why, stop), "reply hi"},
		{"unknown-block", sse(start, `{"type":"content_block_start","index":9,"content_block":{"type":"server_tool_use",`+
			`"id":"x"}}`, `{"type":"content_block_stop","index":9}`, block, delta, end, why, stop), "reply hi"},
		{"stop-twice", sse(start, block, delta, end, end, why, stop, stop), "reply hi"},
		{"huge", sse(start, block, strings.Replace(delta, "hi", huge, 1), end, why, stop), "reply " + huge},
		{"bare-ping", "event: ping\n\n" + good, "reply hi"},
		{"no-data", "event: message_stop\n\n", "cut"},
		{"negative-usage", strings.Replace(good, `"output_tokens":5`, `"output_tokens":5,"cache_read_input_tokens":-9`, 1),
			"reply hi"},
		{"input-no-object", sse(start, tool, part, end, why, stop), `reply {"invalid_input":"[1"}`},
		{"input-none", sse(start, tool, end, why, stop), `reply {}`},
		{"begin-twice", sse(start, start), "cut"},
		{"block-twice", sse(start, block, delta, block), "cut"},
		{"delta-first", sse(start, delta), "cut"},
		{"no-head", sse(block, delta, end, why, stop), "bad_answer"},
		{"no-json", "data: {oops\n\n", "bad_answer"},
		{"no-json-late", sse(start, block, delta, "{oops"), "cut"},
		{"no-reason", sse(start, block, delta, end, stop), "cut"},
		{"no-block-end", sse(start, block, delta, why, stop), "cut"},
		{"length-no-block-end", sse(start, block, delta, strings.Replace(why, "end_turn", "max_tokens", 1), stop),
			"reply hi"},
		{"no-stop", sse(start, block, delta, end, why), "cut"},
		{"only-stop", sse(stop), "bad_answer"},
		{"empty", "", "bad_answer"},
		{"error-late", sse(start, block, delta,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), "overloaded"},
		{"error-odd", sse(start, `{"type":"error"}`), "cut"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := answers(t, modeltest.Answer{Raw: []byte(c.body)})
			m := connect(t, Config{Account: modelwire.Account{BaseURL: s.URL}})
			reply, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
			var told *agent.ModelError
			got := ""
			switch {
			case err == nil:
				got = "reply " + reply.Blocks[0].Text + string(reply.Blocks[0].Input)
				if reply.Usage != (agent.Usage{InputTokens: 3, OutputTokens: 5}) {
					t.Errorf("usage %+v", reply.Usage)
				}
			case errors.As(err, &told):
				got = told.Kind
			}
			if got != c.want {
				t.Errorf("got %.200q (%v), want %.200q", got, err, c.want)
			}
			if want := map[string]int{"cut": 2, "overloaded": 10}[got]; s.Count() != max(want, 1) {
				t.Errorf("%d calls, want %d", s.Count(), want)
			}
		})
	}
}

func FuzzStream(f *testing.F) {
	f.Add(rich().Stream("m"))
	f.Add([]byte("data: {\"type\":\"message_start\",\"message\":{}}\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := stream{on: func(agent.Part) {}, usedName: "m"}
		events := modelwire.NewEvents(bytes.NewReader(body))
		for state := modelwire.More; state != modelwire.Done; {
			e, err := events.Next()
			if err == nil {
				state, err = s.Take(e)
			}
			if err != nil {
				break
			}
		}
		agent.NewMessage(agent.Assistant, s.Partial().Whole...)
		reply, err := s.Finish()
		if err != nil {
			return
		}
		if reply.StopReason == "" {
			t.Fatal("a reply without a reason")
		}
		// What a reply holds can be kept: encoding panics on input that is no JSON.
		agent.NewMessage(agent.Assistant, reply.Blocks...)
	})
}

func TestAliases(t *testing.T) {
	m := connect(t, Config{Aliases: map[string]string{"opus": "mine", "own": "full"}})
	for name, want := range map[string]string{
		"sonnet": "claude-sonnet-5-5", "": "claude-sonnet-5-5", "opus": "mine", "own": "full",
		"haiku": "claude-haiku-5-5", "claude-x": "claude-x", "anthropic/claude-x": "claude-x",
		"anthropic/opus": "mine",
	} {
		if got := m.Resolve(name); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", name, got, want)
		}
	}
	if got := connect(t, Config{}).Resolve("opus"); got != "claude-opus-5-5" {
		t.Errorf("opus is %q", got)
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]modelwire.Account{
		"no-key": {}, "no-http": {APIKey: "k", BaseURL: "ftp://x"}, "no-host": {APIKey: "k", BaseURL: "nonsense"},
		"line-break": {APIKey: "k\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(Config{Account: c}); err == nil || !strings.Contains(err.Error(), "(set ANTHROPIC_") {
				t.Errorf("New = %v, want an error that says what to set", err)
			}
		})
	}
}

// The environment of the process says something else about everything.
func TestEnvironment(t *testing.T) {
	other := answers(t, modeltest.Text("wrong"))
	t.Setenv("ANTHROPIC_API_KEY", "env-key")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "env-token")
	t.Setenv("ANTHROPIC_BASE_URL", other.URL)
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-From-Env: yes")
	t.Setenv("ANTHROPIC_PROFILE", "none-such")
	if _, err := New(Config{}); err == nil {
		t.Error("a key was found in the environment")
	}
	s := answers(t, modeltest.Text("right"))
	m := connect(t, Config{Account: modelwire.Account{BaseURL: s.URL}, AuthToken: "tok"})
	if _, err := m.Reply(waittest.Context(t, patience), request("hi"), nil); err != nil {
		t.Fatal(err)
	}
	h := s.Requests()[0].Header
	if h.Get("Authorization") != "Bearer tok" || h.Get("X-Api-Key") != "" || h.Get("X-From-Env") != "" {
		t.Errorf("headers %v", h)
	}
	if other.Count() != 0 {
		t.Error("the address of the environment was called")
	}
}

func BenchmarkReply(b *testing.B) {
	s, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("ok") })
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.Keep(0)
	m, err := New(Config{Account: modelwire.Account{BaseURL: s.URL, APIKey: "k", Limiter: modelwire.NewLimiter(0)}})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	req := request(strings.Repeat("x", 1024))
	for len(req.Messages) < 500 {
		req.Messages = append(req.Messages, req.Messages[0])
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Reply(b.Context(), req, nil); err != nil {
			b.Fatal(err)
		}
	}
}
