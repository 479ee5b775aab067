package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
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

func connect(t *testing.T, c modelwire.Account, api API) *Model {
	t.Helper()
	c.Backoff = func(int) time.Duration { return time.Millisecond }
	m, err := New(c, api)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// answers serves one answer for ever.
func answers(t *testing.T, a modeltest.Answer) *modeltest.Server {
	t.Helper()
	s, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer { return a })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// talk is a conversation with every kind of block.
func talk() *agent.Request {
	long := "toolu_" + strings.Repeat("0", 40)
	picture := json.RawMessage(`{"type":"base64","media_type":"image/png","data":"AAAA"}`)
	result := func(id, content string, isError bool) agent.Block {
		return agent.Block{Type: "tool_result", ToolUseID: id, Content: json.RawMessage(content), IsError: isError}
	}
	return &agent.Request{
		Model: "meta/m", System: "be <brief>", MaxTokens: 7,
		Tools: []agent.ToolSpec{{Name: "Bash", Description: "runs", InputSchema: json.RawMessage(`{"type":"object"}`)}},
		Messages: []agent.Message{
			agent.NewMessage(agent.User, agent.TextBlock("one"), agent.TextBlock("two")),
			agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "hidden"}, agent.TextBlock("I look"),
				agent.Block{Type: "tool_use", ID: "c1", Name: "Bash", Input: json.RawMessage(`{"command":"a && b"}`)},
				agent.Block{Type: "tool_use", ID: long, Name: "Bash"}),
			agent.NewMessage(agent.User, agent.ToolResultBlock("c1", "out", false),
				result(long, `[{"type":"text","text":"no"},{"type":"image","source":{"type":"url","url":"http://x/y.png"}}]`, true),
				agent.TextBlock("<task-notification>")),
			agent.NewMessage(agent.Assistant, agent.Block{Type: "tool_use", ID: "c2", Name: "Bash",
				Input: json.RawMessage(`{}`)}),
			agent.NewMessage(agent.User, agent.Block{Type: "tool_result", ToolUseID: "c2"}),
			agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "only this"}),
			agent.NewMessage(agent.User, agent.Block{Type: "image", Source: picture}, agent.Block{Type: "document"}),
		},
	}
}

func TestChatRequest(t *testing.T) {
	s := answers(t, modeltest.Text("ok"))
	m := connect(t, modelwire.Account{BaseURL: s.URL + "/v1/", APIKey: "k"}, Chat)
	if _, err := m.Reply(waittest.Context(t, patience), talk(), nil); err != nil {
		t.Fatal(err)
	}
	want := `{"model":"meta/m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,` +
		`"tools":[{"type":"function","function":{"name":"Bash","description":"runs","parameters":{"type":"object"}}}],` +
		`"messages":[` +
		`{"role":"system","content":"be <brief>"},` +
		`{"role":"user","content":"one\n\ntwo"},` +
		`{"role":"assistant","content":"I look","tool_calls":[{"id":"c1","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"a && b\"}"}},` +
		`{"id":"SHORT","type":"function","function":{"name":"Bash","arguments":"{}"}}]},` +
		`{"role":"tool","content":"out","tool_call_id":"c1"},` +
		`{"role":"tool","content":"[error] no\n[the picture follows]","tool_call_id":"SHORT"},` +
		`{"role":"user","content":[{"type":"text","text":"<task-notification>"},{"type":"image_url","image_url":{` +
		`"url":"http://x/y.png"}}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function","function":{"name":"Bash",` +
		`"arguments":"{}"}}]},` +
		`{"role":"tool","content":"","tool_call_id":"c2"},` +
		`{"role":"assistant","content":""},` +
		`{"role":"user","content":[{"type":"text","text":"[document left out: this provider does not take it]"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`
	same(t, s.Requests()[0], want)
	for header, want := range map[string]string{
		"Authorization": "Bearer k", "Content-Type": "application/json", "Accept": "text/event-stream",
	} {
		if got := s.Requests()[0].Header.Get(header); got != want {
			t.Errorf("header %s = %q, want %q", header, got, want)
		}
	}
}

