package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// field is a property of the schema of a form, which is flat.
type field struct {
	Type      string          `json:"type"`
	Enum      []string        `json:"enum"`
	OneOf     []choiceOf      `json:"oneOf"`
	AnyOf     []choiceOf      `json:"anyOf"`
	MinLength *int            `json:"minLength"`
	MaxLength *int            `json:"maxLength"`
	Minimum   *float64        `json:"minimum"`
	Maximum   *float64        `json:"maximum"`
	MinItems  *int            `json:"minItems"`
	MaxItems  *int            `json:"maxItems"`
	Items     json.RawMessage `json:"items"`
}

type choiceOf struct {
	Const string `json:"const"`
}

// ChoiceInput is the input of a question of the kind [Choice].
type ChoiceInput struct {
	Questions []ChoicePart `json:"questions"`
}

// ChoicePart is one of the questions that a [ChoiceInput] asks.
type ChoicePart struct {
	Question    string         `json:"question"`
	Header      string         `json:"header"` // a short title
	Options     []ChoiceOption `json:"options"`
	MultiSelect bool           `json:"multiSelect"` // several options may be chosen
}

// ChoiceOption is an answer that a [ChoicePart] offers.
type ChoiceOption struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

// FormInput is the input of a question of the kind [Form].
type FormInput struct {
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema"`           // of the values, a JSON schema of an object
	Server  string          `json:"server,omitempty"` // the MCP server that asks
	Visit   *FormVisit      `json:"visit,omitempty"`  // an address to visit; nil: the form asks for values
}

// FormVisit is an address that an MCP server asks the user to visit. The message of the form names it.
type FormVisit struct {
	Message string `json:"message"` // of the server alone
	URL     string `json:"url"`
	ID      string `json:"elicitation_id,omitempty"`
}

// checkForm refuses values that do not answer a question of kind [Form] with this
// input. They are a JSON object with the required fields, of the
// types, lengths and choices in the schema. Unknown words of the schema and a
// schema that was shortened forbid nothing.
func checkForm(input, values json.RawMessage) error {
	var got map[string]json.RawMessage
	if err := json.Unmarshal(values, &got); err != nil || got == nil {
		return errors.New("it is no JSON object")
	}
	var q struct {
		Schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		} `json:"schema"`
	}
	if json.Unmarshal(input, &q) != nil {
		return nil
	}
	for _, name := range q.Schema.Required {
		var f struct {
			Default any `json:"default"` // whoever asks fills it in
		}
		_ = json.Unmarshal(q.Schema.Properties[name], &f) // an unreadable property has no default
		if _, ok := got[name]; !ok && f.Default == nil {
			return fmt.Errorf("%q is missing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		raw, known := q.Schema.Properties[name]
		var f field
		if !known || json.Unmarshal(raw, &f) != nil {
			continue
		}
		if why := f.wrong(got[name]); why != "" {
			return fmt.Errorf("%q %s", name, why)
		}
	}
	return nil
}

// wrong says how a value violates the field; empty: it fits.
func (f field) wrong(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "cannot be read"
	}
	switch f.Type {
	case "string":
		s, ok := v.(string)
		return f.wrongText(s, ok)
	case "number", "integer":
		n, ok := v.(float64)
		return f.wrongNumber(n, ok)
	case "boolean":
		if _, ok := v.(bool); !ok {
			return "must be true or false"
		}
	case "array":
		list, ok := v.([]any)
		return f.wrongList(list, ok)
	}
	return ""
}

func (f field) wrongText(s string, ok bool) string {
	n := utf8.RuneCountInString(s)
	switch may := f.may(); {
	case !ok:
		return "must be a text"
	case may != nil && !slices.Contains(may, s):
		return fmt.Sprintf("must be one of %s", strings.Join(may, ", "))
	case f.MinLength != nil && n < *f.MinLength:
		return fmt.Sprintf("must have at least %d characters", *f.MinLength)
	case f.MaxLength != nil && n > *f.MaxLength:
		return fmt.Sprintf("must have at most %d characters", *f.MaxLength)
	}
	return ""
}

func (f field) wrongNumber(n float64, ok bool) string {
	switch {
	case !ok:
		return "must be a number"
	case f.Type == "integer" && n != math.Trunc(n):
		return "must be a whole number"
	case f.Minimum != nil && n < *f.Minimum:
		return fmt.Sprintf("must be at least %v", *f.Minimum)
	case f.Maximum != nil && n > *f.Maximum:
		return fmt.Sprintf("must be at most %v", *f.Maximum)
	}
	return ""
}

func (f field) wrongList(list []any, ok bool) string {
	switch {
	case !ok:
		return "must be a list"
	case f.MinItems != nil && len(list) < *f.MinItems:
		return fmt.Sprintf("must have at least %d entries", *f.MinItems)
	case f.MaxItems != nil && len(list) > *f.MaxItems:
		return fmt.Sprintf("must have at most %d entries", *f.MaxItems)
	}
	var item field
	if len(bytes.TrimSpace(f.Items)) == 0 || json.Unmarshal(f.Items, &item) != nil {
		return ""
	}
	may := item.may()
	for _, v := range list {
		if s, ok := v.(string); may != nil && (!ok || !slices.Contains(may, s)) {
			return fmt.Sprintf("may hold only %s", strings.Join(may, ", "))
		}
	}
	return ""
}

// may are the values of a choice; nil: any.
func (f field) may() []string {
	if f.Enum != nil {
		return f.Enum
	}
	var all []string
	for _, c := range slices.Concat(f.OneOf, f.AnyOf) {
		if c.Const == "" {
			return nil
		}
		all = append(all, c.Const)
	}
	return all
}
