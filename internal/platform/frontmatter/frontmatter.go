package frontmatter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a file. A larger one is refused.
const (
	MaxBytes   = 1 << 20  // of the whole file
	MaxHead    = 64 << 10 // bytes between the dashes
	MaxLines   = 2000     // between the dashes
	MaxNesting = 16       // of lists and objects
	maxValues  = 5000
	maxTold    = 20 // warnings about one file
)

// ErrTooLarge is returned, wrapped, for a file beyond the bounds.
var ErrTooLarge = errors.New("too large")

// Warning is something that was bent to read the file.
type Warning struct {
	Line int // of the file, from 1; 0: none
	Text string
}

func (w Warning) String() string {
	if w.Line == 0 {
		return w.Text
	}
	return fmt.Sprintf("line %d: %s", w.Line, w.Text)
}

// Field is one key with its value.
type Field struct {
	Key  string
	Line int
	// Value is nil, a bool, an int64, a float64, a string, a []any or a
	// map[string]any of such.
	Value any

	text string // a scalar as the file has it
}

// Document is a file taken apart.
type Document struct {
	Found    bool    // the file has front matter
	Fields   []Field // in order; no key comes twice
	Body     string  // the text after it, with LF at the ends of its lines
	BodyLine int     // the line of the file at which Body begins
	Tolerant bool    // strict YAML refused the front matter
	Warnings []Warning
}

// Parse splits a file into front matter and text. The tolerant reader looks for the
// known keys. Parse returns an error for a front matter without an end and for text
// that is not UTF-8, and [ErrTooLarge].
func Parse(data []byte, known []string) (Document, error) {
	switch {
	case len(data) > MaxBytes:
		return Document{}, fmt.Errorf("the file has %d bytes, more than %d: %w", len(data), MaxBytes, ErrTooLarge)
	case !utf8.Valid(data):
		return Document{}, errors.New("the file is not valid UTF-8")
	}
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(data), "\ufeff"))
	blank := 0 // lines before the front matter
	first, rest, _ := strings.Cut(text, "\n")
	for rest != "" && strings.TrimSpace(first) == "" {
		blank++
		first, rest, _ = strings.Cut(rest, "\n")
	}
	if !fence(first) {
		return Document{Body: text, BodyLine: 1}, nil
	}
	head, body, ended := cut(rest)
	switch {
	case !ended && blank > 0: // a rule in a text
		return Document{Body: text, BodyLine: 1}, nil
	case !ended:
		return Document{}, errors.New("line 1: the front matter that begins here has no end (write --- behind it)")
	}
	lines := strings.Count(head, "\n")
	if len(head) > MaxHead || lines > MaxLines {
		return Document{}, fmt.Errorf("the front matter has %d bytes in %d lines, more than %d in %d: %w", len(head),
			lines, MaxHead, MaxLines, ErrTooLarge)
	}
	d := Document{Found: true, Body: body, BodyLine: lines + 3 + blank}
	if err := d.read(head, known); err != nil {
		return Document{}, err
	}
	d.spell(known)
	for i := range d.Fields {
		d.Fields[i].Line += blank
	}
	for i := range d.Warnings {
		if d.Warnings[i].Line > 0 {
			d.Warnings[i].Line += blank
		}
	}
	if more := len(d.Warnings) - maxTold; more > 0 {
		d.Warnings = append(d.Warnings[:maxTold], Warning{Text: fmt.Sprintf("and %d more faults", more)})
	}
	return d, nil
}

// spell gives known keys the case in which they are known: Tools limits an agent as tools does.
func (d *Document) spell(known []string) {
	for i, f := range d.Fields {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, f.Key) })
		if at < 0 || slices.Contains(known, f.Key) {
			continue
		}
		if _, twice := d.Get(known[at]); !twice {
			d.Warnings = append(d.Warnings, Warning{f.Line, fmt.Sprintf("key %.40q is read as %s", f.Key, known[at])})
			d.Fields[i].Key = known[at]
		}
	}
}

func fence(line string) bool { return strings.TrimRight(line, " \t") == "---" }

// cut finds the end of the front matter.
func cut(text string) (head, body string, ended bool) {
	for at := 0; at < len(text); {
		line, _, more := strings.Cut(text[at:], "\n")
		next := at + len(line) + 1
		if fence(line) {
			if !more {
				return text[:at], "", true
			}
			return text[:at], text[next:], true
		}
		at = next
	}
	return "", "", false
}

// read fills the fields: strictly, then with tabs as blanks, then by the
// tolerant reader.
func (d *Document) read(head string, known []string) error {
	fields, warnings, why := strict(head, known)
	if why == nil {
		d.Fields, d.Warnings = fields, warnings
		return nil
	}
	if errors.Is(why, ErrTooLarge) {
		return why
	}
	if plain, line := untab(head); line > 0 {
		if fields, warnings, err := strict(plain, known); err == nil {
			d.Fields = fields
			d.Warnings = append(warnings, Warning{line, "a tab where YAML wants blanks; it was read as blanks"})
			return nil
		}
	}
	d.Tolerant = true
	fields, warnings, broken := tolerant(head, known)
	line, reason := Place(why)
	if line < 2 { // the YAML reader named the beginning of the value that it was in
		line = broken
	}
	d.Fields = fields
	d.Warnings = append([]Warning{{line, "this is not YAML, and was read line by line: " + reason}}, warnings...)
	return nil
}

// untab makes blanks of the tabs that lines begin with, and tells the first
// such line of the file.
func untab(head string) (string, int) {
	lines, first := strings.Split(head, "\n"), 0
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " \t"))]
		if !strings.Contains(indent, "\t") {
			continue
		}
		if first == 0 {
			first = i + 2
		}
		lines[i] = strings.ReplaceAll(indent, "\t", "  ") + l[len(indent):]
	}
	return strings.Join(lines, "\n"), first
}

// Place takes the line out of an error of the YAML reader; 0: it names none.
func Place(err error) (int, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	rest, ok := strings.CutPrefix(text, "line ")
	number, reason, found := strings.Cut(rest, ": ")
	if line, err := strconv.Atoi(number); ok && found && err == nil {
		return line, reason
	}
	return 0, text
}

// Get returns the field of a key.
func (d Document) Get(key string) (Field, bool) {
	i := slices.IndexFunc(d.Fields, func(f Field) bool { return f.Key == key })
	if i < 0 {
		return Field{}, false
	}
	return d.Fields[i], true
}

// Text returns a scalar as the file has it, and "" for any other value.
func (d Document) Text(key string) string {
	f, _ := d.Get(key)
	return f.text
}

// List reads a list of words in any of its forms; see [Field.Words]. It returns nil
// for a missing key, and an empty list for a key without words.
func (d Document) List(key string) []string {
	f, ok := d.Get(key)
	if !ok {
		return nil
	}
	return f.Words()
}

// Words are the items of a list, or the words of a text that are set apart by
// commas or blanks outside of brackets: Bash(git add:*, git commit:*) is one.
// Items that are lists or objects are left out.
func (f Field) Words() []string {
	out := []string{}
	items, ok := f.Value.([]any)
	if !ok {
		return append(out, words(f.text)...)
	}
	for _, item := range items {
		switch item := item.(type) {
		case nil, []any, map[string]any:
		case string:
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		default:
			out = append(out, fmt.Sprint(item))
		}
	}
	return out
}

func words(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth = max(0, depth-1)
		}
		return depth == 0 && strings.ContainsRune(", \t\n", r)
	})
}
