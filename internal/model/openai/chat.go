package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// The chat completions API: platform.openai.com/docs/api-reference/chat.

// maxCalls bounds the calls of one answer; each part of a call is searched among
// them.
const maxCalls = 256

func chatForm() form {
	return form{
		path: "/chat/completions", list: "messages", head: chatHead, items: chatItems,
		system: func(text string) any { return chatMessage{Role: "system", Content: text} },
		decode: func(model string, on func(agent.Part)) modelwire.Decoder {
			return &chat{answer: answer{on: on}, model: model}
		},
	}
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type chatTool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

func chatHead(r *agent.Request, model string, maxTokens int, own, plain bool) any {
	type options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	head := struct {
		Model     string     `json:"model"`
		Stream    bool       `json:"stream"`
		Options   *options   `json:"stream_options,omitempty"`
		MaxTokens int        `json:"max_tokens,omitempty"`
		MaxNew    int        `json:"max_completion_tokens,omitempty"` // the name that OpenAI itself wants
		Effort    string     `json:"reasoning_effort,omitempty"`
		Tools     []chatTool `json:"tools,omitempty"`
	}{Model: model, Stream: true, Effort: effort(r.Thinking)}
	if !plain {
		head.Options = &options{true}
	}
	if own {
		head.MaxNew = maxTokens
	} else {
		head.MaxTokens = maxTokens
	}
	for _, t := range r.Tools {
		head.Tools = append(head.Tools, chatTool{"function", function{t.Name, t.Description, t.InputSchema}})
	}
	return head
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"` // text, parts, or null with calls
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chatItems returns the messages for one of ours: results first, each in a message of
// its own, since they must follow the calls at once.
func chatItems(blocks []agent.Block, role agent.Role) (out []any) {
	p := sortOut(blocks)
	if role == agent.Assistant {
		m := chatMessage{Role: "assistant"}
		if text := strings.Join(p.texts, "\n\n"); text != "" || len(p.calls) == 0 {
			m.Content = text
		}
		for _, b := range p.calls {
			c := chatCall{ID: callID(b.ID), Type: "function"}
			c.Function.Name, c.Function.Arguments = b.Name, arguments(b)
			m.ToolCalls = append(m.ToolCalls, c)
		}
		return []any{m}
	}
	for _, r := range p.results {
		out = append(out, chatMessage{Role: "tool", Content: r.text, ToolCallID: r.id})
	}
	switch {
	case len(p.images) > 0:
		out = append(out, chatMessage{Role: "user", Content: chatParts(p)})
	case len(p.texts) > 0: // every server takes plain text
		out = append(out, chatMessage{Role: "user", Content: strings.Join(p.texts, "\n\n")})
	}
	return out
}

func chatParts(p parts) (out []any) {
	type url struct {
		URL string `json:"url"`
	}
	type part struct {
		Type  string `json:"type"`
		Text  string `json:"text,omitempty"`
		Image *url   `json:"image_url,omitempty"`
	}
	for _, text := range p.texts {
		out = append(out, part{Type: "text", Text: text})
	}
	for _, image := range p.images {
		out = append(out, part{Type: "image_url", Image: &url{image}})
	}
	return out
}

// chat puts an answer together. Text and thoughts are whole when something else
// begins; calls only at the end, since nothing before says that no more of
// their input will come.
type chat struct {
	answer
	model   string
	current *block // the text or the thoughts that grow
	calls   []*call
	reason  string // why it stopped; empty: it did not yet
	held    string // of the content, which may be a part of a tag
	tag     tag
}

// call is an unfinished call, with the server's number for it.
type call struct {
	*block
	index int
}

// chunk holds the fields of all events that matter.
type chunk struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index        int    `json:"index"`
		FinishReason string `json:"finish_reason"`
		Delta        said   `json:"delta"`
		Message      *said  `json:"message"` // the whole answer, of a server that does not stream
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Hits int64 `json:"prompt_cache_hit_tokens"` // of servers without details
	} `json:"usage"`
}

