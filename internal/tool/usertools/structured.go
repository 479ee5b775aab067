package usertools

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/drover-dev/drover/agent"
)

// StructuredName is the name of the tool by which a model gives its answer as a value.
const StructuredName = "StructuredOutput"

// maxSchemaBytes is how long a schema may be: it goes with every request.
const maxSchemaBytes = 256 << 10

//go:embed structured.md
var structuredPrompt string

// Schema is a JSON schema of objects.
type Schema struct {
	raw      json.RawMessage
	resolved *jsonschema.Resolved
}

// ParseSchema reads a JSON schema. It refuses a schema that values cannot be checked against,
// and one which no provider takes as the input of a tool.
func ParseSchema(raw []byte) (*Schema, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("the JSON schema has %d bytes and may have %d", len(raw), maxSchemaBytes)
	}
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return nil, fmt.Errorf("the JSON schema is not valid JSON: %w", err)
	}
	if top, ok := root.(map[string]any); !ok || top["type"] != "object" {
		return nil, errors.New(`the JSON schema must describe an object ("type": "object"): put what you want into a property`)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("read the JSON schema: %w", err)
	}
	all, done := references{}, map[string]bool{}
	if err := all.collect(root, "#"); err != nil {
		return nil, err
	}
	for at := range all {
		if err := all.endless(at, done, map[string]bool{}); err != nil {
			return nil, err
		}
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("read the JSON schema: %w", err)
	}
	return &Schema{raw: slices.Clone(raw), resolved: resolved}, nil
}

// Check reports why a value is not one of the schema.
func (s *Schema) Check(value json.RawMessage) error {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return fmt.Errorf("the value is not valid JSON: %w", err)
	}
	return s.resolved.Validate(v)
}

// references are the places in a schema that are checked against the same value as the
// place that leads to them, by JSON pointers.
type references map[string][]string

// collect adds the references of a place in the schema and of the places below it.
func (r references) collect(node any, at string) error {
	switch node := node.(type) {
	case []any:
		for i, item := range node {
			below := at + "/" + strconv.Itoa(i)
			r[at] = append(r[at], below)
			if err := r.collect(item, below); err != nil {
				return err
			}
		}
	case map[string]any:
		r[at] = nil
		for key, value := range node {
			below := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			switch key {
			case "default", "const", "enum", "examples": // values, no schemas
				continue
			case "$ref":
				if to, ok := value.(string); ok {
					if plain, err := url.PathUnescape(to); err == nil {
						to = plain
					}
					r[at] = append(r[at], to) // where there is nothing, no schema is resolved
				}
			case "$dynamicRef", "$recursiveRef", "$id", "$anchor":
				if _, ok := value.(string); ok {
					return fmt.Errorf("the JSON schema has %s at %.80q, which is not supported: refer by $ref and #/$defs", key, at)
				}
			case "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
				r[at] = append(r[at], below)
			case "dependentSchemas", "dependencies":
				named, _ := value.(map[string]any)
				for name := range named {
					r[at] = append(r[at], below+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
				}
			}
			if err := r.collect(value, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// endless refuses a schema that leads back to a place for the same value: to check a value
// against it would never end. done holds the places that have an end, and open those that
// have led here.
func (r references) endless(at string, done, open map[string]bool) error {
	switch {
	case done[at]:
		return nil
	case open[at]:
		return fmt.Errorf("the JSON schema refers to itself without end at %.80q", at)
	}
	open[at] = true
	for _, to := range r[at] {
		if err := r.endless(to, done, open); err != nil {
			return err
		}
	}
	delete(open, at)
	done[at] = true
	return nil
}

// structured is the tool StructuredOutput.
type structured struct {
	schema *Schema
	take   func(context.Context, agent.Call) agent.Output
}

// NewStructured makes the tool StructuredOutput, whose input is a value of the schema.
// take decides about each call.
func NewStructured(s *Schema, take func(context.Context, agent.Call) agent.Output) agent.Tool {
	return &structured{schema: s, take: take}
}

func (t *structured) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: StructuredName, Description: string(bytes.TrimSpace([]byte(structuredPrompt))),
		InputSchema: t.schema.raw}
}

func (t *structured) ReadOnly() bool { return true }

func (t *structured) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	return t.take(ctx, c), nil
}
