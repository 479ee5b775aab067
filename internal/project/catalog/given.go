package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/platform/frontmatter"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

const (
	maxJSON = 4 << 20
	maxText = 256 << 10 // bytes of one definition
)

// ParseJSON reads definitions as the SDK has them: one object whose keys are
// the names of agents. from names it in messages and is the
// source of its entries. The error is for text that is not such an object at all;
// a definition with a fault is left out, and a problem says why.
func ParseJSON(from string, data []byte) ([]Entry, []Problem, error) {
	if len(data) > maxJSON {
		return nil, nil, fmt.Errorf("%s: %d bytes, more than %d", from, len(data), maxJSON)
	}
	all, err := jsonc.Members(bytes.TrimPrefix(data, []byte("\ufeff")))
	if errors.Is(err, jsonc.ErrNotObject) {
		return nil, nil, fmt.Errorf(`%s: it is not a JSON object of agents, as in {"name": {"description": …, "prompt": …}}`, from)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: it is not JSON: %w", from, err)
	}
	var entries []Entry
	var problems []Problem
	seen := map[string]bool{}
	for _, m := range all {
		e, told, ok := agent(from, m.Key, m.Value)
		if ok && seen[e.Name] {
			told, ok = append(told, Problem{
				File:     from,
				Severity: Warning,
				What:     fmt.Sprintf("agent %q: the name comes twice; the first counts", e.Name),
				Fix:      "rename one",
			}), false
		}
		problems = append(problems, told...)
		if ok && len(entries) >= MaxFiles {
			problems = append(problems,
				Problem{File: from, Severity: Warning, What: fmt.Sprintf("only the first %d agents are loaded", MaxFiles)})
			break
		}
		if ok {
			entries, seen[e.Name] = append(entries, e), true
		}
	}
	return entries, problems, nil
}

// agent reads one definition.
func agent(from, name string, body json.RawMessage) (Entry, []Problem, bool) {
	r := &reader{file: from, dialect: Claude, given: true}
	fail := func(what, fix string) (Entry, []Problem, bool) {
		return Entry{}, []Problem{
			{File: from, Severity: Error, What: fmt.Sprintf("agent %.120q: %s", name, what), Fix: fix},
		}, false
	}
	if len(body) > maxText {
		return fail(fmt.Sprintf("%d bytes, more than %d", len(body), maxText), "make it shorter")
	}
	all, err := jsonc.Members(body)
	if err != nil {
		return fail("it is not an object", `write {"description": …, "prompt": …}`)
	}
	for _, m := range all {
		key := m.Key
		f, err := given(key, m.Value)
		if err != nil {
			return fail(err.Error(), "make it flatter")
		}
		if _, twice := r.get(key); twice {
			r.say(Warning, key, fmt.Sprintf("key %.40q comes twice; the first counts", key), "take one of them out")
			continue
		}
		if f.Value != nil { // null is as good as nothing
			r.fields = append(r.fields, f)
		}
	}
	r.used = nil
	e, problems, ok := r.read(name)
	for i := range problems {
		problems[i].What = fmt.Sprintf("agent %.120q: %s", name, problems[i].What)
	}
	return e, problems, ok
}

// given is a field of JSON. Lists are only what JSON has as lists.
func given(key string, raw json.RawMessage) (field, error) {
	f := field{Key: Key{Name: key}}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&f.Value); err != nil {
		return f, err
	}
	if depth(f.Value) > frontmatter.MaxNesting {
		return f, fmt.Errorf("%.40q has more than %d levels", key, frontmatter.MaxNesting)
	}
	switch v := f.Value.(type) {
	case string:
		f.text = v
	case json.Number, bool:
		f.text = fmt.Sprint(v)
	case []any:
		f.words = []string{}
		for _, item := range v {
			if s, ok := item.(string); ok && strings.TrimSpace(s) != "" {
				f.words = append(f.words, strings.TrimSpace(s))
			}
		}
	}
	return f, nil
}

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	case map[string]any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	default:
		return 0
	}
	return deepest + 1
}
