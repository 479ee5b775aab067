package headless

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// claude translates stream-json of Claude Code. Its control requests come from the Agent SDK
// (0.3): initialize, set_model, set_permission_mode and interrupt from us, can_use_tool from the program.
type claude struct {
	session   string
	ids       numbers
	asked     map[string]pending  // by request_id: control requests of ours
	questions map[string]question // by the ID of the permission request
	prompt    json.RawMessage     // ID of the session/prompt under way; nil: none
	message   string              // ID of the streamed message
	cancelled bool                // the client has cancelled the prompt
	signIn    string              // why the provider refuses the credentials; empty: it accepts them
	models    []object            // that the program offers
}

// pending is a request of the client that waits for the answer to a control request.
type pending struct {
	id      json.RawMessage
	opening bool // it is initialize
}

// question is a can_use_tool that waits for the client.
type question struct {
	request string
	input   json.RawMessage
}

func newClaude(session string) *claude {
	return &claude{session: session, asked: map[string]pending{}, questions: map[string]question{}}
}

// control is a control request to the program. Its answer answers the request of the client, if that has an ID.
func (c *claude) control(p pending, fields object) any {
	id := "drover-" + string(c.ids.next())
	if p.id != nil {
		c.asked[id] = p
	}
	return object{"type": "control_request", "request_id": id, "request": fields}
}

// FromClient implements [Translator].
func (c *claude) FromClient(line []byte) (s Step) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return Step{Client: []Message{refuse(nil, codeInternal, "read the message: %v", err)}}
	}
	switch r.Method {
	case "initialize":
		s.Program = append(s.Program, c.control(pending{r.ID, true}, object{"subtype": "initialize"}))
	case "session/new", "session/resume":
		s.Client = append(s.Client, opened(r.ID, c.session, c.models,
			[]string{"default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"}))
	case "session/set_model":
		s.Program = append(s.Program, c.control(pending{id: r.ID}, object{"subtype": "set_model", "model": r.Params.Model}))
	case "session/set_mode":
		mode := object{"subtype": "set_permission_mode", "mode": r.Params.Mode}
		s.Program = append(s.Program, c.control(pending{id: r.ID}, mode))
	case "session/prompt":
		c.prompt, c.cancelled, c.signIn = r.ID, false, ""
		s.Program = append(s.Program, object{"type": "user", "session_id": c.session, "parent_tool_use_id": nil,
			"message": object{"role": "user", "content": claudeContent(r.Params.Prompt)}})
	case "session/cancel":
		c.cancelled = true
		s.Program = append(s.Program, c.control(pending{}, object{"subtype": "interrupt"}))
	case "":
		if q, open := c.questions[string(r.ID)]; open {
			delete(c.questions, string(r.ID))
			s.Program = append(s.Program, q.answer(r))
		}
	default:
		return unsupported(r)
	}
	return s
}

// answer is the control response to a can_use_tool.
func (q question) answer(r request) any {
	decision := object{"behavior": "allow", "updatedInput": q.input}
	if !r.allowed() {
		decision = object{"behavior": "deny", "message": "The user does not allow this call.", "interrupt": r.cancelled()}
	}
	return object{"type": "control_response",
		"response": object{"subtype": "success", "request_id": q.request, "response": decision}}
}

func claudeContent(prompt []block) (out []object) {
	for _, b := range prompt {
		switch b.Type {
		case "text":
			out = append(out, object{"type": "text", "text": b.Text})
		case "image":
			out = append(out, object{"type": "image", "source": object{"type": "base64", "media_type": b.MIME, "data": b.Data}})
		}
	}
	return out
}

// claudeLine is a line of the program, with the fields of all its types.
type claudeLine struct {
	Type      string          `json:"type"`
	Parent    string          `json:"parent_tool_use_id"` // of a message in an agent of its own
	Message   json.RawMessage `json:"message"`
	Error     string          `json:"error"` // of an assistant message that replaces an answer
	Event     claudeEvent     `json:"event"`
	RequestID string          `json:"request_id"`
	Request   struct {
		Subtype string          `json:"subtype"`
		Tool    string          `json:"tool_name"`
		Input   json.RawMessage `json:"input"`
		Call    string          `json:"tool_use_id"`
	} `json:"request"`
	Response struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Error     string `json:"error"`
		Response  struct {
			Models []struct {
				Value string `json:"value"`
				Name  string `json:"displayName"`
			} `json:"models"`
		} `json:"response"`
	} `json:"response"`

	Subtype    string   `json:"subtype"` // of a result
	IsError    bool     `json:"is_error"`
	Result     string   `json:"result"`
	Errors     []string `json:"errors"`
	StopReason string   `json:"stop_reason"`
	CostUSD    float64  `json:"total_cost_usd"`
	Usage      struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

type claudeEvent struct {
	Type    string `json:"type"`
	Message struct {
		ID string `json:"id"`
	} `json:"message"`
	Delta struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	} `json:"delta"`
}

