package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds of an expansion.
const (
	MaxInclusions = 20      // shell lines and files of one command
	MaxExpanded   = 1 << 20 // bytes
)

// Kind is what an [Inclusion] names.
type Kind int

// The kinds.
const (
	Shell Kind = iota // a shell line, whose output is included
	File              // a path, whose content is included
)

// Inclusion is something that is to be put into the prompt.
type Inclusion struct {
	Kind Kind
	Text string // the shell line, or the path as it is written, with the arguments in it
}

// Included is what became of an [Inclusion].
type Included struct {
	Text string
	None bool // the file does not exist: the text of the reference stays as it is
}

// Values are the values that fill a template.
type Values struct {
	Args      string
	Variables map[string]string // such as CLAUDE_PROJECT_DIR, without $
}

// part is a piece of a template.
type part struct {
	kind partKind
	text string // as it is written; of a variable: its name
	n    int    // of an argument, from 1
	sub  []part // of a shell line or path
}

type partKind int

const (
	plainPart    partKind = iota
	allPart               // all arguments
	argPart               // one argument
	restPart              // one argument and all after it
	variablePart          // a value of the surroundings
	shellPart
	filePart
)

// Template is the text of a command, taken apart.
type Template struct {
	parts  []part
	inputs []string // names of ${input:…}, in the order of their first use
}

// Parse takes the text of a command apart. Any text is a template.
func Parse(body string) Template {
	p := &parser{text: body}
	return Template{parts: p.parts(body, true), inputs: p.inputs}
}

type parser struct {
	text   string
	inputs []string
}

// parts takes a text apart. Shell lines and paths are looked for if includes is set.
func (p *parser) parts(text string, includes bool) []part {
	var out []part
	start := 0 // of the plain text that is not yet in out
	add := func(at, end int, one part) int {
		if at > start {
			out = append(out, part{text: text[start:at]})
		}
		one.text = orText(one.text, text[at:end])
		out = append(out, one)
		start = end
		return end
	}
	single, double := false, false // in quotes, of a shell line
	for at := 0; at < len(text); {
		first := at == 0 || isBlank(text[at-1])
		line := at == 0 || text[at-1] == '\n'
		switch c := text[at]; {
		case includes && line && strings.HasPrefix(text[at:], "```!"):
			if inner, end, ok := block(text, at); ok {
				at = add(at, end, part{kind: shellPart, sub: p.shell(inner)})
				continue
			}
		case includes && first && strings.HasPrefix(text[at:], "!`"):
			if inner, end, ok := inline(text, at+2); ok {
				at = add(at, end, part{kind: shellPart, sub: p.shell(inner)})
				continue
			}
		case includes && first && c == '@':
			if inner, end := reference(text, at+1); inner != "" {
				at = add(at, end, part{kind: filePart, sub: p.parts(inner, false)})
				continue
			}
		case !includes && c == '\'' && !double:
			single = !single
		case !includes && c == '"' && !single:
			double = !double
		case c == '$':
			if one, end, ok := p.dollar(text, at); ok && !(single && one.kind == argPart && text[at+1] != 'A') {
				at = add(at, end, one)
				continue
			}
		}
		at++
	}
	if start < len(text) {
		out = append(out, part{text: text[start:]})
	}
	return out
}

// shell takes a shell line apart. $1 in single quotes is left to programs such as awk.
func (p *parser) shell(line string) []part { return p.parts(strings.TrimSpace(line), false) }