func TestResponsesRequest(t *testing.T) {
	s := answers(t, modeltest.Text("ok"))
	m := connect(t, modelwire.Account{BaseURL: s.URL, APIKey: "k"}, Responses)
	if _, err := m.Reply(waittest.Context(t, patience), talk(), nil); err != nil {
		t.Fatal(err)
	}
	want := `{"model":"meta/m","stream":true,"store":false,"max_output_tokens":7,"instructions":"be <brief>",` +
		`"tools":[{"type":"function","name":"Bash","description":"runs","parameters":{"type":"object"},"strict":false}],` +
		`"input":[` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"one"},{"type":"input_text",` +
		`"text":"two"}]},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look"}]},` +
		`{"type":"function_call","call_id":"c1","name":"Bash","arguments":"{\"command\":\"a && b\"}"},` +
		`{"type":"function_call","call_id":"SHORT","name":"Bash","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c1","output":"out"},` +
		`{"type":"function_call_output","call_id":"SHORT","output":"[error] no\n[the picture follows]"},` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"<task-notification>"},{` +
		`"type":"input_image","image_url":"http://x/y.png"}]},` +
		`{"type":"function_call","call_id":"c2","name":"Bash","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c2","output":""},` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"[document left out: this provider does ` +
		`not take it]"},` +
		`{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]}`
	same(t, s.Requests()[0], want)
}

func same(t *testing.T, r *modeltest.Request, want string) {
	t.Helper()
	short := callID("toolu_" + strings.Repeat("0", 40))
	if len(short) > maxCallID || short == callID("toolu_"+strings.Repeat("1", 40)) {
		t.Errorf("the ID becomes %s", short)
	}
	if want = strings.ReplaceAll(want, "SHORT", short); string(r.Body) != want {
		t.Errorf("sent\n%s\nwant\n%s", r.Body, want)
	}
}

// Each API reads its own events; what is odd and met in the wild is in both
// tables, with what becomes of it.
type odd struct{ name, body, want string }

func events(list ...string) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// told is an answer in short: its blocks and why it stopped.
func told(reply *agent.Reply, err error) string {
	var cut *agent.CutError
	var failed *agent.ModelError
	switch {
	case errors.As(err, &cut):
		return "cut" + show(cut.Whole)
	case errors.As(err, &failed):
		return failed.Kind
	case err != nil:
		return err.Error()
	}
	return show(reply.Blocks) + " " + reply.StopReason
}

func show(blocks []agent.Block) string {
	var out []string
	for _, b := range blocks {
		switch b.Type {
		case "tool_use":
			out = append(out, strings.TrimSuffix(b.ID+" "+b.Name, " ")+string(b.Input))
		case "thinking":
			out = append(out, "("+b.Thinking+")")
		default:
			out = append(out, b.Text)
		}
	}
	return strings.Join(out, "|")
}

func runOdd(t *testing.T, api API, table []odd) {
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			s := answers(t, modeltest.Answer{Raw: []byte(c.body)})
			m := connect(t, modelwire.Account{BaseURL: s.URL}, api)
			reply, err := m.Reply(waittest.Context(t, patience), &agent.Request{Model: "m"}, nil)
			if got := told(reply, err); got != c.want {
				t.Errorf("got %.200q (%v), want %q", got, err, c.want)
			}
			if err == nil {
				agent.NewMessage(agent.Assistant, reply.Blocks...) // panics on what cannot be kept
			}
		})
	}
}

