package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// The responses API: platform.openai.com/docs/api-reference/responses. Nothing
// is kept at the server: each request carries the whole conversation.

func responsesForm() form {
	return form{
		path: "/responses", list: "input", head: responsesHead, items: responsesItems,
		decode: func(model string, on func(agent.Part)) modelwire.Decoder {
			return &responses{answer: answer{on: on}, model: model, items: map[int]*block{}}
		},
	}
}

func responsesHead(r *agent.Request, model string, maxTokens int, _, _ bool) any {
	type tool struct {
		Type string `json:"type"`
		function
		Strict bool `json:"strict"` // true would refuse schemas with optional fields
	}
	head := struct {
		Model     string     `json:"model"`
		Stream    bool       `json:"stream"`
		Store     bool       `json:"store"`
		MaxTokens int        `json:"max_output_tokens,omitempty"`
		System    string     `json:"instructions,omitempty"`
		Reasoning *reasoning `json:"reasoning,omitempty"`
		Tools     []tool     `json:"tools,omitempty"`
	}{Model: model, Stream: true, MaxTokens: maxTokens, System: r.System}
	if e := effort(r.Thinking); e != "" {
		head.Reasoning = &reasoning{e}
	}
	for _, t := range r.Tools {
		head.Tools = append(head.Tools, tool{Type: "function", function: function{t.Name, t.Description, t.InputSchema}})
	}
	return head
}

// responsesItems returns the items for one of our messages.
func responsesItems(blocks []agent.Block, role agent.Role) (out []any) {
	type part struct {
		Type  string `json:"type"`
		Text  string `json:"text,omitempty"`
		Image string `json:"image_url,omitempty"`
	}
	type message struct {
		Type    string `json:"type"`
		Role    string `json:"role"`
		Content []part `json:"content"`
	}
	type call struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type output struct {
		Type   string `json:"type"`
		CallID string `json:"call_id"`
		Output string `json:"output"`
	}
	p := sortOut(blocks)
	for _, r := range p.results {
		out = append(out, output{"function_call_output", r.id, r.text})
	}
	kind := "input_text"
	if role == agent.Assistant {
		kind = "output_text"
	}
	m := message{Type: "message", Role: string(role)}
	for _, text := range p.texts {
		m.Content = append(m.Content, part{Type: kind, Text: text})
	}
	for _, image := range p.images {
		m.Content = append(m.Content, part{Type: "input_image", Image: image})
	}
	if len(m.Content) > 0 {
		out = append(out, m)
	}
	for _, b := range p.calls {
		out = append(out, call{"function_call", callID(b.ID), b.Name, arguments(b)})
	}
	return out
}

// responses puts an answer together. Each item of the output becomes one block,
// which is whole when its item is done.
type responses struct {
	answer
	model string
	items map[int]*block // that grow, by their place in the output; nil: done
	stop  string         // why it stopped; empty: it did not yet
}

// progress holds the fields of all events that matter.
type progress struct {
	Type        string          `json:"type"`
	OutputIndex int             `json:"output_index"`
	Delta       json.RawMessage `json:"delta"`
	Item        *item           `json:"item"`
	Response    *response       `json:"response"`
	Object      string          `json:"object"` // response: the whole answer, of a server that does not stream
}

type response struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Status  string          `json:"status"`
	Output  []item          `json:"output"`
	Error   json.RawMessage `json:"error"`
	Details struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	} `json:"usage"`
}

type item struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments loose  `json:"arguments"`
	Content   []text `json:"content"`
	Summary   []text `json:"summary"`
}

type text struct {
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// Take implements [modelwire.Decoder].
func (r *responses) Take(e *modelwire.Event) (modelwire.State, error) {
	if data := bytes.TrimSpace(e.Data); string(data) == "[DONE]" {
		return modelwire.Done, nil
	}
	var in progress
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return modelwire.More, &modelwire.BadFormat{Text: "an event is no JSON of this API: " + err.Error()}
	}
	if in.Type == "" {
		in.Type = string(e.Name)
	}
	switch in.Type {
	case "error":
		return modelwire.More, eventError(e.Data)
	case "response.output_item.added":
		return modelwire.More, r.begin(in.OutputIndex, in.Item)
	case "response.output_item.done":
		return modelwire.More, r.done(in.OutputIndex, in.Item)
	case "response.reasoning_summary_part.added":
		if b := r.items[in.OutputIndex]; b != nil && b.text.Len() > 0 {
			r.grow(b, "\n\n")
		}
		return modelwire.More, nil
	}
	if kind, ok := kindOf(in.Type); ok {
		r.refused = r.refused || in.Type == "response.refusal.delta"
		return modelwire.More, r.more(in.OutputIndex, kind, in.Delta)
	}
	if in.Object == "response" {
		if err := r.take(&in, e.Data); err != nil {
			return modelwire.More, err
		}
	}
	if in.Response == nil {
		return modelwire.More, nil // additions of later versions of the API, or repetitions of the deltas
	}
	r.begun = true
	r.named(in.Response.ID, in.Response.Model)
	if u := in.Response.Usage; u != nil {
		r.reply.Usage = count(u.Input, u.Details.Cached, u.Output)
		r.counted = r.reply.Usage != agent.Usage{}
	}
	return r.end(&in)
}