func orText(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// block finds the end of a fenced block of shell lines that begins at.
func block(text string, at int) (inner string, end int, ok bool) {
	inner, _, ok = strings.Cut(text[at+len("```!"):], "\n```")
	if !ok || strings.TrimSpace(inner) == "" {
		return "", 0, false
	}
	end = at + len("```!") + len(inner) + len("\n```")
	return inner, end, true
}

// inline finds the end of a shell line between backquotes.
func inline(text string, from int) (inner string, end int, ok bool) {
	rest, _, _ := strings.Cut(text[from:], "\n")
	inner, _, ok = strings.Cut(rest, "`")
	return inner, from + len(inner) + 1, ok && strings.TrimSpace(inner) != ""
}

// reference finds the path after an @: up to the next blank, without the punctuation
// that ends a sentence, or between quotes.
func reference(text string, from int) (path string, end int) {
	if strings.HasPrefix(text[from:], `"`) {
		line, _, _ := strings.Cut(text[from+1:], "\n")
		inner, _, ok := strings.Cut(line, `"`)
		if !ok {
			return "", 0
		}
		return inner, from + len(inner) + 2
	}
	end = len(text)
	if i := strings.IndexFunc(text[from:], unicode.IsSpace); i >= 0 {
		end = from + i
	}
	path = strings.TrimRight(text[from:end], ".,;:!?)]}>'\"`*")
	return path, from + len(path)
}

// variables are the names that mean something between ${ and }.
func variables() []string {
	return []string{"CLAUDE_PROJECT_DIR", "DROVER_PROJECT_DIR", "CLAUDE_PLUGIN_ROOT", "CLAUDE_SKILL_DIR",
		"DROVER_REPORT", "workspaceFolder"}
}

// dollar reads what begins with a dollar sign.
func (p *parser) dollar(text string, at int) (one part, end int, ok bool) {
	const all = "$ARGUMENTS"
	rest := text[at:]
	switch {
	case strings.HasPrefix(rest, all+"["):
		inner, _, closed := strings.Cut(rest[len(all)+1:], "]")
		if n, err := strconv.Atoi(inner); closed && err == nil && n >= 0 && n < 1000 {
			return part{kind: argPart, n: n + 1}, at + len(all) + len(inner) + 2, true
		}
		return part{kind: allPart}, at + len(all), true
	case strings.HasPrefix(rest, all):
		if r, _ := utf8.DecodeRuneInString(rest[len(all):]); r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return part{}, 0, false
		}
		return part{kind: allPart}, at + len(all), true
	case strings.HasPrefix(rest, "${ARGUMENTS}"):
		return part{kind: allPart}, at + len("${ARGUMENTS}"), true
	case strings.HasPrefix(rest, "${input:"):
		inner, _, closed := strings.Cut(rest[len("${input:"):], "}")
		if name, _, _ := strings.Cut(inner, ":"); closed && name != "" && !strings.Contains(inner, "\n") {
			return part{kind: restPart, n: p.input(name)}, at + len("${input:") + len(inner) + 1, true
		}
	case len(rest) > 1 && rest[1] >= '1' && rest[1] <= '9':
		if len(rest) > 2 && isDigit(rest[2]) || len(rest) > 3 && rest[2] == '.' && isDigit(rest[3]) {
			return part{}, 0, false // an amount
		}
		return part{kind: argPart, n: int(rest[1] - '0')}, at + 2, true
	}
	for _, name := range variables() {
		if strings.HasPrefix(rest, "${"+name+"}") {
			return part{kind: variablePart, text: name}, at + len(name) + 3, true
		}
	}
	return part{}, 0, false
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// input numbers the inputs by their names.
func (p *parser) input(name string) int {
	for i, known := range p.inputs {
		if known == name {
			return i + 1
		}
	}
	p.inputs = append(p.inputs, name)
	return len(p.inputs)
}

// Inclusions are the shell lines and files of the template, in order.
func (t Template) Inclusions(v Values) []Inclusion {
	var out []Inclusion
	f := t.filler(v)
	for _, one := range t.parts {
		switch one.kind {
		case shellPart:
			out = append(out, Inclusion{Shell, f.text(one.sub)})
		case filePart:
			out = append(out, Inclusion{File, f.text(one.sub)})
		}
	}
	return out
}

// ShellLines are the shell lines as they are written.
func (t Template) ShellLines() []string {
	var out []string
	for _, one := range t.parts {
		if one.kind == shellPart {
			out = append(out, source(one.sub))
		}
	}
	return out
}

// Files are the references to files as they are written.
func (t Template) Files() []string {
	var out []string
	for _, one := range t.parts {
		if one.kind == filePart {
			out = append(out, source(one.sub))
		}
	}
	return out
}

func source(parts []part) string {
	var b strings.Builder
	for _, one := range parts {
		if one.kind == variablePart {
			b.WriteString("${" + one.text + "}")
			continue
		}
		b.WriteString(one.text)
	}
	return b.String()
}

// Expand makes the prompt. included are the results of the inclusions, in their
// order; a missing one is left out. Arguments without a place in the template
// follow it, and files follow the arguments, each once.
func (t Template) Expand(v Values, included []Included) (string, error) {
	f := t.filler(v)
	var b strings.Builder
	var files []string
	used := false
	for _, one := range t.parts {
		used = used || takes(one)
		switch one.kind {
		case shellPart:
			if len(included) > 0 {
				b.WriteString(excerpt.Inert(strings.TrimRight(included[0].Text, "\n")))
				included = included[1:]
			}
		case filePart:
			path := f.text(one.sub)
			if len(included) > 0 {
				if got := included[0]; got.None {
					path = "@" + path
				} else {
					files = append(files, excerpt.Element("file", strings.TrimRight(got.Text, "\n"), "path", path))
				}
				included = included[1:]
			}
			b.WriteString(path)
		default:
			b.WriteString(f.one(one))
		}
		if b.Len() > MaxExpanded {
			return "", tooLong()
		}
	}
	text := strings.TrimSpace(b.String())
	if args := strings.TrimSpace(v.Args); args != "" && !used {
		text += "\n\nArguments: " + args
	}
	for i, one := range files {
		if !contains(files[:i], one) {
			text += "\n\n" + one
		}
	}
	if len(text) > MaxExpanded {
		return "", tooLong()
	}
	return text, nil
}

func tooLong() error {
	return fmt.Errorf("the prompt it makes is longer than %d bytes (include less, or let the agent read the files)", MaxExpanded)
}

func contains(all []string, one string) bool {
	return slices.Contains(all, one)
}

// takes reports whether a part has a place for arguments.
func takes(one part) bool {
	switch one.kind {
	case allPart, argPart, restPart:
		return true
	}
	return slices.ContainsFunc(one.sub, takes)
}

// filler knows the arguments.
type filler struct {
	values Values
	words  []string
	inputs int
}

func (t Template) filler(v Values) filler {
	return filler{values: v, words: Words(v.Args), inputs: len(t.inputs)}
}

func (f filler) text(parts []part) string {
	var b strings.Builder
	for _, one := range parts {
		if b.Len() > MaxExpanded {
			break // it is refused
		}
		b.WriteString(f.one(one))
	}
	return b.String()
}

func (f filler) one(p part) string {
	switch p.kind {
	case allPart:
		return strings.TrimSpace(f.values.Args)
	case argPart:
		if p.n <= len(f.words) {
			return f.words[p.n-1]
		}
		return ""
	case restPart:
		switch {
		case f.inputs == 1:
			return strings.TrimSpace(f.values.Args)
		case p.n > len(f.words):
			return ""
		case p.n == f.inputs:
			return strings.Join(f.words[p.n-1:], " ")
		}
		return f.words[p.n-1]
	case variablePart:
		if value, ok := f.values.Variables[p.text]; ok {
			return value
		}
		return "${" + p.text + "}"
	}
	return p.text
}

// Words are the arguments, set apart by blanks that are not between quotes. A quote
// within a word, or without an end, is a character like any other.
func Words(args string) []string {
	var out []string
	var word strings.Builder
	open := false // a word has begun
	for at := 0; at < len(args); at++ {
		c := args[at]
		if !open && (c == '"' || c == '\'') {
			if end := strings.IndexByte(args[at+1:], c); end >= 0 {
				word.WriteString(args[at+1 : at+1+end])
				at, open = at+1+end, true
				continue
			}
		}
		if isBlank(c) {
			if open {
				out = append(out, word.String())
				word.Reset()
				open = false
			}
			continue
		}
		word.WriteByte(c)
		open = true
	}
	if open {
		out = append(out, word.String())
	}
	return out
}

// Split recognises a prompt that begins with the name of a command. A path of more
// than one element, such as /etc/hosts, and // are none.
func Split(prompt string) (name, args string, ok bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(prompt), "/")
	if !ok {
		return "", "", false
	}
	end := strings.IndexFunc(text, unicode.IsSpace)
	if end < 0 {
		end = len(text)
	}
	name = text[:end]
	first, _ := utf8.DecodeRuneInString(name)
	bad := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
	}
	if !unicode.IsLetter(first) || strings.ContainsFunc(name, bad) || len(name) > 200 {
		return "", "", false
	}
	return strings.TrimRight(name, ".:"), strings.TrimSpace(text[end:]), true
}
