package modelwire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/model/openai"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/racetest"
	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for a reply.
const patience = 60 * time.Second

// dialect is one of the wires that are spoken. Every test here runs over all of
// them, over real connections.
type dialect struct {
	name           string
	api            modeltest.API
	keyVar, urlVar string
	signs          bool // thoughts have signatures, and may be hidden
	lateCalls      bool // a call is whole at the end of the answer only
	make           func(config) (model, error)
}

type model interface {
	agent.Model
	Close()
}

type config struct {
	url, key string
	limiter  *modelwire.Limiter
	calls    int
	idle     time.Duration
	client   *http.Client
}

func soon(int) time.Duration { return time.Millisecond }

func (c config) account() modelwire.Account {
	return modelwire.Account{BaseURL: c.url, APIKey: c.key, Limiter: c.limiter, Calls: c.calls, Idle: c.idle,
		HTTPClient: c.client, Backoff: soon}
}

func dialects() []dialect {
	open := func(api openai.API) func(config) (model, error) {
		return func(c config) (model, error) {
			return openai.New(c.account(), api)
		}
	}
	return []dialect{
		{name: "messages", api: modeltest.Messages, keyVar: "ANTHROPIC_API_KEY", urlVar: "ANTHROPIC_BASE_URL", signs: true,
			make: func(c config) (model, error) {
				return anthropic.New(anthropic.Config{Account: c.account()})
			}},
		{name: "chat", api: modeltest.Chat, keyVar: "OPENAI_API_KEY", urlVar: "OPENAI_BASE_URL", lateCalls: true,
			make: open(openai.Chat)},
		{name: "responses", api: modeltest.Responses, keyVar: "OPENAI_API_KEY", urlVar: "OPENAI_BASE_URL",
			make: open(openai.Responses)},
	}
}

func each(t *testing.T, f func(t *testing.T, d dialect)) {
	t.Helper()
	for _, d := range dialects() {
		t.Run(d.name, func(t *testing.T) { f(t, d) })
	}
}

func (d dialect) connect(t *testing.T, c config) model {
	t.Helper()
	if c.key == "" {
		c.key = "key-1"
	}
	m, err := d.make(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// asked is a model on a server of its own that gives the answers one after the
// other, the last one for ever.
func (d dialect) asked(t *testing.T, list ...modeltest.Answer) (model, *modeltest.Server) {
	t.Helper()
	s := answers(t, list...)
	return d.connect(t, config{url: s.URL}), s
}

// wants is what of the blocks comes through.
func (d dialect) wants(blocks []agent.Block) (out []agent.Block) {
	for _, b := range blocks {
		if !d.signs {
			b.Signature = ""
		}
		if d.signs || b.Type != "redacted_thinking" {
			out = append(out, b)
		}
	}
	return out
}

func serve(t *testing.T, h modeltest.Handler) *modeltest.Server {
	t.Helper()
	s, err := modeltest.New(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func answers(t *testing.T, list ...modeltest.Answer) *modeltest.Server {
	return serve(t, func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		return list[min(r.N, len(list))-1]
	})
}

func request(text string) *agent.Request {
	return &agent.Request{
		Agent: "explore", AgentID: "a12345678", SessionID: "s12345678", Model: "m", System: "be <brief>",
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
			modeltest.ToolUse("toolu_1", "Bash", map[string]any{"command": "echo ✓ " + strings.Repeat("x", 70)}),
			modeltest.ToolUse("toolu_2", "Bash", map[string]any{"command": "true"}),
		},
		Usage: agent.Usage{InputTokens: 11, OutputTokens: 22, CacheReadTokens: 33},
	}
}

// heard is what was handed on while an answer came in.
type heard struct {
	text    string
	void    string            // text of answers that failed
	inputs  map[string]string // by the ID of the call
	whole   []agent.Block
	retries []agent.Part
	at      map[int]string
}

func (h *heard) on(p agent.Part) {
	if h.inputs == nil {
		h.inputs, h.at = map[string]string{}, map[int]string{}
	}
	switch p.Kind {
	case agent.TextPart:
		h.text += p.Text
	case agent.ToolPart:
		h.at[p.Index] = p.ID
	case agent.InputPart:
		h.inputs[h.at[p.Index]] += p.Text
	case agent.BlockPart:
		h.whole = append(h.whole, *p.Block)
	case agent.VoidPart:
		h.void, h.text, h.whole = h.void+h.text, "", nil
		h.inputs, h.at = nil, nil
	case agent.RetryPart:
		h.retries = append(h.retries, p)
	}
}

func kindOf(err error) string {
	var cut *agent.CutError
	var told *agent.ModelError
	switch {
	case err == nil:
		return "reply"
	case errors.As(err, &cut):
		return "cut"
	case errors.As(err, &told):
		return told.Kind
	}
	return err.Error()
}

func TestReply(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for name, piece := range map[string]int{"whole": 0, "bytes": 1, "sevens": 7} {
			t.Run(name, func(t *testing.T) {
				a := rich()
				a.Piece = piece // pieces of one byte split every character and every line
				m, _ := d.asked(t, a)
				var h heard
				reply, err := m.Reply(waittest.Context(t, patience), request("hi"), h.on)
				if err != nil {
					t.Fatal(err)
				}
				blocks := d.wants(a.Blocks)
				wanted := &agent.Reply{ID: "msg_1", Model: "m", Blocks: blocks, StopReason: "tool_use", Usage: a.Usage}
				if !reflect.DeepEqual(reply, wanted) {
					t.Errorf("reply\n%+v\nwant\n%+v", reply, wanted)
				}
				if !reflect.DeepEqual(h.whole, blocks) {
					t.Errorf("block parts %+v", h.whole)
				}
				if h.text != a.Blocks[2].Text || h.inputs["toolu_1"] != string(a.Blocks[3].Input) ||
					h.inputs["toolu_2"] != string(a.Blocks[4].Input) {
					t.Errorf("parts gave text %q and inputs %q", h.text, h.inputs)
				}
			})
		}
	})
}

