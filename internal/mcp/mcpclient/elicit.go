package mcpclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// codeOpenURL is the error of a call that can continue when the user has visited an address.
const codeOpenURL = -32042

// Elicitation is a question of a server, by elicitation/create. A request to visit an
// address is a form without fields: sending it back confirms the visit.
type Elicitation struct {
	Message string
	Schema  json.RawMessage // of the values, a JSON schema of an object
	URL     string          // to visit; empty: the server asks for values
	Said    string          // the message of the server alone, without our additions
	ID      string          // of a visit, by which the server reports its end; empty: none
	Task    string          // the task that asks; empty: none
}

// ReadElicitation reads the parameters of elicitation/create.
func ReadElicitation(params json.RawMessage) (Elicitation, error) {
	var p struct {
		Mode    string          `json:"mode"` // empty: form
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
		ID      string          `json:"elicitationId"`
		Meta    struct {
			Task struct {
				ID string `json:"taskId"`
			} `json:"io.modelcontextprotocol/related-task"`
		} `json:"_meta"`
	}
	bad := func(why string) (Elicitation, error) {
		return Elicitation{}, &RPCError{Code: CodeBadParams, Message: why}
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return bad("the parameters of elicitation/create cannot be read")
	}
	e := Elicitation{Message: p.Message, Said: p.Message, Schema: p.Schema, Task: p.Meta.Task.ID}
	switch cmp.Or(p.Mode, "form") {
	case "form":
		return e, nil
	case "url":
	default:
		return bad(fmt.Sprintf("elicitation mode %.40q is not supported (use form or url)", p.Mode))
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(p.URL) > 4096 ||
		strings.ContainsFunc(p.URL, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return bad("url is not an http or https address of at most 4096 bytes")
	}
	e.URL, e.ID = p.URL, p.ID
	e.Message = fmt.Sprintf("%s\nOpen this address of %s, and answer {} when you are done there: %s",
		p.Message, u.Host, p.URL)
	e.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
	return e, nil
}

// Result returns the answer for the server. Fields of an accepted form that have no value
// get the default of their schema.
func (e Elicitation) Result(action TaskAction, values json.RawMessage) map[string]any {
	res := map[string]any{"action": action}
	if action == FormAccepted && e.URL == "" {
		res["content"] = e.filled(values)
	}
	return res
}

func (e Elicitation) filled(values json.RawMessage) any {
	fields := map[string]json.RawMessage{}
	if len(values) > 0 && json.Unmarshal(values, &fields) != nil {
		return values // the server reports the mistake
	}
	var schema struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(e.Schema, &schema) // an invalid schema has no defaults
	for name, p := range schema.Properties {
		if _, given := fields[name]; !given && len(p.Default) > 0 && string(p.Default) != "null" {
			fields[name] = p.Default
		}
	}
	return fields
}

// Visits returns the addresses that the user must visit before a call is made again, if
// its error asks for that.
func Visits(err *RPCError) []Elicitation {
	var data struct {
		All []json.RawMessage `json:"elicitations"`
	}
	if err == nil || err.Code != codeOpenURL || json.Unmarshal(err.Data, &data) != nil || len(data.All) > inFlight {
		return nil
	}
	var out []Elicitation
	for _, raw := range data.All {
		e, bad := ReadElicitation(raw)
		if bad != nil || e.URL == "" {
			return nil
		}
		out = append(out, e)
	}
	return out
}