func TestChatOdd(t *testing.T) {
	delta := func(fields string) string {
		return `{"id":"c","model":"m","choices":[{"index":0,"delta":{` + fields + `}}]}`
	}
	finish := func(reason string) string {
		return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
	}
	call := func(fields string) string { return delta(`"tool_calls":[{` + fields + `}]`) }
	fn := func(name, args string) string {
		return `"function":{"name":"` + name + `","arguments":` + args + `}`
	}
	const done = "[DONE]"
	hi := delta(`"content":"hi"`)
	runOdd(t, Chat, []odd{
		{"stop", events(hi, finish("stop"), done), "hi end_turn"},
		{"no-done", events(hi, finish("stop")), "hi end_turn"},
		{"no-blank-after-done", events(hi, finish("stop")) + "data: [DONE]", "hi end_turn"},
		{"done-only", events(hi, done), "hi end_turn"},
		{"done-after-call", events(delta(`"tool_calls":[{"id":"a","function":{"name":"F","arguments":"{}"}}]`), done),
			"a F{} tool_use"},
		{"done-in-call", events(delta(`"tool_calls":[{"id":"a","function":{"name":"F","arguments":"{\"x"}}]`), done), "cut"},
		{"think", events(delta(`"content":"\n<th"`), delta(`"content":"ink>hm</thi"`), delta(`"content":"nk>\n\nhi <think>"`),
			finish("stop"), done), "(hm)|hi <think> end_turn"},
		{"think-cut", events(delta(`"content":"<think>hm </"`), finish("length"), done), "(hm </) max_tokens"},
		{"think-not", events(delta(`"content":" <"`), delta(`"content":"b>"`), finish("stop"), done), " <b> end_turn"},
		{"blank", events(delta(`"content":" "`), delta(`"tool_calls":[{"id":"a","function":{"name":"F","arguments":"{}"}}]`),
			finish("tool_calls"), done), " |a F{} tool_use"},
		{"nothing-but-done", events(done), "cut"},
		{"length", events(hi, finish("length"), done), "hi max_tokens"},
		{"filter", events(hi, finish("content_filter"), done), "hi refusal"},
		{"other-reason", events(hi, finish("eos"), done), "hi end_turn"},
		{"strange-reason", events(hi, finish("later_idea"), done), "hi end_turn"},
		{"strange-reason-call", events(call(`"index":0,"id":"a",`+fn("F", `"{}"`)), finish("abort"), done), "bad_answer"},
		{"refusal", events(delta(`"refusal":"I will "`), delta(`"refusal":"not"`), finish("stop"), done),
			"I will not refusal"},
		{"null-fields", events(delta(`"content":null,"tool_calls":null,"refusal":null,"function_call":null`), hi,
			`{"choices":null,"error":null,"usage":null}`, finish("stop")), "hi end_turn"},
		{"second-choice", events(hi, `{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}`,
			finish("length")), "hi max_tokens"},
		{"reasoning", events(delta(`"reasoning_content":"hm"`), delta(`"reasoning_content":"m"`), hi, finish("stop")),
			"(hmm)|hi end_turn"},
		{"reasoning-other-name", events(delta(`"reasoning":"hm","content":""`), hi, finish("stop")), "(hm)|hi end_turn"},
		{"reasoning-twice", events(delta(`"reasoning":"hm","reasoning_content":"hm"`), hi, finish("stop")),
			"(hm)|hi end_turn"},
		{"cut-after-thoughts", events(delta(`"reasoning_content":"hm"`), hi), "cut"},
		{"call", events(call(`"index":0,"id":"a",`+fn("F", `""`)), call(`"index":0,`+fn("", `"{\"x\""`)),
			call(`"index":0,`+fn("", `":1}"`)), finish("tool_calls")), `a F{"x":1} tool_use`},
		{"call-says-stop", events(call(`"index":0,"id":"a",`+fn("F", `"{}"`)), finish("stop")), `a F{} tool_use`},
		{"call-function_call", events(delta(`"function_call":{"name":"F","arguments":"{\"x\""}`),
			delta(`"function_call":{"arguments":":1}"}`), finish("function_call")), ` F{"x":1} tool_use`},
		{"call-length", events(call(`"index":0,"id":"a",`+fn("F", `"{\"x\":"`)), finish("length")),
			`a F{"invalid_input":"{\"x\":"} max_tokens`},
		{"reason-without-call", events(hi, finish("tool_calls")), `hi end_turn`},
		{"text-then-call", events(hi, call(`"index":0,"id":"a",`+fn("F", `"{}"`)), finish("tool_calls")),
			`hi|a F{} tool_use`},
		{"two-mixed", events(call(`"index":0,"id":"a",`+fn("F", `"{"`)), call(`"index":1,"id":"b",`+fn("G", `"{"`)),
			call(`"index":0,`+fn("", `"}"`)), call(`"index":1,`+fn("", `"}"`)), finish("tool_calls")), `a F{}|b G{} tool_use`},
		{"two-one-number", events(call(`"index":0,"id":"a",`+fn("F", `"{}"`)), call(`"index":0,"id":"b",`+fn("F", `"{}"`)),
			finish("tool_calls")), `a F{}|b F{} tool_use`},
		{"two-no-number", events(call(`"id":"a",`+fn("F", `"{}"`)), call(`"id":"b",`+fn("F", `"{}"`)), finish("tool_calls")),
			`a F{}|b F{} tool_use`},
		{"two-no-number-no-id", events(call(fn("F", `"{}"`)), call(fn("F", `"{}"`)), finish("tool_calls")),
			` F{}| F{} tool_use`},
		{"two-one-id", events(call(`"index":0,"id":"a",`+fn("F", `"{}"`)), call(`"index":1,"id":"a",`+fn("F", `"{}"`)),
			finish("tool_calls")), `a F{}|a F{} tool_use`},
		{"id-each-time", events(call(`"index":0,"id":"a",`+fn("F", `"{"`)), call(`"index":0,"id":"a",`+fn("F", `"}"`)),
			finish("tool_calls")), `a F{} tool_use`},
		{"name-each-time", events(call(`"index":0,`+fn("F", `"{"`)), call(`"index":0,`+fn("F", `"}"`)), finish("tool_calls")),
			` F{} tool_use`},
		{"late-name-and-id", events(call(`"index":0,`+fn("", `"{"`)), call(`"index":0,"id":"a",`+fn("F", `"}"`)),
			finish("tool_calls")), `a F{} tool_use`},
		{"no-name", events(call(`"index":0,"id":"a",`+fn("", `"{}"`)), finish("tool_calls")), `a{} tool_use`},
		{"no-arguments", events(call(`"index":0,"id":"a","function":{"name":"F"}`), finish("tool_calls")), `a F{} tool_use`},
		{"object-arguments", events(call(`"index":0,"id":"a",`+fn("F", `{"x":1}`)), finish("tool_calls")),
			`a F{"x":1} tool_use`},
		{"list-arguments", events(call(`"index":0,"id":"a",`+fn("F", `"[1]"`)), finish("tool_calls")),
			`a F{"invalid_input":"[1]"} tool_use`},
		{"cut-in-call", events(hi, call(`"index":0,"id":"a",`+fn("F", `"{}"`))), "cut"},
		{"cut-between-calls", events(call(`"index":0,"id":"a",`+fn("F", `"{}"`)),
			call(`"index":1,"id":"b",`+fn("F", `"{}"`))), "cut"},
		{"too-many-calls", events(strings.Split(strings.Repeat(call(fn("F", `"{}"`))+"\n", 300)+finish("tool_calls"),
			"\n")...), "bad_answer"},
		{"error-first", events(`{"error":{"message":"no","code":400}}`), "bad_request"},
		{"error-text", events(`{"error":"no"}`), "server_error"},
		{"error-empty", events(`{"error":{}}`), "bad_answer"},
		{"error-late", events(hi, `{"error":{"message":"gone","code":502},"choices":[{"index":0,"finish_reason":"error"}]}`),
			"server_error"},
		{"error-status", events(`{"error":{"message":"no key","code":401}}`), "auth"},
		{"error-overflow", events(`{"error":{"message":"the request exceeds the available context size"}}`),
			"context_overflow"},
		{"error-reason", events(hi, finish("error")), "server_error"},
		{"content-list", events(delta(`"content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]`), finish("stop")),
			"hi end_turn"},
	})
}