func TestStopReasons(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for _, reason := range []string{"end_turn", "max_tokens", "refusal"} {
			a := modeltest.Text("so far")
			a.StopReason = reason
			m, _ := d.asked(t, a)
			reply, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
			if err != nil || reply.StopReason != reason || reply.Blocks[0].Text != "so far" {
				t.Errorf("%s: reply %+v, %v", reason, reply, err)
			}
		}
	})
}

// For every byte of an answer: one that ends there is never taken for a whole one,
// in order or (at every fifth byte) with a broken connection. It is asked for again,
// what was handed on of it is taken back, and of the second answer nothing is
// missing. Chat completions have a reason for the end before the last events: an
// answer that has it is whole.
func TestCut(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		t.Parallel()
		full := rich()
		full.Blocks[0].Thinking, full.Blocks[2].Text = "hm", "Grüße 🐑" // short: each byte is a call
		body := full.StreamOf(d.api, "m")
		ended := len(body)
		if d.api == modeltest.Chat {
			ended = after(body, `"finish_reason":"tool_calls"`)
		}
		var cut atomic.Int64 // the place of the cut; below 0: none
		s := serve(t, func(context.Context, *modeltest.Request) modeltest.Answer {
			at, broke := where(int(cut.Swap(-1)))
			if at < 0 {
				return modeltest.Answer{Raw: body}
			}
			return modeltest.Answer{Raw: body, Cut: !broke, Break: broke, CutAt: at}
		})
		s.Keep(0)
		m := d.connect(t, config{url: s.URL})
		ctx := t.Context()
		blocks := d.wants(full.Blocks)
		most := ""
		calls := (len(body) + 4) / 5 * 6
		for i := 0; i < calls; i += racetest.Step(7) { // of six cuts in turn, each comes
			at, broke := where(i)
			cut.Store(int64(i))
			var h heard
			reply, err := m.Reply(ctx, request("hi"), h.on)
			if at == 0 && !broke {
				if kindOf(err) != "bad_answer" {
					t.Fatalf("nothing at all: %v", err)
				}
				continue
			}
			if err != nil || !reflect.DeepEqual(reply.Blocks, blocks) || reply.StopReason != "tool_use" ||
				!reflect.DeepEqual(h.whole, blocks) || h.text != full.Blocks[2].Text {
				t.Fatalf("cut at %d of %d, broken %v: %v, reply %+v, heard %+v", at, len(body), broke, err, reply, h)
			}
			if again := len(h.retries) == 1; again == (at >= ended) {
				t.Fatalf("cut at %d of %d, broken %v: told of %d more tries", at, len(body), broke, len(h.retries))
			}
			if !strings.HasPrefix(full.Blocks[2].Text, h.void) || !strings.HasPrefix(h.void, most) && at < ended {
				t.Fatalf("cut at %d: %q is void after %q", at, h.void, most)
			}
			most = max(most, h.void)
		}
		if most != full.Blocks[2].Text {
			t.Errorf("at most %q was taken back", most)
		}
	})
}

