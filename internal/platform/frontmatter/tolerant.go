package frontmatter

import (
	"fmt"
	"slices"
	"strings"
)

// tolerant reads a front matter that is not YAML. A line that begins with a known key
// and a colon begins a value, and everything up to the next such line belongs to it,
// lines that look like keys of other names included: people write examples of
// dialogue there. A value that is YAML by itself is read as YAML; broken is
// the line of the first value that is not.
func tolerant(head string, known []string) (out []Field, warnings []Warning, broken int) {
	for _, p := range parts(head, known) {
		switch {
		case p.key == "":
			if strings.TrimSpace(p.text) != "" {
				broken = p.line
				warnings = append(warnings, Warning{p.line, "text before the first key is ignored"})
			}
		case slices.ContainsFunc(out, func(f Field) bool { return f.Key == p.key }):
			warnings = append(warnings, Warning{p.line, fmt.Sprintf("key %.40q comes twice; the first counts", p.key)})
		default:
			f, more, raw := p.field(known)
			out, warnings = append(out, f), append(warnings, more...)
			if raw && broken == 0 {
				broken = p.line
			}
		}
	}
	return out, warnings, broken
}

// part is a key with the lines that belong to it.
type part struct {
	key  string
	line int
	text string // its lines, the key included
}

func parts(head string, known []string) []part {
	out := []part{{line: 2}}
	for i, line := range strings.Split(strings.TrimSuffix(head, "\n"), "\n") {
		key, rest, found := strings.Cut(line, ":")
		key = strings.TrimRight(key, " ")
		if found && slices.Contains(known, key) && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
			out = append(out, part{key: key, line: i + 2})
		}
		last := &out[len(out)-1]
		last.text += line + "\n"
	}
	return out
}

// field returns the value of a part; raw is true if it is not YAML.
func (p part) field(known []string) (f Field, warnings []Warning, raw bool) {
	fields, warnings, err := strict(strings.Repeat("\n", p.line-2)+p.text, known)
	if err == nil && len(fields) == 1 && fields[0].Key == p.key {
		f := fields[0]
		if text, ok := f.Value.(string); ok && p.unquoted() {
			f.text = breaks(text)
			f.Value = f.text
		}
		return f, warnings, false
	}
	_, text, _ := strings.Cut(p.text, ":")
	text = strings.TrimSpace(text)
	if first, rest, more := strings.Cut(text, "\n"); more && strings.Trim(first, "|>+-") == "" {
		text = strings.TrimSpace(rest) // a block mark without a block
	}
	text = breaks(text)
	return Field{Key: p.key, Line: p.line, Value: text, text: text}, nil, true
}

// unquoted reports whether a backslash in the value is only a backslash to YAML.
func (p part) unquoted() bool {
	_, text, _ := strings.Cut(p.text, ":")
	text = strings.TrimSpace(text)
	return text != "" && !strings.ContainsAny(text[:1], `"'|>`)
}

// breaks makes line breaks of those that were written as \n.
func breaks(text string) string { return strings.ReplaceAll(text, `\n`, "\n") }