func TestResponsesOdd(t *testing.T) {
	const (
		created = `{"type":"response.created","response":{"id":"r","model":"m"}}`
		message = `{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}`
		hi      = `{"type":"response.output_text.delta","output_index":0,"delta":"hi"}`
		done    = `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{` +
			`"type":"output_text","text":"hi"}]}}`
		end  = `{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":3,"output_tokens":5}}}`
		call = `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a",` +
			`"name":"F","arguments":""}}`
		part   = `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"x\":1}"}`
		called = `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"a",` +
			`"name":"F","arguments":"{\"x\":1}"}}`
		think   = `{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}`
		thought = `{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"hm"}`
		next    = `{"type":"response.reasoning_summary_part.added","output_index":0}`
		ended   = `{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning"}}`
	)
	incomplete := func(reason string) string {
		return `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"` + reason + `"}}}`
	}
	runOdd(t, Responses, []odd{
		{"usual", events(created, message, hi, done, end), "hi end_turn"},
		{"done-after", events(created, message, hi, done, end, "[DONE]"), "hi end_turn"},
		{"done-before", events(created, message, hi, done, "[DONE]"), "cut"},
		{"call", events(created, message, hi, done, call, part, called, end), `hi|a F{"x":1} tool_use`},
		{"call-whole", events(created, call, called, end), `a F{"x":1} tool_use`},
		{"item-done-only", events(created, called, done, end), `a F{"x":1}|hi tool_use`},
		{"no-item-done", events(created, message, hi, call, part, end), `hi|a F{"x":1} tool_use`},
		{"thoughts", events(created, think, next, thought, next, thought, ended, end), "(hm\n\nhm) end_turn"},
		{"thoughts-in-text", events(created, think, `{"type":"response.reasoning_text.delta","output_index":0,"delta":"raw"}`,
			ended, end), "(raw) end_turn"},
		{"refusal", events(created, message, `{"type":"response.refusal.delta","output_index":0,"delta":"no"}`, end),
			"no refusal"},
		{"refusal-whole", events(created,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"refusal",`+
				`"refusal":"no"}]}}`, end), "no refusal"},
		{"length", events(created, message, hi, call, part, incomplete("max_output_tokens")), `hi|a F{"x":1} max_tokens`},
		{"filter", events(created, message, hi, incomplete("content_filter")), "hi refusal"},
		{"strange-reason", events(created, message, hi, incomplete("later")), "bad_answer"},
		{"other-item", events(created, `{"type":"response.output_item.added","output_index":4,"item":{`+
			`"type":"web_search_call"}}`,
			`{"type":"response.web_search_call.searching","output_index":4}`,
			`{"type":"response.output_item.done","output_index":4,"item":{"type":"web_search_call"}}`, message, hi, done, end),
			"hi end_turn"},
		{"done-twice", events(created, message, hi, done, done, end), "hi end_turn"},
		{"keepalive", events(created, `{"type":"keepalive"}`, message, hi, done, end), "hi end_turn"},
		{"cut", events(created, message, hi, done, call, part), "cut"},
		{"cut-after-call", events(created, call, part, called), "cut"},
		{"failed", events(created, `{"type":"response.failed","response":{"error":{"code":"context_length_exceeded",`+
			`"message":"long"}}}`), "context_overflow"},
		{"failed-late", events(created, message, hi,
			`{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"}}}`), "server_error"},
		{"cancelled", events(created, message, hi, `{"type":"response.cancelled","response":{"error":null}}`),
			"server_error"},
		{"error", events(`{"type":"error","code":"invalid_prompt","message":"no","param":null}`), "bad_request"},
		{"error-nested", events(`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`), "bad_request"},
		{"begin-twice", events(created, message, message), "cut"},
		{"part-first", events(created, hi), "cut"},
		{"part-of-another", events(created, call, strings.Replace(hi, `"output_index":0`, `"output_index":1`, 1)), "cut"},
		{"part-no-text", events(created, message, `{"type":"response.output_text.delta","output_index":0,"delta":{}}`),
			"cut"},
		{"item-missing", events(created, `{"type":"response.output_item.done","output_index":0}`), "cut"},
	})
}

