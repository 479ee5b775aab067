package policy

import (
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

const (
	maxLine   = 10_000 // bytes of a shell line that is approved at all
	maxParsed = 1 << 20
	maxWords  = 256 // that one word with braces may become
	maxNested = 6   // lines in words of lines
)

// word is one word of a command, quotes removed.
type word struct {
	text    string
	known   bool   // nothing in it is expanded when the line runs
	glob    bool   // it may become names of files
	plain   bool   // no braces, tilde or unusual escape codes
	secret  bool   // it may hold what stands in the environment
	made    bool   // some of it was expanded
	pattern string // with glob: the text, with marks for what matches more than itself
	valued  string // not known: the text with the values of $PWD and $HOME, if it has no other expansion
}

// marks in patterns; no line that is approved holds these bytes.
const (
	anyText = '\x01'
	anyByte = '\x02'
	anyFrom = '\x03' // what follows, up to the next slash, may be anything
)

func literal(text string) word { return word{text: text, known: true, plain: true} }

func parse(text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// evaluate is what bash makes of a word: more than one where it has braces. The
// result is never empty.
func evaluate(w *syntax.Word) []word {
	if words := braces(w); words != nil {
		return words
	}
	return []word{join(w.Parts, nil)}
}

// braces are the words that a word with braces becomes, or none.
func braces(w *syntax.Word) []word {
	some := false
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		some = some || ok && strings.Contains(strings.ReplaceAll(lit.Value, "{}", ""), "{")
	}
	if !some {
		return nil
	}
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !syntax.SplitBraces(copied) {
		return nil
	}
	var out []word
	for part, err := range expand.BracesSeq(&expand.Config{}, copied) {
		if err != nil || len(out) == maxWords {
			out = append(out, word{})
			break
		}
		one := join(part.Parts, nil)
		one.plain = false
		one.known = one.known && one.text != "" // it may be no word at all
		out = append(out, one)
	}
	if len(out) == 0 {
		return []word{{}}
	}
	return out
}

// part is what an expansion becomes.
type part struct {
	text   string
	known  bool
	secret bool // it may hold what stands in the environment
}

// join makes a word of its parts. Without value, nothing that is expanded is known.
func join(parts []syntax.WordPart, value func(syntax.WordPart) part) word {
	w := word{known: true, plain: true}
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			text, pattern := unescape(p.Value)
			if i == 0 && strings.HasPrefix(p.Value, "~") {
				// Of the folders that a tilde stands for only the home directory is known.
				w.plain = false
				w.known = p.Value == "~" && len(parts) == 1 || strings.HasPrefix(p.Value, "~/")
			}
			w.glob = w.glob || pattern != text
			w.text, w.pattern = w.text+text, w.pattern+pattern
		case *syntax.SglQuoted:
			text, plain, known := p.Value, true, true
			if p.Dollar {
				text, plain, known = ansi(p.Value)
			}
			w.plain, w.known = w.plain && plain, w.known && known
			w.text, w.pattern = w.text+text, w.pattern+text
		case *syntax.DblQuoted:
			w.known = w.known && !p.Dollar
			for _, q := range p.Parts {
				if lit, ok := q.(*syntax.Lit); ok {
					text := unescapeQuoted(lit.Value)
					w.text, w.pattern = w.text+text, w.pattern+text
				} else {
					w.expand(q, value, true)
				}
			}
		default:
			w.expand(p, value, false)
		}
	}
	w.glob = w.glob && w.text != "[" // the program of that name
	return w
}

// expand continues a word with an expansion. What is not quoted is split, and may be a
// pattern or nothing at all.
func (w *word) expand(p syntax.WordPart, value func(syntax.WordPart) part, quoted bool) {
	var v part
	if value != nil {
		v = value(p)
	}
	w.made, w.secret = true, w.secret || v.secret
	if !v.known || !quoted && (v.text == "" || strings.ContainsAny(v.text, " \t\n*?[\\~")) {
		w.known = false
		return
	}
	w.text, w.pattern = w.text+v.text, w.pattern+v.text
}

