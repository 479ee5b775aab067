// Package findtool has the tools ToolSearch and CallTool, by which a model uses tools whose
// schemas are not in its requests.
//
// The texts of both depend only on the tools that they are made with, so the beginning
// of a request stays the same however many tools a model looks up. A call by CallTool becomes a
// call of the named tool before hooks and rules see it; see [agent.Forwarder]. The package looks
// up tools and runs none.
package findtool

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// The names of the tools.
const (
	Search = "ToolSearch"
	Call   = "CallTool"
)

const (
	usualResults = 5
	mostResults  = 20
	mostListed   = 200 // names of tools in the description of ToolSearch
	aboutChars   = 60  // of each of ours in it
)

//go:embed search.md
var searchPrompt string

//go:embed call.md
var callPrompt string

type searchInput struct {
	Query string `json:"query" jsonschema:"select:NAME,NAME for tools by name, or words that describe what is needed" input:"filled"`
	Most  int    `json:"max_results,omitempty" jsonschema:"Tools to return; default 5" input:"minimum=1,maximum=20"`
}

type callInput struct {
	Name  string                     `json:"name" jsonschema:"The name of the tool" input:"filled"`
	Input map[string]json.RawMessage `json:"input,omitempty" jsonschema:"An object as the schema of the tool describes it"`
}

// New makes the tools that find and call others. brief reports whether a tool is listed by its
// name alone.
func New(others []agent.ToolSpec, brief func(name string) bool) []agent.Tool {
	f := finder(slices.Clone(others))
	return []agent.Tool{
		toolkit.New(toolkit.Tool[searchInput]{Name: Search, Description: searchPrompt + f.list(brief),
			Parallel: true, ReadOnly: true, Call: f.search}),
		&caller{toolkit.New(toolkit.Tool[callInput]{Name: Call, Description: callPrompt, Parallel: true,
			Call: func(context.Context, agent.Call, callInput) (agent.Output, error) {
				return agent.Output{}, toolkit.Refusef("the call was not forwarded")
			}})},
	}
}

// caller is CallTool.
type caller struct{ agent.Tool }

var _ agent.Forwarder = (*caller)(nil)

// Forward implements [agent.Forwarder]. Some models write the input as a string.
func (c *caller) Forward(raw json.RawMessage) (string, json.RawMessage, error) {
	var in struct {
		Name  string
		Input json.RawMessage
	}
	if err := json.Unmarshal(raw, &in); err != nil || in.Name == "" {
		return "", nil, fmt.Errorf("%s: the input must be an object with the name of a tool and its input", Call)
	}
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		in.Input = json.RawMessage(cmp.Or(strings.TrimSpace(text), "{}"))
	}
	return in.Name, in.Input, nil
}

// finder has the specifications of the tools.
type finder []agent.ToolSpec

// list names the tools, in the order in which they were given.
func (f finder) list(brief func(string) bool) string {
	var b strings.Builder
	var names []string
	for i, s := range f {
		if brief(s.Name) {
			if len(names) == mostListed {
				names = append(names, fmt.Sprintf("and %d more", len(f)-i))
				break
			}
			names = append(names, s.Name)
			continue
		}
		about, _, _ := strings.Cut(s.Description, "\n")
		fmt.Fprintf(&b, "\n- %s: %s", s.Name, excerpt.Line(about, aboutChars))
	}
	if len(names) > 0 {
		b.WriteString("\n- " + strings.Join(names, ", "))
	}
	return b.String()
}

func (f finder) search(_ context.Context, _ agent.Call, in searchInput) (agent.Output, error) {
	found := f.find(in.Query, cmp.Or(in.Most, usualResults))
	if len(found) == 0 {
		return agent.Output{}, toolkit.Refusef("no tool fits %q: the tools that can be found are in the description of %s",
			excerpt.Line(in.Query, 100), Search)
	}
	var b strings.Builder
	for _, s := range found {
		var schema bytes.Buffer
		if json.Compact(&schema, s.InputSchema) != nil {
			schema.Reset()
			schema.Write(s.InputSchema)
		}
		text := fmt.Sprintf("%s\n\nSchema of input: %s", strings.TrimSpace(s.Description), &schema)
		b.WriteString(excerpt.Element("tool", text, "name", s.Name) + "\n")
	}
	return agent.Output{Text: b.String()}, nil
}

// find returns the tools that are named, or those that fit most words of the query.
func (f finder) find(query string, most int) []agent.ToolSpec {
	if names, ok := strings.CutPrefix(strings.TrimSpace(query), "select:"); ok {
		var out []agent.ToolSpec
		for name := range strings.SplitSeq(names, ",") {
			i := slices.IndexFunc(f, func(s agent.ToolSpec) bool { return strings.EqualFold(s.Name, strings.TrimSpace(name)) })
			if i >= 0 && len(out) < mostResults {
				out = append(out, f[i])
			}
		}
		return out
	}
	words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	type scored struct {
		spec  agent.ToolSpec
		score int
	}
	var all []scored
	for _, s := range f {
		if n := score(s, words); n > 0 {
			all = append(all, scored{s, n})
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return b.score - a.score })
	var out []agent.ToolSpec
	for _, one := range all[:min(len(all), most)] {
		out = append(out, one.spec)
	}
	return out
}

// score is how well a tool fits words: its name counts more than its description, and that more
// than the names of its fields.
func score(s agent.ToolSpec, words []string) (sum int) {
	name, about := strings.ToLower(s.Name), strings.ToLower(s.Description)
	schema := strings.ToLower(string(s.InputSchema))
	for _, w := range words {
		switch {
		case name == w:
			sum += 20
		case len(w) < 3: // such as a and to
		case strings.Contains(name, w):
			sum += 5
		case strings.Contains(about, w):
			sum += 2
		case strings.Contains(schema, w):
			sum++
		}
	}
	return sum
}
