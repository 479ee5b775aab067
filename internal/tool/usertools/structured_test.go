package usertools

import (
	"strings"
	"testing"
)

// A schema that cannot be checked against is refused with what is wrong with it.
func TestParseSchema(t *testing.T) {
	for schema, why := range map[string]string{
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`: "",
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/n~1x"}},"$defs":{"n/x":{"anyOf":[{"type":"null"},{"type":"object","properties":{"next":{"$ref":"#/$defs/n~1x"}}}]}}}`: "",
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"a":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/a"}}}`:                "",

		`{`:                "not valid JSON",
		`[]`:               "must describe an object",
		`{"type":"array"}`: "must describe an object",
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`:                            "read the JSON schema",
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/s"}}}`:                   "read the JSON schema",
		`{"type":"object","allOf":[{"$ref":"#"}]}`:                                                "without end",
		`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`:     "without end",
		`{"type":"object","$ref":"#/$defs/%61","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/%61"}]}}}`: "without end",
		`{"type":"object","dependentSchemas":{"a":{"$ref":"#"}}}`:                                 "without end",
		`{"type":"object","properties":{"a":{"pattern":"("}}}`:                                    "read the JSON schema",
		`{"type":"object","$dynamicRef":"#a"}`:                                                    "not supported",
		`{"type":"object","description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`:           "may have",
	} {
		s, err := ParseSchema([]byte(schema))
		switch {
		case why == "" && err != nil:
			t.Errorf("%.100s: %v", schema, err)
		case why != "" && (err == nil || !strings.Contains(err.Error(), why)):
			t.Errorf("%.100s: error %v, want %q", schema, err, why)
		case why == "" && s.Check([]byte(`{"a":1}`)) == nil:
			t.Errorf("%.100s takes a number", schema)
		}
	}
}

// No schema and no value ends the program.
func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"a":{"a":{}}}`)
	f.Add(`{"type":"object","allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$ref":"#"}}}`, `{}`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		if s, err := ParseSchema([]byte(schema)); err == nil {
			_ = s.Check([]byte(value))
		}
	})
}
