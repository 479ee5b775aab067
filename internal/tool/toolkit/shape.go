package toolkit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// shape describes a type of input: its schema, and the part of it for models as JSON.
type shape struct {
	schema   *jsonschema.Schema
	unlisted []string
	text     json.RawMessage
}

// shapes has the shape of each type of input that was needed: a schema takes up
// to 80 µs to derive, and every agent has some thirty tools.
//
//rules:constant a memoised function
var shapes sync.Map

func shapeOf[In any]() *shape {
	t := reflect.TypeFor[In]()
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s, err := derive(t)
	if err != nil {
		panic(fmt.Sprintf("toolkit: input %s: %v", t, err))
	}
	shapes.Store(t, s)
	return s
}

// derive makes the schema of a struct. Names, types and descriptions come from
// the tags json and jsonschema; a field without omitempty is required. The tag
// input has the rest, as name=value with the names of JSON Schema (minimum,
// maximum, minItems, maxItems, default; enum with | between its values), and two
// words: with filled the text must not be blank, which the schema does not say; with unlisted the
// schema omits the field, which is read nevertheless: a name of another dialect.
func derive(t reflect.Type) (*shape, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
	}})
	if err != nil {
		return nil, err
	}
	if err := amend(s, t); err != nil {
		return nil, err
	}
	made := &shape{schema: s}
	for name, f := range fields(t) {
		if f.Tag.Get("input") == "unlisted" {
			made.unlisted = append(made.unlisted, name)
		}
	}
	made.text, err = made.encode(nil)
	return made, err
}

// listed is the schema for models, as change leaves it.
func (s *shape) listed(change func(listed, all *jsonschema.Schema)) json.RawMessage {
	if change == nil {
		return s.text
	}
	text, err := s.encode(change)
	if err != nil {
		panic(fmt.Sprintf("toolkit: %v", err)) // which the unchanged schema was encoded without
	}
	return text
}

func (s *shape) encode(change func(listed, all *jsonschema.Schema)) (json.RawMessage, error) {
	listed := *s.schema
	listed.Properties = map[string]*jsonschema.Schema{}
	for name, p := range s.schema.Properties {
		if !slices.Contains(s.unlisted, name) {
			one := *p
			listed.Properties[name] = &one
		}
	}
	if change != nil {
		change(&listed, s.schema)
	}
	listed.PropertyOrder = slices.DeleteFunc(slices.Clone(listed.PropertyOrder), func(name string) bool {
		return listed.Properties[name] == nil
	})
	return json.Marshal(&listed)
}

// amend puts into a schema what the tags input say. It takes null out, which is
// no value of any field.
func amend(s *jsonschema.Schema, t reflect.Type) error {
	if len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1], nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return amend(s, t.Elem())
	case reflect.Slice:
		return amend(s.Items, t.Elem())
	case reflect.Map:
		if t.Elem() == reflect.TypeFor[json.RawMessage]() {
			s.AdditionalProperties = nil
		}
	case reflect.Struct:
		if s.Properties == nil {
			s.Properties = map[string]*jsonschema.Schema{} // some providers want it
		}
		for name, f := range fields(t) {
			p := s.Properties[name]
			if err := amend(p, f.Type); err != nil {
				return err
			}
			if err := rules(p, f.Tag.Get("input")); err != nil {
				return fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
	}
	return nil
}

// rules puts one tag into the schema of its field.
func rules(s *jsonschema.Schema, tag string) error {
	if tag == "" {
		return nil
	}
	for rule := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(rule, "=")
		number, err := strconv.Atoi(value)
		bound := float64(number)
		switch key {
		case "filled", "unlisted", "default", "enum":
			err = nil
		}
		switch key {
		case "filled", "unlisted": // looked at by others
		case "minimum":
			s.Minimum = &bound
		case "maximum":
			s.Maximum = &bound
		case "minItems":
			s.MinItems = &number
		case "maxItems":
			s.MaxItems = &number
		case "default":
			if s.Type == "string" {
				value = strconv.Quote(value)
			}
			s.Default = json.RawMessage(value)
		case "enum":
			for word := range strings.SplitSeq(value, "|") {
				s.Enum = append(s.Enum, word)
			}
		default:
			return fmt.Errorf("no rule of input is called %q", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fields are the fields of a struct that can be given, by their names in JSON.
func fields(t reflect.Type) map[string]reflect.StructField {
	out := make(map[string]reflect.StructField, t.NumField())
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = f
		}
	}
	return out
}