// said is a part of an answer.
type said struct {
	Content          loose      `json:"content"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"` // the same, by another name
	Refusal          string     `json:"refusal"`
	ToolCalls        []delta    `json:"tool_calls"`
	FunctionCall     *deltaCall `json:"function_call"` // the older form, of a single call
}

type delta struct {
	Index    *int      `json:"index"`
	ID       string    `json:"id"`
	Function deltaCall `json:"function"`
}

type deltaCall struct {
	Name      string `json:"name"`
	Arguments loose  `json:"arguments"`
}

// Take implements [modelwire.Decoder].
func (c *chat) Take(e *modelwire.Event) (modelwire.State, error) {
	if data := bytes.TrimSpace(e.Data); string(data) == "[DONE]" {
		if c.begun && c.reason == "" && c.wholeCalls() { // some servers say nothing else at the end
			c.reason = "stop"
		}
		return modelwire.Done, nil
	}
	var in chunk
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return modelwire.More, &modelwire.BadFormat{Text: "an event is no JSON of this API: " + err.Error()}
	}
	if len(in.Error) > 0 && string(in.Error) != "null" {
		return modelwire.More, refusalIn(e.Data)
	}
	c.begun = true
	c.named(in.ID, in.Model)
	for _, choice := range in.Choices {
		if choice.Index != 0 {
			continue // we ask for one
		}
		d := &choice.Delta
		if choice.Message != nil {
			d = choice.Message
		}
		if d.ReasoningContent == "" {
			d.ReasoningContent = d.Reasoning
		}
		c.more(agent.ThinkingPart, d.ReasoningContent)
		c.content(string(d.Content))
		c.refused = c.refused || d.Refusal != ""
		c.more(agent.TextPart, d.Refusal)
		if d.FunctionCall != nil {
			d.ToolCalls = append(d.ToolCalls, delta{Function: *d.FunctionCall})
		}
		for _, t := range d.ToolCalls {
			if err := c.call(t); err != nil {
				return modelwire.More, err
			}
		}
		if choice.FinishReason != "" {
			c.reason = choice.FinishReason
		}
	}
	if u := in.Usage; u != nil {
		c.reply.Usage = count(u.Prompt, max(u.Details.Cached, u.Hits), u.Completion)
		c.counted = c.reply.Usage != agent.Usage{}
	}
	switch {
	case c.reason == "":
		return modelwire.More, nil
	case in.Usage != nil:
		return modelwire.Done, nil
	}
	return modelwire.Enough, nil // the usage comes after the end, if at all
}

// tag is where in the content the next text is.
type tag int

const (
	start    tag = iota // before it is known whether it begins with thoughts
	thoughts            // between <think> and </think>
	answered
)

// content adds to the answer. Some servers have thoughts at its start, between tags.
func (c *chat) content(text string) {
	const begin, end = "<think>", "</think>"
	c.held += text
	if c.tag == start {
		told := strings.TrimLeft(c.held, " \t\r\n")
		switch {
		case strings.HasPrefix(told, begin):
			c.held, c.tag = told[len(begin):], thoughts
		case strings.HasPrefix(begin, told):
			return
		default:
			c.tag = answered
		}
	}
	if c.tag == thoughts {
		thought, rest, closed := strings.Cut(c.held, end)
		if !closed {
			keep := min(len(end)-1, len(thought))
			for !strings.HasPrefix(end, thought[len(thought)-keep:]) {
				keep--
			}
			c.held = thought[len(thought)-keep:]
			c.more(agent.ThinkingPart, thought[:len(thought)-keep])
			return
		}
		c.more(agent.ThinkingPart, thought)
		c.held, c.tag = strings.TrimLeft(rest, "\r\n"), answered
	}
	c.release()
}

// release adds the text that was held back for a possible tag.
func (c *chat) release() {
	kind, text := agent.TextPart, c.held
	if c.tag == thoughts {
		kind = agent.ThinkingPart
	}
	c.held = ""
	c.more(kind, text)
}

