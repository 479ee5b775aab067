package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// What a tag declares can be read, and its default can be put.
func TestDeclared(t *testing.T) {
	keys := []string{"default", "clamp", "possible", "words", "duration", "age", "off", "env", "own", "see"}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			for part := range strings.SplitSeq(f.Tag.Get("set"), ",") {
				if key, _, _ := strings.Cut(part, "="); part != "" && !slices.Contains(keys, key) {
					t.Errorf("%s.%s: no rule is called %q", typ.Name(), f.Name, key)
				}
			}
			if (f.Type == reflect.TypeFor[time.Duration]()) != RuleOf(f).Time {
				t.Errorf("%s.%s: a duration, or a rule of one, without the other", typ.Name(), f.Name)
			}
			if f.Type.Kind() == reflect.Struct {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Options]())
	for _, d := range Declared() {
		var o Options
		if b := d.Rule.Clamp; d.About == "" || b != nil && !(b.Low < b.High) {
			t.Errorf("%s: about %q, bounds %v", d.Name, d.About, b)
		}
		if d.Rule.Default != "" && !d.Put(&o, d.Rule.Default) {
			t.Errorf("%s: the default %q is no %s", d.Name, d.Rule.Default, d.Of(&o).Kind())
		}
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// page replaces what stands between two marks of docs/settings.md.
func page(t *testing.T, doc []byte, name, text string) []byte {
	t.Helper()
	begin, end := []byte("<!-- "+name+", from the code -->\n"), []byte("<!-- end of "+name+" -->\n")
	i, j := bytes.Index(doc, begin), bytes.Index(doc, end)
	if i < 0 || j < i {
		t.Fatalf("docs/settings.md has no place for %s", name)
	}
	return slices.Concat(doc[:i+len(begin)], []byte(text), doc[j:])
}

// tables are the settings and the variables as docs/settings.md shows them.
func tables() (settings, variables string) {
	var set, env strings.Builder
	set.WriteString("| setting | default | meaning |\n|---|---|---|\n")
	env.WriteString("| variable | also read, if the first is not set | sets |\n|---|---|---|\n")
	for _, d := range Declared() {
		r, about := d.Rule, d.About
		usual := r.Default
		if _, err := json.Marshal(json.RawMessage(usual)); err != nil && usual != "" {
			usual = "`" + usual + "`"
		}
		switch {
		case r.Words != nil:
			about += " (`" + strings.Join(r.Words, "`, `") + "`)"
		case r.Clamp != nil:
			about += " (" + number(r.Clamp.Low) + " to " + number(r.Clamp.High) + ")"
		}
		if r.See != "" {
			about += "; see [" + strings.TrimSuffix(strings.Split(r.See, "#")[0], ".md") + "](" + r.See + ")"
		}
		if r.Own {
			about += "; not for projects"
		}
		fmt.Fprintf(&set, "| `%s` | %s | %s |\n", d.Name, usual, about)
		if v := r.Variables; v != nil {
			others := ""
			if len(v) > 1 {
				others = "`" + strings.Join(v[1:], "`, `") + "`"
			}
			fmt.Fprintf(&env, "| `%s` | %s | `%s` |\n", v[0], others, d.Name)
		}
	}
	return set.String(), env.String()
}

// constrain puts the rules of settings into their schema.
func constrain(s *jsonschema.Schema, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		one := s.Properties[Name(f)]
		if one == nil {
			continue
		}
		r := RuleOf(f)
		if r.Clamp != nil {
			one.Minimum, one.Maximum = &r.Clamp.Low, &r.Clamp.High
		}
		if r.Possible != nil {
			one.Minimum = &r.Possible.Low
		}
		for _, word := range r.Words {
			one.Enum = append(one.Enum, word)
		}
		if r.Default != "" {
			one.Default = json.RawMessage(r.Default)
			if one.Type == "string" {
				one.Default, _ = json.Marshal(r.Default)
			}
		}
		if f.Type.Kind() == reflect.Struct {
			constrain(one, f.Type)
		}
	}
}

// The schema and the tables in the documents are those of the declaration. They
// are written anew with UPDATE=1.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.For[Options](&jsonschema.ForOptions{
		TypeSchemas: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[time.Duration](): {Type: "string"}}})
	if err != nil {
		t.Fatal(err)
	}
	constrain(schema, reflect.TypeFor[Options]())
	schema.Title = "Settings of Drover"
	schema.Properties["$schema"] = &jsonschema.Schema{Type: "string"}
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, "settings.schema.json", func([]byte) []byte { return append(want, '\n') })
	fresh(t, "settings.md", func(doc []byte) []byte {
		settings, variables := tables()
		return page(t, page(t, doc, "settings", settings), "variables", variables)
	})
}

func fresh(t *testing.T, name string, made func(old []byte) []byte) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := made(old)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(old, want) {
		t.Errorf("%s is stale (run: UPDATE=1 go test ./internal/options)", path)
	}
}
