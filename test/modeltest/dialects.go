package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// API is one of the forms that the server speaks: the path it is called by.
type API string

// The APIs.
const (
	Messages  API = "/v1/messages"
	Chat      API = "/v1/chat/completions"
	Responses API = "/v1/responses"
)

// body is the failure in the form of the API.
func (f *failure) body(api API) []byte {
	told := map[string]any{"type": f.kind, "message": f.message}
	if api == Messages {
		return mustJSON(map[string]any{"type": "error", "error": told, "request_id": "req_test"})
	}
	told["param"], told["code"] = any(nil), f.kind
	if f.param != "" {
		told["param"] = f.param
	}
	return mustJSON(map[string]any{"error": told})
}

// StreamOf is the answer as the bytes of an event stream of the API.
func (a Answer) StreamOf(api API, model string) []byte {
	switch api {
	case Chat:
		return a.chatStream(model)
	case Responses:
		return a.responsesStream(model)
	}
	return a.Stream(model)
}

// chatStream tells thoughts in reasoning_content, as most servers do that tell
// them at all.
func (a Answer) chatStream(model string) []byte {
	var out bytes.Buffer
	chunk := func(choices []any, more map[string]any) {
		fields := map[string]any{
			"id": a.ID, "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model, "choices": choices,
		}
		for k, v := range more {
			fields[k] = v
		}
		fmt.Fprintf(&out, "data: %s\n\n", mustJSON(fields))
	}
	delta := func(fields map[string]any, finish any) {
		chunk([]any{map[string]any{"index": 0, "delta": fields, "finish_reason": finish}}, nil)
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	calls := 0
	for i, b := range a.Blocks {
		switch b.Type {
		case "text":
			for _, p := range pieces(b.Text) {
				delta(map[string]any{"content": p}, nil)
			}
		case "thinking":
			for _, p := range pieces(b.Thinking) {
				delta(map[string]any{"reasoning_content": p}, nil)
			}
		case "tool_use":
			call := func(fields map[string]any) {
				fields["index"] = calls
				delta(map[string]any{"tool_calls": []any{fields}}, nil)
			}
			call(map[string]any{"id": a.callID(b, i), "type": "function", "function": map[string]any{"name": b.Name,
				"arguments": ""}})
			for _, p := range pieces(string(b.Input)) {
				call(map[string]any{"function": map[string]any{"arguments": p}})
			}
			calls++
		}
	}
	reason := map[string]string{"tool_use": "tool_calls", "max_tokens": "length",
		"refusal": "content_filter"}[a.stopReason()]
	if reason == "" {
		reason = "stop"
	}
	delta(map[string]any{}, reason)
	u := a.Usage
	input := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
	chunk([]any{}, map[string]any{"usage": map[string]any{
		"prompt_tokens": input, "completion_tokens": u.OutputTokens, "total_tokens": input + u.OutputTokens,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.CacheReadTokens},
	}})
	out.WriteString("data: [DONE]\n\n")
	return out.Bytes()
}

func (a Answer) responsesStream(model string) []byte {
	var out bytes.Buffer
	number := 0
	event := func(name string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = name, number
		number++
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", name, mustJSON(fields))
	}
	response := func(status string) map[string]any {
		return map[string]any{"id": a.ID, "object": "response", "status": status, "model": model, "error": nil,
			"incomplete_details": nil}
	}
	event("response.created", map[string]any{"response": response("in_progress")})
	event("response.in_progress", map[string]any{"response": response("in_progress")})
	at := 0
	for i, b := range a.Blocks {
		it := map[string]any{"id": fmt.Sprintf("item_%d", at), "status": "in_progress"}
		var part, text string
		switch b.Type {
		case "text":
			it["type"], it["role"], it["content"] = "message", "assistant", []any{}
			part, text = "response.output_text", b.Text
		case "thinking":
			it["type"], it["summary"] = "reasoning", []any{}
			part, text = "response.reasoning_summary_text", b.Thinking
		case "tool_use":
			it["type"], it["call_id"], it["name"], it["arguments"] = "function_call", a.callID(b, i), b.Name, ""
			part, text = "response.function_call_arguments", string(b.Input)
		default:
			continue
		}
		tell := func(name string, fields map[string]any) {
			fields["item_id"], fields["output_index"], fields["content_index"] = it["id"], at, 0
			event(name, fields)
		}
		event("response.output_item.added", map[string]any{"output_index": at, "item": it})
		for _, p := range pieces(text) {
			tell(part+".delta", map[string]any{"delta": p})
		}
		tell(part+".done", map[string]any{"text": text})
		it["status"] = "completed"
		switch b.Type {
		case "text":
			it["content"] = []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}}
		case "thinking":
			it["summary"] = []any{map[string]any{"type": "summary_text", "text": text}}
		case "tool_use":
			it["arguments"] = text
		}
		event("response.output_item.done", map[string]any{"output_index": at, "item": it})
		at++
	}
	name, last := "response.completed", response("completed")
	if why := map[string]string{"max_tokens": "max_output_tokens",
		"refusal": "content_filter"}[a.stopReason()]; why != "" {
		name, last = "response.incomplete", response("incomplete")
		last["incomplete_details"] = map[string]any{"reason": why}
	}
	u := a.Usage
	input := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
	last["usage"] = map[string]any{
		"input_tokens": input, "output_tokens": u.OutputTokens, "total_tokens": input + u.OutputTokens,
		"input_tokens_details": map[string]any{"cached_tokens": u.CacheReadTokens},
	}
	event(name, map[string]any{"response": last})
	return out.Bytes()
}

