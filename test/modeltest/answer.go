package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
)

// Answer is what one call gets. The zero value is an answer without content
// that ends its turn.
type Answer struct {
	ID         string // of the message; empty: made from the number of the call
	Blocks     []agent.Block
	StopReason string // empty: tool_use if there is a tool_use block, else end_turn
	Usage      agent.Usage

	Status      int // 0: 200
	Header      http.Header
	ContentType string // of Raw; empty: that of an event stream
	Raw         []byte // sent instead of a message, when it is not nil

	failure *failure // an error, told as the API that is called tells it

	Cut    bool // only the first CutAt bytes of the body are sent, and the body ends in order
	Break  bool // the same, but the connection is torn
	CutAt  int
	NoHead bool // the connection ends before the answer begins
	Reset  bool // a connection that is torn, or ends before the answer, is reset (RST)
	// the answer with its status line and headers, as it goes over the connection, which then ends
	Wire     []byte
	Piece    int             // bytes per write; 0: as much as there is
	Wait     <-chan struct{} // the answer does not begin before it is closed
	Hold     <-chan struct{} // after HoldAt bytes of the body, waits until it is closed
	HoldAt   int
	PingEach time.Duration // while in Hold, a ping this often; 0: silence
}

// Text is an answer that says something.
func Text(text string) Answer { return Answer{Blocks: []agent.Block{agent.TextBlock(text)}} }

// Call is an answer that calls one tool. Input is anything that encodes as a
// JSON object.
func Call(tool string, input any) Answer {
	return Answer{Blocks: []agent.Block{ToolUse("", tool, input)}}
}

// ToolUse is a block that calls a tool. An empty ID is replaced by one that no
// other answer of the server has. It panics on input that cannot be encoded.
func ToolUse(id, tool string, input any) agent.Block {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(fmt.Sprintf("modeltest: encode input of %s: %v", tool, err))
	}
	return agent.Block{Type: "tool_use", ID: id, Name: tool, Input: raw}
}

// failure is an error of the provider.
type failure struct{ kind, message, param string }

// Error is the provider's error with an HTTP status and a type such as
// rate_limit_error.
func Error(status int, kind, message string) Answer {
	return Answer{Status: status, ContentType: "application/json", failure: &failure{kind: kind, message: message}}
}

// RateLimit is a 429. An empty retryAfter sends no Retry-After header.
func RateLimit(retryAfter string) Answer {
	a := Error(http.StatusTooManyRequests, "rate_limit_error", "too many requests")
	if retryAfter != "" {
		a.Header = http.Header{"Retry-After": {retryAfter}}
	}
	return a
}

// HTML is a page where a message was expected.
func HTML(status int, page string) Answer {
	return Answer{Status: status, ContentType: "text/html; charset=utf-8", Raw: []byte(page)}
}

// Turns answers from a list of turns for each agent. Lists are found by the
// label of the agent, or under "" for agents without a list of their own.
// Every agent of a session walks through its list by itself: one answer for
// each call, errors too. A call after the last turn is refused with a 400 that
// says so.
func Turns(lists map[string][]Answer) Handler {
	type walker struct{ session, id, label string }
	var mu sync.Mutex
	next := make(map[walker]int)
	return func(_ context.Context, r *Request) Answer {
		turns, ok := lists[r.Agent()]
		if !ok {
			turns = lists[""]
		}
		w := walker{r.SessionID(), r.AgentID(), r.Agent()}
		mu.Lock()
		i := next[w]
		next[w]++
		mu.Unlock()
		if i >= len(turns) {
			return Error(http.StatusBadRequest, "invalid_request_error",
				fmt.Sprintf("modeltest: no turn %d for agent %q", i+1, r.Agent()))
		}
		return turns[i]
	}
}

// write sends the answer and returns when all of it is sent or the client is gone.
func (a Answer) write(w http.ResponseWriter, r *http.Request, api API, stream bool, model string) {
	if !await(r.Context(), a.Wait) {
		panic(http.ErrAbortHandler)
	}
	if a.NoHead || a.Wire != nil {
		a.tear(w)
		return
	}
	body, contentType := a.Raw, a.ContentType
	switch {
	case body == nil && a.failure != nil:
		body = a.failure.body(api)
	case body == nil && (stream || api != Messages):
		body, contentType = a.StreamOf(api, model), "text/event-stream; charset=utf-8"
	case body == nil:
		body, contentType = a.message(model), "application/json"
	case contentType == "":
		contentType = "text/event-stream; charset=utf-8"
	}
	h := w.Header()
	for k, v := range a.Header {
		h[k] = v
	}
	h.Set("Content-Type", contentType)
	h.Set("Request-Id", "req_test")
	status := a.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)

	if (a.Cut || a.Break) && a.CutAt < len(body) {
		body = body[:max(0, a.CutAt)]
	}
	if a.Hold != nil {
		at := min(a.HoldAt, len(body))
		a.send(w, body[:at])
		body = body[at:]
		if !a.hold(w, r, api) {
			panic(http.ErrAbortHandler)
		}
	}
	a.send(w, body)
	if a.Break && a.Reset {
		a.tear(w)
		return
	}
	if a.Break {
		panic(http.ErrAbortHandler) // ends the connection without the end of the body
	}
}

