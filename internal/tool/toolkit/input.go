package toolkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// MaxBytes is the size of the largest input that is read.
const MaxBytes = 10 << 20

// Decode reads raw, a JSON object, into a new In, as the schema of In says. It
// is stricter than [json.Unmarshal]: names are compared exactly and none may
// come twice; no field takes null. Only an optional field with an enum
// may be the empty string, which is as if it were not there. Errors are for the
// model: one short line.
func Decode[In any](raw json.RawMessage) (In, error) {
	var out, none In
	if len(raw) > MaxBytes {
		return none, fmt.Errorf("the input has %d bytes, more than the %d that are allowed", len(raw), MaxBytes)
	}
	if err := readObject(reflect.ValueOf(&out).Elem(), shapeOf[In]().schema, raw); err != nil {
		return none, err
	}
	return out, nil
}

func readObject(v reflect.Value, s *jsonschema.Schema, raw json.RawMessage) error {
	known := fields(v.Type())
	names := slices.Sorted(maps.Keys(known))
	seen := make(map[string]bool, len(known))
	all, err := members(raw)
	if err != nil {
		return err
	}
	for _, m := range all {
		f, ok := known[m.Key]
		if !ok {
			return fmt.Errorf("unknown field %.60q; the fields are %s", m.Key, strings.Join(names, ", "))
		}
		if seen[m.Key] {
			return fmt.Errorf("field %q is given twice", m.Key)
		}
		seen[m.Key] = true
		optional := !slices.Contains(s.Required, m.Key)
		what := fmt.Sprintf("field %q", m.Key)
		if err := read(v.FieldByIndex(f.Index), s.Properties[m.Key], m.Key, what, m.Value, optional); err != nil {
			return err
		}
	}
	for _, name := range names {
		if !seen[name] && slices.Contains(s.Required, name) {
			return fmt.Errorf("field %q is missing", name)
		}
		f := known[name]
		if f.Tag.Get("input") == "filled" && strings.TrimSpace(v.FieldByIndex(f.Index).String()) == "" {
			return fmt.Errorf("field %q is empty", name)
		}
	}
	return nil
}

// read reads one value, which errors call by the given phrase.
func read(v reflect.Value, s *jsonschema.Schema, name, what string, raw json.RawMessage, optional bool) error {
	if v.Kind() == reflect.Pointer && string(raw) != "null" {
		v.Set(reflect.New(v.Type().Elem()))
		return read(v.Elem(), s, name, what, raw, optional)
	}
	wrong := fmt.Errorf("%s must be %s, not %s", what, want(s), got(raw))
	switch {
	case string(raw) == "null":
		return wrong
	case v.Kind() == reflect.Struct:
		if err := readObject(v, s, raw); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	case s.Type == "array":
		return readList(v, s, name, wrong, raw)
	}
	if json.Unmarshal(raw, v.Addr().Interface()) != nil {
		return wrong
	}
	return within(v, s, what, optional)
}

func readList(v reflect.Value, s *jsonschema.Schema, name string, wrong error, raw json.RawMessage) error {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return wrong
	}
	if low, high := s.MinItems, s.MaxItems; low != nil && high != nil && (len(items) < *low || len(items) > *high) {
		return fmt.Errorf("field %q must have %d to %d items, not %d", name, *low, *high, len(items))
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	one := strings.TrimSuffix(name, "s")
	for i, item := range items {
		if err := read(v.Index(i), s.Items, one, fmt.Sprintf("%s %d", one, i+1), item, false); err != nil {
			return err
		}
	}
	return nil
}

// within holds a word against its enum and a number against its bounds.
func within(v reflect.Value, s *jsonschema.Schema, what string, optional bool) error {
	if s.Enum != nil && !slices.Contains(s.Enum, any(v.String())) && (!optional || v.String() != "") {
		words := make([]string, len(s.Enum))
		for i, word := range s.Enum {
			words[i] = fmt.Sprint(word)
		}
		text := words[len(words)-1]
		if rest := words[:len(words)-1]; len(rest) > 0 {
			text = strings.Join(rest, ", ") + " or " + text
		}
		return fmt.Errorf("%s must be %s, not %.40q", what, text, v.String())
	}
	low, high := s.Minimum, s.Maximum
	switch {
	case low == nil && high == nil:
		return nil
	case (low == nil || float64(v.Int()) >= *low) && (high == nil || float64(v.Int()) <= *high):
		return nil
	case high == nil:
		return fmt.Errorf("%s must be from %.0f on, not %d", what, *low, v.Int())
	case low == nil:
		return fmt.Errorf("%s must be at most %.0f, not %d", what, *high, v.Int())
	}
	return fmt.Errorf("%s must be from %.0f to %.0f, not %d", what, *low, *high, v.Int())
}

var errNoObject = errors.New("the input is not a JSON object")

// members are the fields of an input, in their order.
func members(raw json.RawMessage) (jsonc.Object, error) {
	all, err := jsonc.Members(raw)
	switch {
	case len(bytes.TrimSpace(raw)) == 0, errors.Is(err, jsonc.ErrNotObject):
		return nil, errNoObject
	case err != nil:
		return nil, fmt.Errorf("the input is not valid JSON: %w", err)
	}
	return all, nil
}

func want(s *jsonschema.Schema) string {
	switch s.Type {
	case "string":
		return "a string"
	case "boolean":
		return "true or false"
	case "integer":
		return "a whole number"
	case "array":
		return "a list"
	}
	if more := s.AdditionalProperties; more != nil && more.Type == "string" {
		return "an object of strings"
	}
	return "an object"
}

func got(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return fmt.Sprintf("%.20s", value)
}