// take reads an answer that came at once, and makes it the last event of one.
func (r *responses) take(in *progress, data []byte) error {
	in.Response = &response{}
	if err := json.Unmarshal(data, in.Response); err != nil {
		return &modelwire.BadFormat{Text: "a response that cannot be read: " + err.Error()}
	}
	for i := range in.Response.Output {
		if err := r.done(i, &in.Response.Output[i]); err != nil {
			return err
		}
	}
	in.Type = "response." + in.Response.Status
	return nil
}

// kindOf returns the kind of block that an event adds to.
func kindOf(event string) (agent.PartKind, bool) {
	switch event {
	case "response.output_text.delta", "response.refusal.delta":
		return agent.TextPart, true
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return agent.ThinkingPart, true
	case "response.function_call_arguments.delta":
		return agent.InputPart, true
	}
	return 0, false
}

// eventError reads an error event, whose fields are at the level of its type.
func eventError(data []byte) error {
	if r, ok := modelwire.ParseRefusal(data); ok {
		if r.Type == "error" {
			r.Type = "server_error"
		}
		return r
	}
	return &modelwire.BadFormat{Text: "an error without words"}
}

// end handles the events about the whole response.
func (r *responses) end(in *progress) (modelwire.State, error) {
	switch in.Type {
	case "response.completed":
		// Items without an end of their own end here: the response is complete.
		for _, i := range slices.Sorted(maps.Keys(r.items)) {
			r.settle(i)
		}
		r.stop = r.ended()
	case "response.incomplete":
		switch in.Response.Details.Reason {
		case "max_output_tokens":
			r.stop = "max_tokens"
		case "content_filter":
			r.stop = "refusal"
		default:
			return modelwire.More, &modelwire.Useless{Text: fmt.Sprintf("it ended for a reason that is not known: %.40q",
				in.Response.Details.Reason)}
		}
		for _, i := range slices.Sorted(maps.Keys(r.items)) {
			r.settle(i) // half a call too: the stop reason says that it is not to be run
		}
	case "response.failed", "response.cancelled":
		if told, ok := modelwire.ParseRefusal([]byte(`{"error":` + string(in.Response.Error) + `}`)); ok &&
			len(in.Response.Error) > 0 {
			return modelwire.More, told
		}
		return modelwire.More, &modelwire.Refusal{Type: "server_error", Message: "the answer ended with " + in.Type}
	default:
		return modelwire.More, nil
	}
	return modelwire.Done, nil
}

func (r *responses) begin(at int, in *item) error {
	if _, known := r.items[at]; known || in == nil {
		return &modelwire.BadFormat{Text: fmt.Sprintf("item %d begins out of order", at)}
	}
	r.begun = true
	switch in.Type {
	case "message":
		r.items[at] = r.open(agent.TextPart)
	case "reasoning":
		r.items[at] = r.open(agent.ThinkingPart)
	case "function_call":
		b := r.open(agent.InputPart)
		b.id, b.name = in.CallID, in.Name
		r.items[at] = b
		r.grow(b, "") // hands its name on
	default:
		r.items[at] = nil // an item of another type, which we did not ask for
	}
	return nil
}

func (r *responses) more(at int, kind agent.PartKind, raw json.RawMessage) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return &modelwire.BadFormat{Text: fmt.Sprintf("a part of item %d is no text", at)}
	}
	b, known := r.items[at]
	if !known || b != nil && b.kind != kind {
		return &modelwire.BadFormat{Text: fmt.Sprintf("a part of item %d, which is not open for it", at)}
	}
	if b != nil {
		r.grow(b, text)
	}
	return nil
}

// done ends an item. Its own text counts only without earlier parts: some servers
// send none.
func (r *responses) done(at int, in *item) error {
	if in == nil {
		return &modelwire.BadFormat{Text: fmt.Sprintf("item %d ends without itself", at)}
	}
	if _, known := r.items[at]; !known {
		if err := r.begin(at, in); err != nil {
			return err
		}
	}
	b := r.items[at]
	if b == nil {
		return nil
	}
	if b.text.Len() == 0 {
		r.grow(b, r.held(in))
	}
	r.settle(at)
	return nil
}

// held returns the text of a whole item.
func (r *responses) held(in *item) string {
	if in.Type == "function_call" {
		return string(in.Arguments)
	}
	var out strings.Builder
	for _, t := range slices.Concat(in.Summary, in.Content) {
		r.refused = r.refused || t.Refusal != ""
		out.WriteString(t.Text + t.Refusal)
	}
	return out.String()
}

func (r *responses) settle(at int) {
	if b := r.items[at]; b != nil {
		r.close(b)
		r.items[at] = nil
	}
}

// Finish implements [modelwire.Decoder].
func (r *responses) Finish() (*agent.Reply, error) {
	if r.stop == "" {
		return nil, io.ErrUnexpectedEOF
	}
	r.reply.StopReason = r.stop
	return r.finish(r.model), nil
}
