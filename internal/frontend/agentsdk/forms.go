package agentsdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/task"
)

// elicitation is the request for the answer to a question of an MCP server.
type elicitation struct {
	Subtype string          `json:"subtype"`
	Server  string          `json:"mcp_server_name"`
	Message string          `json:"message"`
	Mode    string          `json:"mode"` // form or url
	URL     string          `json:"url,omitempty"`
	ID      string          `json:"elicitation_id,omitempty"`
	Schema  json.RawMessage `json:"requested_schema,omitempty"`
	Order   []string        `json:"property_order,omitempty"`
}

// fill asks the program for the answer to a question of an MCP server. A program without onElicitation declines.
func (c *Conn) fill(ctx context.Context, s Driven, q task.Question) task.Reply {
	q, ok := control.WholeQuestion(ctx, s.API, q)
	var in task.FormInput
	if !ok || json.Unmarshal(q.Input, &in) != nil {
		return task.Reply{Dismissed: true, Reason: "the question could not be shown completely"}
	}
	request := elicitation{Subtype: "elicitation", Server: cmp.Or(in.Server, q.Tool), Message: in.Message, Mode: "form"}
	if in.Visit != nil {
		request.Mode, request.Message, request.URL, request.ID = "url", in.Visit.Message, in.Visit.URL, in.Visit.ID
	} else {
		request.Schema, request.Order = in.Schema, properties(in.Schema)
	}
	raw, err := c.decision(ctx, s, request)
	if err != nil {
		return task.Reply{Dismissed: true, Reason: fmt.Sprintf("nobody answered: %v", err)}
	}
	var a struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(raw, &a) // an unreadable answer has no action
	switch a.Action {
	case "accept":
		if len(a.Content) == 0 || string(a.Content) == "null" {
			a.Content = json.RawMessage(`{}`)
		}
		return task.Reply{Allow: true, Input: a.Content}
	case "decline":
		return task.Reply{Reason: "the program that drives this session declined"}
	case "cancel":
		return task.Reply{Dismissed: true}
	}
	c.warning("the answer to a question of MCP server %s has the unknown action %s: use accept, decline or cancel",
		excerpt.Line(request.Server, 80), quoted(a.Action))
	return task.Reply{Dismissed: true}
}

// properties returns the names of the fields of a schema in written order.
func properties(schema json.RawMessage) []string {
	var s struct {
		Fields json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || len(s.Fields) == 0 {
		return nil
	}
	var names []string
	all, _ := jsonc.Members(s.Fields) // what is no object has no fields
	for _, m := range all {
		names = append(names, m.Key)
	}
	return names
}

// chosen is the reply to questions of the model. The program answers them in the changed input of the call: one
// answer for each question, by its text.
func chosen(input, changed json.RawMessage) task.Reply {
	var in task.ChoiceInput
	var out struct {
		Answers  map[string]json.RawMessage `json:"answers"`
		Response string                     `json:"response"` // in words, to all of them
	}
	if json.Unmarshal(input, &in) != nil || json.Unmarshal(changed, &out) != nil {
		return task.Reply{Reason: "the program's answer cannot be read"}
	}
	var lines []string
	for _, q := range in.Questions {
		answer, ok := out.Answers[q.Question]
		if !ok {
			continue
		}
		text := words(answer)
		if len(in.Questions) > 1 {
			text = q.Question + " " + text
		}
		lines = append(lines, text)
	}
	if out.Response != "" {
		lines = append(lines, out.Response)
	}
	text := strings.Join(lines, "\n")
	if strings.TrimSpace(text) == "" {
		return task.Reply{Reason: "the program allowed the call and gave no answers"}
	}
	return task.Reply{Allow: true, Text: text}
}

// words is an answer, a text or a list of texts, as one text.
func words(answer json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(answer, &text) == nil:
		return text
	case json.Unmarshal(answer, &list) == nil:
		return strings.Join(list, ", ")
	}
	return string(answer)
}