// tear takes the connection from the server, sends what there is of its own, and
// ends it.
func (a Answer) tear(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	_, _ = conn.Write(a.Wire)                          // fails only when the client is gone
	if tcp, ok := conn.(*net.TCPConn); ok && a.Reset { // the server listens on TCP
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (a Answer) send(w http.ResponseWriter, body []byte) {
	piece := a.Piece
	if piece <= 0 {
		piece = len(body)
	}
	flush := http.NewResponseController(w)
	for len(body) > 0 {
		n := min(piece, len(body))
		if _, err := w.Write(body[:n]); err != nil {
			return // the client is gone
		}
		body = body[n:]
		_ = flush.Flush() // fails only when the client is gone, which the next write tells
	}
	_ = flush.Flush()
}

// hold waits in the middle of a body. It reports whether to go on.
func (a Answer) hold(w http.ResponseWriter, r *http.Request, api API) bool {
	if a.PingEach <= 0 {
		return await(r.Context(), a.Hold)
	}
	tick := time.NewTicker(a.PingEach)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.send(w, []byte(pingOf(api)))
		case <-a.Hold:
			return true
		case <-r.Context().Done():
			return false
		}
	}
}

// await reports whether c was closed before ctx ended. A nil c counts as closed.
func await(ctx context.Context, c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

const ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n"

// deltaRunes is how many characters a delta carries.
const deltaRunes = 64

// pingOf is a sign of life. Servers of the other APIs send comments.
func pingOf(api API) string {
	if api == Messages {
		return ping
	}
	return ": still at work\n\n"
}

// Stream is the answer as the bytes of an event stream of the Messages API.
func (a Answer) Stream(model string) []byte {
	var out bytes.Buffer
	event := func(name string, fields map[string]any) {
		fields["type"] = name
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", name, mustJSON(fields))
	}
	event("message_start", map[string]any{"message": a.head(model, []any{}, nil, 1)})
	out.WriteString(ping)
	for i, b := range a.Blocks {
		start := map[string]any{"type": b.Type}
		var deltas []map[string]any
		add := func(kind, field, text string) {
			for _, piece := range pieces(text) {
				deltas = append(deltas, map[string]any{"type": kind, field: piece})
			}
		}
		switch b.Type {
		case "text":
			start["text"] = ""
			add("text_delta", "text", b.Text)
		case "thinking":
			start["thinking"], start["signature"] = "", ""
			add("thinking_delta", "thinking", b.Thinking)
			deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": b.Signature})
		case "redacted_thinking":
			start["data"] = b.Data
		case "tool_use":
			start["id"], start["name"], start["input"] = a.callID(b, i), b.Name, map[string]any{}
			add("input_json_delta", "partial_json", string(b.Input))
		}
		event("content_block_start", map[string]any{"index": i, "content_block": start})
		for _, d := range deltas {
			event("content_block_delta", map[string]any{"index": i, "delta": d})
		}
		event("content_block_stop", map[string]any{"index": i})
	}
	event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": a.stopReason(), "stop_sequence": nil},
		"usage": map[string]any{"output_tokens": a.Usage.OutputTokens},
	})
	event("message_stop", map[string]any{})
	return out.Bytes()
}

// message is the answer as one JSON object.
func (a Answer) message(model string) []byte {
	blocks := make([]agent.Block, 0, len(a.Blocks))
	for i, b := range a.Blocks {
		if b.Type == "tool_use" {
			b.ID = a.callID(b, i)
		}
		blocks = append(blocks, b)
	}
	return mustJSON(a.head(model, blocks, a.stopReason(), a.Usage.OutputTokens))
}

func (a Answer) head(model string, content, stop any, output int64) map[string]any {
	var written map[string]int64
	if hour := a.Usage.HourWriteTokens; hour > 0 {
		written = map[string]int64{"ephemeral_1h_input_tokens": hour,
			"ephemeral_5m_input_tokens": a.Usage.CacheWriteTokens - hour}
	}
	return map[string]any{
		"id": a.ID, "type": "message", "role": "assistant", "model": model,
		"content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": map[string]any{
			"input_tokens": a.Usage.InputTokens, "output_tokens": output,
			"cache_creation_input_tokens": a.Usage.CacheWriteTokens, "cache_read_input_tokens": a.Usage.CacheReadTokens,
			"cache_creation": written,
		},
	}
}

func (a Answer) callID(b agent.Block, index int) string {
	if b.ID != "" {
		return b.ID
	}
	return "toolu_" + a.ID + "_" + strconv.Itoa(index)
}

func (a Answer) stopReason() string {
	if a.StopReason != "" {
		return a.StopReason
	}
	for _, b := range a.Blocks {
		if b.Type == "tool_use" {
			return "tool_use"
		}
	}
	return "end_turn"
}

// pieces splits text between characters.
func pieces(text string) []string {
	var out []string
	for runes := []rune(text); len(runes) > 0; {
		n := min(deltaRunes, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}

func mustJSON(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("modeltest: encode %T: %v", v, err))
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}