// unescape removes backslashes. The pattern has marks for what is not quoted and
// matches more than itself; it says more than bash would match, never less.
func unescape(s string) (text, pattern string) {
	if !strings.ContainsAny(s, `\*?[`) {
		return s, s
	}
	var t, p strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		mark := c
		switch c {
		case '\\':
			if i++; i < len(s) && s[i] == '\n' {
				continue
			}
			if i < len(s) { // at the end of a line it stands for itself
				c = s[i]
			}
			mark = c
		case '*':
			mark = anyText
		case '?':
			mark = anyByte
		case '[':
			mark = anyFrom
		}
		t.WriteByte(c)
		p.WriteByte(mark)
	}
	return t.String(), p.String()
}

func unescapeQuoted(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			switch s[i+1] {
			case '\n':
				i++
				continue
			case '$', '`', '"', '\\':
				i++
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ansi is the text of $'…'. It is plain if it has only codes that leave no
// doubt.
func ansi(s string) (text string, plain, known bool) {
	var b strings.Builder
	unusual := false
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		at := -1
		if i < len(s) {
			at = strings.IndexByte(`abefnrtv\'"?`, s[i])
		}
		if at < 0 {
			text, used := code(s[min(i, len(s)):])
			if used == 0 {
				return s, false, false
			}
			i += used - 1
			b.WriteString(text)
			unusual = true
			continue
		}
		b.WriteByte("\a\b\x1b\f\n\r\t\v\\'\"?"[at])
	}
	return b.String(), !unusual && utf8.ValidString(b.String()), utf8.ValidString(b.String())
}

// code is what a number in $'…' stands for, and how long it is. 0: it is no
// number, or shells think differently of it.
func code(s string) (text string, used int) {
	digits, base, from := "0123456789abcdefABCDEF", 16, 1
	var most int
	switch {
	case strings.HasPrefix(s, "x"):
		most = 2
	case strings.HasPrefix(s, "u"):
		most = 4
	case strings.HasPrefix(s, "U"):
		most = 8
	default:
		digits, base, from, most = "01234567", 8, 0, 3
	}
	end := from
	for end < len(s) && end-from < most && strings.IndexByte(digits, s[end]) >= 0 {
		end++
	}
	value, err := strconv.ParseUint(s[from:end], base, 32)
	switch {
	case err != nil || value == 0 || value > unicode.MaxRune:
		return "", 0
	case most > 3:
		return string(rune(value)), end
	}
	return string([]byte{byte(value)}), end
}

// crude is what can be said of a line that does not parse: the words between
// everything that could part them.
func crude(text string) []word {
	text = strings.NewReplacer("\\\n", "", "'", "", `"`, "", `\`, "").Replace(text)
	var out []word
	ends := func(c rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>`${},=\x00", c) }
	for _, f := range strings.FieldsFunc(text, ends) {
		out = append(out, word{text: f, known: true})
	}
	return out
}

// shellDir is where the line would run.
func (g *Gate) shellDir() string {
	if g.rules.Bash != nil {
		if dir := g.rules.Bash(); filepath.IsAbs(dir) {
			return dir
		}
	}
	return g.rules.Cwd
}

// legible says why a line cannot be shown or judged as it is.
func legible(text string) string {
	if len(text) > maxLine {
		return "the command is longer than 10,000 bytes"
	}
	if !utf8.ValidString(text) {
		return "the command is not valid UTF-8"
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c != '\t' && c != '\n' && hidden(c) }) {
		return "the command has characters that do not show"
	}
	// bash joins the lines before it reads on, so that $ and ( may meet where
	// another parser does not see it; but it joins no line to a comment.
	for rest := " " + text; ; {
		before, after, ok := strings.Cut(rest, "\\\n")
		if !ok {
			return ""
		}
		if strings.TrimRight(before, " \t\n") == before {
			return "a word goes on in the next line"
		}
		if strings.Contains(before[strings.LastIndexByte(before, '\n')+1:], "#") {
			return "a line that may be a comment goes on in the next one"
		}
		rest = " " + after
	}
}