// where is the place of the i-th cut: six for each five bytes, the last of them
// at the same byte as the one before.
func where(i int) (at int, broke bool) {
	if i < 0 {
		return -1, false
	}
	five, n := i/6, i%6
	return five*5 + min(n, 4), n == 5
}

// after is where the event ends that holds a text.
func after(body []byte, text string) int {
	at := bytes.Index(body, []byte(text))
	return at + bytes.Index(body[at:], []byte("\n\n")) + 2
}

// Streams in forms that are odd and allowed, or wrong and to be told.
func TestFraming(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		text := func(n int) []byte { return modeltest.Text(strings.Repeat("y", n)).StreamOf(d.api, "m") }
		good := string(modeltest.Text("hi").StreamOf(d.api, "m"))
		// One event with all the text, as no server that streams would send it.
		huge := func(n int) string {
			one := strings.Replace(string(text(64)), strings.Repeat("y", 64), strings.Repeat("x", n), 1)
			return strings.ReplaceAll(one, strings.Repeat("y", 64), "") // what repeats the text at its end
		}
		var nameless []string
		for _, line := range strings.SplitAfter(good, "\n") {
			if !strings.HasPrefix(line, "event:") {
				nameless = append(nameless, line)
			}
		}
		lines := strings.Split(strings.TrimSuffix(good, "\n\n"), "\n\n")
		last := lines[len(lines)-1]
		short := strings.TrimSuffix(good, last+"\n\n")
		unfinished := "cut"
		if d.api == modeltest.Chat {
			unfinished = "reply hi" // the last event only says that nothing follows
		}
		for _, c := range []struct{ name, body, want string }{
			{"usual", good, "reply hi"},
			{"nameless", strings.Join(nameless, ""), "reply hi"},
			{"crlf", strings.ReplaceAll(good, "\n", "\r\n"), "reply hi"},
			{"comments", ": hello\n\n" + strings.ReplaceAll(good, "\n\n", "\n: a\n\n:b\n"), "reply hi"},
			{"no-blank", strings.ReplaceAll(good, "data: ", "data:"), "reply hi"},
			{"mark", "\ufeff" + good, "reply hi"},
			{"fields", "retry: 5\nid: 7\nnonsense\n\n" + good, "reply hi"},
			{"empty-data", "data:\n\ndata: \n\n" + good, "reply hi"},
			{"unknown", strings.Replace(good, "\n\n", "\n\nevent: later\ndata: {\"type\":\"later\",\"x\":[1]}\n\n", 1),
				"reply hi"},
			{"broken-character", strings.Replace(good, "hi", "h\xff", 1), "reply h\ufffd"},
			{"half-pair", strings.Replace(good, "hi", `h\ud83d`, 1), "reply h\ufffd"},
			{"large", huge(2 << 20), "reply " + strings.Repeat("x", 2<<20)},
			{"too-large", huge(17 << 20), "larger than 16 MiB"},
			{"endless-line", "data: " + strings.Repeat("z", 17<<20), "larger than 16 MiB"},
			{"no-end", short, unfinished},
			{"no-json", "data: {oops\n\n", "bad_answer"},
			{"other-json", "data: [1,2]\n\n", "bad_answer"},
			{"no-json-late", strings.Replace(good, last, "data: {oops", 1), "cut"},
			{"empty", "", "bad_answer"},
			{"only-comments", ": a\n\n: b\n\n", "cut"},
		} {
			t.Run(c.name, func(t *testing.T) {
				m, s := d.asked(t, modeltest.Answer{Raw: []byte(c.body)})
				reply, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
				got := kindOf(err)
				if err == nil {
					got = "reply " + reply.Blocks[0].Text
				}
				if d.api == modeltest.Chat && c.name == "no-json-late" {
					c.want = "reply hi" // the reason and the count came before: nothing more is read
				}
				if got != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %.200q (%.300v), want %.200q", got, err, c.want)
				}
				if want := map[bool]int{true: 2, false: 1}[c.want == "cut"]; s.Count() != want {
					t.Errorf("%d calls, want %d", s.Count(), want)
				}
			})
		}
	})
}

