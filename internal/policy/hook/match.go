package hook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// matcher says which names a hook is for. The zero value is for all.
type matcher struct {
	text  string
	any   []*regexp.Regexp // nil: all
	never bool
}

// newMatcher reads a matcher: nothing or * for all, else names or regular
// expressions (RE2), several apart by commas, of which one must match the whole
// name, as it is written.
func newMatcher(text string) (matcher, error) {
	m := matcher{text: text}
	for _, part := range splitList(text) {
		part = strings.TrimSpace(part)
		switch part {
		case "":
			continue
		case "*":
			return matcher{text: text}, nil
		}
		re, err := regexp.Compile(`\A(?:` + part + `)\z`)
		if err == nil {
			_, err = regexp.Compile(part) // or a parenthesis of it closes ours
		}
		if err != nil {
			return matcher{text: text}, fmt.Errorf("%.60q is not a regular expression", part)
		}
		m.any = append(m.any, re)
	}
	return m, nil
}

// splitList splits at commas that are no part of a regular expression.
func splitList(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth <= 0 {
				out, from = append(out, text[from:i]), i+1
			}
		}
	}
	return append(out, text[from:])
}

func (m matcher) all() bool { return m.any == nil && !m.never }

// matches reports whether one of the names is meant. Without names everything is.
func (m matcher) matches(names []string) bool {
	if m.never {
		return false
	}
	return m.any == nil || slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(m.any, func(re *regexp.Regexp) bool { return re.MatchString(name) })
	})
}
