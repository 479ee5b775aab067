// Package strict reads what a model wrote as the input of a tool.
//
// It accepts exactly what the tool's schema declares and answers everything
// else with one line that the model can mend its call by: the unknown key, the
// wrong type, the missing or empty field, the bound. It owns nothing and
// imports nothing of ours.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// MaxBytes is the size of the largest input that is read.
const MaxBytes = 10 << 20

// Decode reads raw, a JSON object, into a new T, a struct whose fields carry
// json names. Names are compared exactly, and none may come twice; null is no
// value of any field. A field tagged `strict:"required"` must be there;
// `strict:"filled"` must also not be the empty string. Errors are for the model.
func Decode[T any](raw json.RawMessage) (T, error) {
	var out, none T
	if len(raw) > MaxBytes {
		return none, fmt.Errorf("the input has %d bytes, more than the %d that are allowed", len(raw), MaxBytes)
	}
	target := reflect.ValueOf(&out).Elem()
	known := fields(target.Type())
	seen := make(map[string]bool, len(known))
	err := object(raw, func(key string, value json.RawMessage) error {
		f, ok := known[key]
		if !ok {
			return fmt.Errorf("unknown field %.60q; the fields are %s", key, names(known))
		}
		if seen[key] {
			return fmt.Errorf("field %q is given twice", key)
		}
		seen[key] = true
		return set(target.Field(f.index), key, value)
	})
	if err != nil {
		return none, err
	}
	for _, name := range sorted(known) {
		f := known[name]
		if f.required && !seen[name] {
			return none, fmt.Errorf("field %q is missing", name)
		}
		if f.filled && strings.TrimSpace(target.Field(f.index).String()) == "" {
			return none, fmt.Errorf("field %q is empty", name)
		}
	}
	return out, nil
}

// Within refuses a number outside lo…hi.
func Within(name string, n, lo, hi int) error {
	if n < lo || n > hi {
		return fmt.Errorf("field %q must be from %d to %d, not %d", name, lo, hi, n)
	}
	return nil
}

type field struct {
	index            int
	required, filled bool
}

func fields(t reflect.Type) map[string]field {
	out := make(map[string]field, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		rule := t.Field(i).Tag.Get("strict")
		out[name] = field{index: i, required: rule != "", filled: rule == "filled"}
	}
	return out
}

func sorted(known map[string]field) []string {
	out := make([]string, 0, len(known))
	for name := range known {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func names(known map[string]field) string { return strings.Join(sorted(known), ", ") }

var errNoObject = errors.New("the input is not a JSON object")

// object calls each for the members of a JSON object, in their order.
func object(raw json.RawMessage, each func(string, json.RawMessage) error) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return errNoObject
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errNoObject
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("the input is not valid JSON: %w", err)
		}
		key, ok := t.(string)
		if !ok {
			return errNoObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("the input is not valid JSON at field %.60q", key)
		}
		if err := each(key, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errors.New("the input is not valid JSON: it is cut off")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the input is not valid JSON: something follows the object")
	}
	return nil
}

func set(v reflect.Value, name string, value json.RawMessage) error {
	wrong := fmt.Errorf("field %q must be %s, not %s", name, want(v.Type()), got(value))
	if string(value) == "null" {
		return wrong
	}
	if err := json.Unmarshal(value, v.Addr().Interface()); err != nil {
		return wrong
	}
	return nil
}

func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return want(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
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