// The prefix that a provider may keep in its cache: in 100 turns with 20 notifications,
// with thoughts that are left out and calls, a request repeats nearly all of the
// bytes of the one before it.
func TestPrefix(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		m, s := d.asked(t, modeltest.Text("ok"))
		s.Keep(2)
		req := request("begin")
		req.System = strings.Repeat("You are careful. ", 200)
		for i := range 10 {
			req.Tools = append(req.Tools, agent.ToolSpec{Name: "T" + strings.Repeat("x", i),
				Description: strings.Repeat("does ", 50), InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		var same, all int
		ctx := waittest.Context(t, patience)
		for turn := range 100 {
			if _, err := m.Reply(ctx, req, nil); err != nil {
				t.Fatal(err)
			}
			if got := s.Requests(); len(got) == 2 {
				same += common(got[0].Body, got[1].Body)
				all += len(got[0].Body)
			}
			id := "call_" + strings.Repeat("i", turn+1)
			results := []agent.Block{agent.ToolResultBlock(id, strings.Repeat("line of output\n", 40), turn%7 == 0)}
			if turn%5 == 0 {
				results = append(results, agent.TextBlock("<task-notification>done</task-notification>"))
			}
			req.Messages = append(req.Messages,
				agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "hm"}, agent.TextBlock("now"),
					modeltest.ToolUse(id, "Bash", map[string]any{"n": turn})),
				agent.NewMessage(agent.User, results...))
		}
		share := float64(same) / float64(all)
		t.Logf("%.2f %% of %d bytes", 100*share, all)
		if share < 0.95 {
			t.Errorf("%.1f %% of the bytes of a request begin the next one, want 95", 100*share)
		}
	})
}

func common(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// The key goes to the host that was set, and nowhere a redirect points to.
func TestRedirect(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		other := answers(t, modeltest.Text("stolen"))
		m, s := d.asked(t, modeltest.Answer{Status: http.StatusTemporaryRedirect, Raw: []byte{},
			Header: http.Header{"Location": {other.URL + string(d.api)}}})
		_, err := m.Reply(waittest.Context(t, patience), request("hi"), nil)
		if kindOf(err) != "bad_answer" || !strings.Contains(err.Error(), d.urlVar) {
			t.Errorf("Reply = %v, want bad_answer", err)
		}
		if other.Count() != 0 {
			t.Error("the key went to another host")
		}
		sent := s.Requests()[0].Header
		if !slices.Contains([]string{sent.Get("X-Api-Key"), strings.TrimPrefix(sent.Get("Authorization"), "Bearer ")},
			"key-1") {
			t.Errorf("headers %v", sent)
		}
		for header, want := range map[string]string{"Drover-Agent": "explore", "Drover-Agent-Id": "a12345678",
			"Drover-Session-Id": "s12345678"} {
			if sent.Get(header) != want {
				t.Errorf("header %s = %q, want %q", header, sent.Get(header), want)
			}
		}
	})
}