// A server that keeps the line open after a whole answer is not waited for.
func TestLineKeptOpen(t *testing.T) {
	stream := modeltest.Text("hi").StreamOf(modeltest.Chat, "m")
	at := bytes.Index(stream, []byte(`"finish_reason":"stop"`))
	at += bytes.Index(stream[at:], []byte("\n\n")) + 2
	s := answers(t, modeltest.Answer{Raw: stream, Hold: make(chan struct{}), HoldAt: at})
	m := connect(t, modelwire.Account{BaseURL: s.URL, Idle: 100 * time.Millisecond}, Chat)
	reply, err := m.Reply(waittest.Context(t, patience), &agent.Request{Model: "m"}, nil)
	if got := told(reply, err); got != "hi end_turn" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Numbers that servers do not send, or that cannot be, are no usage: it is estimated then.
func TestUsage(t *testing.T) {
	for body, want := range map[string]agent.Usage{
		`{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}`: {InputTokens: 6,
			CacheReadTokens: 4, OutputTokens: 2},
		`{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4}`: {InputTokens: 6,
			CacheReadTokens: 4, OutputTokens: 2},
		`{"prompt_tokens":-1,"completion_tokens":-2}`:                     {InputTokens: 1, OutputTokens: 20, Estimated: true},
		`{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":9}}`: {CacheReadTokens: 3},
		`{"prompt_tokens":3,"prompt_tokens_details":null}`:                {InputTokens: 3},
		`null`: {InputTokens: 1, OutputTokens: 20, Estimated: true},
	} {
		s := answers(t, modeltest.Answer{Raw: []byte(events(`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],`+
			`"usage":`+body+`}`, "[DONE]"))})
		reply, err := connect(t, modelwire.Account{BaseURL: s.URL}, Chat).Reply(waittest.Context(t, patience), &agent.Request{}, nil)
		if err != nil || reply.Usage != want {
			t.Errorf("%s: %+v, %v", body, reply, err)
		}
	}
}

// A server that refuses stream_options is asked without, now and from then on.
func TestPlain(t *testing.T) {
	s, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		if strings.Contains(string(r.Body), "stream_options") {
			return modeltest.Answer{Status: 422, ContentType: "application/json",
				Raw: []byte(`{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted","type":"extra"}]}`)}
		}
		return modeltest.Text("ok")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := connect(t, modelwire.Account{BaseURL: s.URL}, Chat)
	for _, calls := range []int{2, 3} {
		_, err := m.Reply(waittest.Context(t, patience), &agent.Request{Model: "m"}, nil)
		if err != nil || s.Count() != calls {
			t.Fatalf("%v, %d calls, want %d", err, s.Count(), calls)
		}
	}
}

func FuzzStream(f *testing.F) {
	a := modeltest.Answer{Blocks: []agent.Block{{Type: "thinking", Thinking: "hm"}, agent.TextBlock("hi"),
		modeltest.ToolUse("a", "F", map[string]any{"x": 1})}}
	f.Add(a.StreamOf(modeltest.Chat, "m"))
	f.Add(a.StreamOf(modeltest.Responses, "m"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, form := range []form{chatForm(), responsesForm()} {
			d := form.decode("m", func(agent.Part) {})
			all := modelwire.NewEvents(bytes.NewReader(body))
			for state := modelwire.More; state != modelwire.Done; {
				e, err := all.Next()
				if err == nil {
					state, err = d.Take(e)
				}
				if err != nil {
					break
				}
			}
			// What is kept can be kept: encoding panics on input that is no JSON.
			agent.NewMessage(agent.Assistant, d.Partial().Whole...)
			reply, err := d.Finish()
			if err != nil {
				continue
			}
			if reply.StopReason == "" {
				t.Fatal("a reply without a reason")
			}
			agent.NewMessage(agent.Assistant, reply.Blocks...)
		}
	})
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]modelwire.Account{
		"nothing": {}, "no-http": {BaseURL: "ftp://x"}, "no-host": {BaseURL: "nonsense"}, "line-break": {APIKey: "k\n"},
		"api": {APIKey: "k"},
	} {
		api := Chat
		if name == "api" {
			api = "other"
		}
		t.Run(name, func(t *testing.T) {
			if _, err := New(c, api); err == nil || !strings.Contains(err.Error(), "(set ") ||
				!strings.Contains(err.Error(), "OPENAI_") {
				t.Errorf("New = %v, want an error that says what to set", err)
			}
		})
	}
	for base, want := range map[string]string{
		"": "https://api.openai.com/v1/chat/completions", "http://h:1": "http://h:1/v1/chat/completions",
		"http://h/":                    "http://h/v1/chat/completions",
		"https://openrouter.ai/api/v1": "https://openrouter.ai/api/v1/chat/completions",
		"http://h/v1/?a=b":             "http://h/v1/chat/completions?a=b",
	} {
		m := connect(t, modelwire.Account{BaseURL: base, APIKey: "k"}, Chat)
		if m.url != want {
			t.Errorf("%s: calls go to %s, want %s", base, m.url, want)
		}
		req := &agent.Request{MaxTokens: 9}
		body, err := m.body(req, "m", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(bytes.Join(body, nil)), `"max_completion_tokens":9`); got != (base == "") {
			t.Errorf("%s: max_completion_tokens %v", base, got)
		}
	}
}

// A server that needs no key gets none, whatever the environment holds.
func TestNoKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "env-key")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	s := answers(t, modeltest.Text("ok"))
	reply, err := connect(t, modelwire.Account{BaseURL: s.URL}, Chat).Reply(waittest.Context(t, patience), &agent.Request{Model: "m"}, nil)
	if err != nil || reply.Blocks[0].Text != "ok" {
		t.Fatalf("Reply = %+v, %v", reply, err)
	}
	if h := s.Requests()[0].Header; h.Get("Authorization") != "" {
		t.Errorf("headers %v", h)
	}
}

// Old servers speak HTTP/1.0 and end an answer by hanging up.
func TestHangUp(t *testing.T) {
	stream := modeltest.Text("hi").StreamOf(modeltest.Chat, "m")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = buf.WriteString("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" +
			strings.TrimSuffix(string(stream), "data: [DONE]\n\n"))
		_ = buf.Flush()
	}))
	defer s.Close()
	reply, err := connect(t, modelwire.Account{BaseURL: s.URL}, Chat).Reply(waittest.Context(t, patience), &agent.Request{}, nil)
	if got := told(reply, err); got != "hi end_turn" {
		t.Errorf("got %q, %v", got, err)
	}
}