// FromProgram implements [Translator].
func (c *claude) FromProgram(line []byte) (s Step) {
	var l claudeLine
	if json.Unmarshal(line, &l) != nil { // a newer form of a line: the conversation continues without it
		return s
	}
	switch l.Type {
	case "stream_event":
		s.Client = c.streamed(l)
	case "assistant":
		if l.Error == "authentication_failed" {
			c.signIn = l.Error
		}
		s.Client = c.calls(l.Message)
	case "user":
		s.Client = c.results(l.Message)
	case "control_response":
		s.Client = c.answered(l)
	case "control_request":
		return c.asks(l)
	case "result":
		s.Client = c.ended(l)
	}
	return s
}

func (c *claude) streamed(l claudeLine) []Message {
	if l.Parent != "" {
		return nil
	}
	switch d := l.Event.Delta; {
	case l.Event.Type == "message_start":
		c.message = l.Event.Message.ID
	case d.Type == "text_delta":
		return []Message{chunk(c.session, "agent_message_chunk", c.message, d.Text)}
	case d.Type == "thinking_delta":
		return []Message{chunk(c.session, "agent_thought_chunk", c.message, d.Thinking)}
	}
	return nil
}

// calls are the calls of tools in a message. Its text has been streamed.
func (c *claude) calls(message json.RawMessage) (out []Message) {
	for _, b := range claudeBlocks(message) {
		if b.Type == "tool_use" {
			call := claudeCall(b.ID, b.Name, b.Input)
			call["status"] = "in_progress"
			out = append(out, update(c.session, "tool_call", call))
		}
	}
	return out
}

// claudeCall is a call of a tool of Claude Code in terms of ACP.
func claudeCall(id, name string, input json.RawMessage) object {
	kinds := map[string]string{"Bash": "execute", "Read": "read", "Edit": "edit", "MultiEdit": "edit", "Write": "edit",
		"NotebookEdit": "edit", "Glob": "search", "Grep": "search", "WebFetch": "fetch"}
	return object{"toolCallId": id, "title": name, "kind": cmp.Or(kinds[name], "other"), "rawInput": input}
}

func (c *claude) results(message json.RawMessage) (out []Message) {
	for _, b := range claudeBlocks(message) {
		if b.Type == "tool_result" {
			out = append(out, result(c.session, b.ToolUseID, b.IsError, blockText(b.Content)))
		}
	}
	return out
}

// claudeBlocks returns the blocks of a message; one with a text has none.
func claudeBlocks(message json.RawMessage) []agent.Block {
	var m struct {
		Content []agent.Block `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil {
		return nil
	}
	return m.Content
}

// blockText is the text of a tool result, a string or blocks.
func blockText(content json.RawMessage) string {
	var parts []block
	if json.Unmarshal(content, &parts) != nil {
		return text(content)
	}
	var all []string
	for _, p := range parts {
		all = append(all, cmp.Or(p.Text, "["+p.Type+"]"))
	}
	return strings.Join(all, "\n")
}

// answered takes the answer to a control request of ours.
func (c *claude) answered(l claudeLine) []Message {
	p, ok := c.asked[l.Response.RequestID]
	if !ok {
		return nil
	}
	delete(c.asked, l.Response.RequestID)
	if l.Response.Subtype != "success" {
		return []Message{refuse(p.id, codeInternal, "%s", l.Response.Error)}
	}
	if !p.opening {
		return []Message{answer(p.id, object{})}
	}
	for _, m := range l.Response.Response.Models {
		c.models = append(c.models, object{"modelId": m.Value, "name": m.Name})
	}
	return []Message{initialized(p.id)}
}

// asks passes on a permission request, and refuses other requests of the program.
func (c *claude) asks(l claudeLine) (s Step) {
	if l.Request.Subtype != "can_use_tool" {
		s.Program = append(s.Program, object{"type": "control_response", "response": object{"subtype": "error",
			"request_id": l.RequestID, "error": l.Request.Subtype + " is not supported"}})
		return s
	}
	id := c.ids.next()
	c.questions[string(id)] = question{request: l.RequestID, input: l.Request.Input}
	call := claudeCall(l.Request.Call, l.Request.Tool, l.Request.Input)
	s.Client = append(s.Client, permission(id, c.session, call))
	return s
}

// ended answers the prompt.
func (c *claude) ended(l claudeLine) []Message {
	if c.prompt == nil { // the program has begun the turn
		return nil
	}
	id := c.prompt
	c.prompt = nil
	spent := update(c.session, "usage_update", object{
		"used": l.Usage.Input + l.Usage.CacheRead + l.Usage.CacheWrite + l.Usage.Output,
		"cost": object{"amount": l.CostUSD, "currency": "USD"}})
	var reason string
	switch {
	case c.cancelled:
		reason = "cancelled"
	case c.signIn != "":
		return []Message{refuse(id, codeAuth, "%s", c.signIn)}
	case l.Subtype == "error_max_turns":
		reason = "max_turn_requests"
	case l.IsError || l.Subtype != "success":
		return []Message{spent, refuse(id, codeInternal, "%s", cmp.Or(l.Result, strings.Join(l.Errors, "; "), l.Subtype))}
	case l.StopReason == "max_tokens" || l.StopReason == "refusal":
		reason = l.StopReason
	default:
		reason = "end_turn"
	}
	u := l.Usage
	return []Message{spent, prompted(id, reason, u.Input, u.Output, u.CacheRead, u.CacheWrite)}
}