// wholeCalls reports whether the input of each call is complete.
func (c *chat) wholeCalls() bool {
	return !slices.ContainsFunc(c.calls, func(in *call) bool {
		text := in.text.String()
		return text != "" && !json.Valid([]byte(text))
	})
}

// refusalIn reads the error that an event tells.
func refusalIn(data []byte) error {
	if r, ok := modelwire.ParseRefusal(data); ok {
		return r
	}
	return &modelwire.BadFormat{Text: "an error without words"}
}

// more adds text or thoughts.
func (c *chat) more(kind agent.PartKind, text string) {
	if text == "" {
		return
	}
	if c.current == nil || c.current.kind != kind {
		c.settle()
		c.current = c.open(kind)
	}
	c.grow(c.current, text)
}

// settle ends the text or the thoughts that grow.
func (c *chat) settle() {
	if c.current != nil {
		c.close(c.current)
		c.current = nil
	}
}

// call adds a delta to a call, or begins one.
func (c *chat) call(d delta) error {
	in := c.find(d)
	if in == nil {
		if len(c.calls) == maxCalls {
			return &modelwire.Useless{Text: fmt.Sprintf("more than %d calls in one answer", maxCalls)}
		}
		c.release()
		c.settle()
		in = &call{block: c.open(agent.InputPart), index: len(c.calls)}
		if d.Index != nil {
			in.index = *d.Index
		}
		c.calls = append(c.calls, in)
	}
	if in.id == "" {
		in.id = d.ID
	}
	if in.name == "" {
		in.name = d.Function.Name
	}
	c.grow(in.block, string(d.Function.Arguments))
	return nil
}

// find is the call that a delta adds to, or nil if it begins one. Servers
// number calls, or give each an ID, or do neither and send every call whole;
// some give all of them the same number.
func (c *chat) find(d delta) *call {
	for i := len(c.calls) - 1; i >= 0; i-- {
		in := c.calls[i]
		switch {
		case d.Index != nil && in.index != *d.Index:
		case d.Index == nil && d.ID != "" && in.id != d.ID:
		case d.ID != "" && in.id != "" && in.id != d.ID:
			return nil // the same number, another call
		case d.ID == "" && d.Function.Name != "" && in.name != "" && looksWhole(in.text.String()):
			return nil // a name after a whole input
		default:
			return in
		}
	}
	return nil
}

// looksWhole reports whether input is complete JSON. It is cheap for text that cannot be.
func looksWhole(input string) bool {
	return strings.HasSuffix(strings.TrimRight(input, " \n"), "}") && json.Valid([]byte(input))
}

// Finish implements [modelwire.Decoder].
func (c *chat) Finish() (*agent.Reply, error) {
	if c.reason == "" {
		return nil, io.ErrUnexpectedEOF
	}
	stop, whole := chatReason(c.reason)
	if !whole && len(c.calls) > 0 {
		return nil, &modelwire.Useless{Text: fmt.Sprintf("it ended for a reason that is not known: %.40q", c.reason)}
	}
	if c.reason == "error" {
		return nil, &modelwire.Refusal{Type: "server_error", Message: "the answer ended with an error that was not told"}
	}
	c.release()
	c.settle()
	for _, in := range c.calls {
		c.close(in.block)
	}
	if stop == "" {
		stop = c.ended()
	}
	c.reply.StopReason = stop
	return c.finish(c.model), nil
}

// chatReason returns our word for a finish reason, or "" if the answer came to its
// own end: servers send stop after calls, too. known is false for reasons of unknown
// meaning, after which no call may run.
func chatReason(reason string) (stop string, known bool) {
	switch reason {
	case "length", "max_tokens", "model_length":
		return "max_tokens", true
	case "content_filter", "refusal", "safety":
		return "refusal", true
	case "stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos", "eos_token":
		return "", true
	}
	return "", false
}