// messages gathers what the other APIs tell in single items. What follows
// results without an answer between them belongs to the same message, as a
// client makes it.
type messages struct {
	role   agent.Role
	blocks []agent.Block
	made   []agent.Message
}

func (m *messages) add(role agent.Role, blocks ...agent.Block) {
	if role != m.role {
		m.flush()
		m.role = role
	}
	m.blocks = append(m.blocks, blocks...)
}

func (m *messages) flush() {
	if m.role != "" {
		m.made = append(m.made, agent.NewMessage(m.role, m.blocks...))
	}
	m.blocks = nil
}

// content reads text, or a list of parts with text in them.
func content(raw json.RawMessage) (out []agent.Block, err error) {
	var text string
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return []agent.Block{agent.TextBlock(text)}, nil
	}
	var parts []struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		Image json.RawMessage `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		if strings.HasSuffix(p.Type, "text") {
			out = append(out, agent.TextBlock(p.Text))
			continue
		}
		out = append(out, agent.Block{Type: "image", Source: p.Image})
	}
	return out, nil
}

func callBlock(id, name, arguments string) agent.Block {
	return agent.Block{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(arguments)}
}

func chatParams(body []byte) (p Params, err error) {
	var in struct {
		Model    string `json:"model"`
		Max      int    `json:"max_tokens"`
		MaxNew   int    `json:"max_completion_tokens"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name, Description string
				Parameters        json.RawMessage
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return p, err
	}
	p = Params{Model: in.Model, MaxTokens: max(in.Max, in.MaxNew), Stream: in.Stream}
	for _, t := range in.Tools {
		p.Tools = append(p.Tools, agent.ToolSpec{Name: t.Function.Name, Description: t.Function.Description,
			InputSchema: t.Function.Parameters})
	}
	var all messages
	for _, m := range in.Messages {
		blocks, err := content(m.Content)
		if err != nil {
			return p, err
		}
		switch m.Role {
		case "system":
			p.System = m.Content
		case "tool":
			all.add(agent.User, agent.Block{Type: "tool_result", ToolUseID: m.ToolCallID, Content: m.Content})
		case "assistant":
			for _, c := range m.ToolCalls {
				blocks = append(blocks, callBlock(c.ID, c.Function.Name, c.Function.Arguments))
			}
			all.add(agent.Assistant, blocks...)
		case "user":
			all.add(agent.User, blocks...)
		default:
			return p, fmt.Errorf("a message of role %q", m.Role)
		}
	}
	all.flush()
	p.Messages = all.made
	return p, nil
}

func responsesParams(body []byte) (p Params, err error) {
	var in struct {
		Model  string          `json:"model"`
		Max    int             `json:"max_output_tokens"`
		Stream bool            `json:"stream"`
		System json.RawMessage `json:"instructions"`
		Input  []struct {
			Type      string          `json:"type"`
			Role      agent.Role      `json:"role"`
			Content   json.RawMessage `json:"content"`
			CallID    string          `json:"call_id"`
			Name      string          `json:"name"`
			Arguments string          `json:"arguments"`
			Output    json.RawMessage `json:"output"`
		} `json:"input"`
		Tools []struct {
			Name, Description string
			Parameters        json.RawMessage
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return p, err
	}
	p = Params{Model: in.Model, MaxTokens: in.Max, Stream: in.Stream, System: in.System}
	for _, t := range in.Tools {
		p.Tools = append(p.Tools, agent.ToolSpec{Name: t.Name, Description: t.Description, InputSchema: t.Parameters})
	}
	var all messages
	for _, it := range in.Input {
		switch it.Type {
		case "message":
			blocks, err := content(it.Content)
			if err != nil {
				return p, err
			}
			all.add(it.Role, blocks...)
		case "function_call":
			all.add(agent.Assistant, callBlock(it.CallID, it.Name, it.Arguments))
		case "function_call_output":
			all.add(agent.User, agent.Block{Type: "tool_result", ToolUseID: it.CallID, Content: it.Output})
		default:
			return p, fmt.Errorf("an item of type %q", it.Type)
		}
	}
	all.flush()
	p.Messages = all.made
	return p, nil
}
