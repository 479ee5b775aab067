package permit

import (
	"path/filepath"
	"strings"
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
	text  string
	known bool // nothing in it is expanded when the line runs
	glob  bool // it may become names of files
	plain bool // no braces, tilde or escape codes
}

// target is one redirection.
type target struct {
	op   syntax.RedirOperator
	word word
}

// seen is everything in a line, wherever it stands.
type seen struct {
	commands [][]word
	targets  []target
	bodies   []string // of here-documents
}

func parse(text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// look collects what a ban may speak of, in places too where it would not run.
func look(file *syntax.File) seen {
	var s seen
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			var words []word
			for _, w := range n.Args {
				words = append(words, evaluate(w)...)
			}
			if len(words) > 0 {
				s.commands = append(s.commands, words)
			}
		case *syntax.Redirect:
			if n.Hdoc != nil {
				s.bodies = append(s.bodies, evaluate(n.Hdoc)[0].text)
			}
			if n.Op == syntax.WordHdoc {
				s.bodies = append(s.bodies, evaluate(n.Word)[0].text)
			} else if n.Hdoc == nil && n.Word != nil {
				for _, w := range evaluate(n.Word) {
					s.targets = append(s.targets, target{n.Op, w})
				}
			}
		}
		return true
	})
	return s
}

// evaluate is what bash makes of a word: more than one where it has braces. The
// result is never empty.
func evaluate(w *syntax.Word) []word {
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !syntax.SplitBraces(copied) {
		return []word{join(w.Parts)}
	}
	var out []word
	for part, err := range expand.BracesSeq(&expand.Config{}, copied) {
		if err != nil || len(out) == maxWords {
			out = append(out, word{})
			break
		}
		one := join(part.Parts)
		one.plain = false
		out = append(out, one)
	}
	if len(out) == 0 {
		return []word{{}}
	}
	return out
}

func join(parts []syntax.WordPart) word {
	out := word{known: true, plain: true}
	var b strings.Builder
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			text, glob := unescape(p.Value)
			if i == 0 && strings.HasPrefix(p.Value, "~") {
				out.plain = false
			}
			out.glob = out.glob || glob
			b.WriteString(text)
		case *syntax.SglQuoted:
			if !p.Dollar {
				b.WriteString(p.Value)
				break
			}
			out.plain = false
			text, _, err := expand.Format(&expand.Config{}, p.Value, nil)
			out.known = out.known && err == nil
			b.WriteString(text)
		case *syntax.DblQuoted:
			out.known = out.known && !p.Dollar
			for _, q := range p.Parts {
				if lit, ok := q.(*syntax.Lit); ok {
					b.WriteString(unescapeQuoted(lit.Value))
				} else {
					out.known = false
				}
			}
		default:
			out.known = false
		}
	}
	if out.text = b.String(); out.text == "[" {
		out.glob = false // the program of that name
	}
	return out
}

func unescape(s string) (text string, glob bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				b.WriteByte(s[i])
			}
		case '*', '?', '[':
			glob = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), glob
}

func unescapeQuoted(s string) string {
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

// crude is what can be said of a line that does not parse: the words between
// everything that could part them.
func crude(text string) []word {
	text = strings.NewReplacer("\\\n", "", "'", "", `"`, "", `\`, "").Replace(text)
	var out []word
	for _, f := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>`${},=\x00", c) }) {
		out = append(out, word{text: f, known: true})
	}
	return out
}

// shellMatch looks for a ban that speaks of anything in the line.
func (g *Gate) shellMatch(rules []rule, text string) (string, bool) {
	if len(rules) == 0 {
		return "", false
	}
	m := matcher{g: g, rules: rules, budget: 20_000}
	return m.line(text, 0)
}

type matcher struct {
	g      *Gate
	rules  []rule
	budget int // words still to be looked at one by one
}

func (m *matcher) line(text string, depth int) (string, bool) {
	var file *syntax.File
	var err error
	if len(text) <= maxParsed && depth <= maxNested && m.budget > 0 {
		file, err = parse(text)
	}
	if file == nil || err != nil {
		words := crude(text)
		if hit, ok := m.words(words, true); ok {
			return hit, ok
		}
		return m.paths(words, []string{m.g.shellDir()}, true)
	}
	s := look(file)
	dirs, _ := m.g.dirs(s.commands)
	shell := false
	for _, c := range s.commands {
		shell = shell || feeds(filepath.Base(c[0].text))
	}
	for _, c := range s.commands {
		m.budget -= len(c)
		harmless := inert(c[0].text)
		if hit, ok := m.words(c, shell || !harmless); ok {
			return hit, ok
		}
		if hit, ok := m.paths(c[1:], dirs, !harmless); ok {
			return hit, ok
		}
		for _, w := range c[1:] {
			if (shell || !harmless) && strings.ContainsAny(w.text, " \t\n;|&()`$!") {
				if hit, ok := m.line(strings.TrimPrefix(w.text, "!"), depth+1); ok {
					return hit, ok
				}
			}
		}
	}
	if shell {
		for _, body := range s.bodies {
			if hit, ok := m.line(body, depth+1); ok {
				return hit, ok
			}
		}
	}
	for _, t := range s.targets {
		if hit, ok := m.paths([]word{t.word}, dirs, writes(t.op)); ok {
			return hit, ok
		}
	}
	return "", false
}

// words looks for the command of a ban at the beginning, or anywhere, because a
// program of which nothing is known may run what its words say.
func (m *matcher) words(ws []word, anywhere bool) (string, bool) {
	for i := range ws {
		if i > 0 && !anywhere {
			break
		}
		for _, r := range m.rules {
			if len(r.words) > 0 && follows(r.words, ws[i:], r.prefix) {
				return r.text, true
			}
		}
	}
	return "", false
}

// follows reports whether the words begin as the rule says. A program is also
// known by its path.
func follows(rule []string, ws []word, prefix bool) bool {
	for i, want := range rule {
		if want == "*" {
			for skip := i; skip <= len(ws); skip++ {
				if i+1 == len(rule) || follows(rule[i+1:], ws[skip:], prefix) {
					return true
				}
			}
			return false
		}
		if i >= len(ws) {
			return false
		}
		if !like(want, ws[i].text) && !(i == 0 && like(want, filepath.Base(ws[i].text))) {
			return false
		}
	}
	// A ban on an exact line holds for a longer one only if it says so.
	return prefix || len(ws) == len(rule)
}

// like matches text with a pattern in which * stands for any text, in time
// that grows with their product.
func like(pattern, text string) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// paths looks for a file that a ban on reading, or on writing, speaks of.
func (m *matcher) paths(ws []word, dirs []string, write bool) (string, bool) {
	for _, r := range m.rules {
		if len(r.globs) == 0 || !write && kindOf(r.tool) == editTool {
			continue
		}
		for _, w := range ws {
			forms := []string{w.text}
			if _, value, ok := strings.Cut(w.text, "="); ok {
				forms = append(forms, value)
			}
			if name, ok := strings.CutPrefix(w.text, "@"); ok {
				forms = append(forms, name)
			}
			if strings.HasPrefix(w.text, "-") && len(w.text) > 2 {
				forms = append(forms, w.text[2:])
			}
			for _, form := range forms {
				for _, dir := range dirs {
					if form != "" && m.g.pathMatch(r, form, dir) {
						return r.text, true
					}
				}
			}
		}
	}
	return "", false
}

// writes reports whether a redirection can change a file.
func writes(op syntax.RedirOperator) bool { return op != syntax.RdrIn && op != syntax.DplIn }

// shellDir is where the line would run.
func (g *Gate) shellDir() string {
	if g.rules.Bash != nil {
		if dir := g.rules.Bash(); filepath.IsAbs(dir) {
			return dir
		}
	}
	return g.rules.Cwd
}

// dirs are all directories in which a command of the line may run, and whether
// that is surely all.
func (g *Gate) dirs(commands [][]word) ([]string, bool) {
	all, sure := []string{g.shellDir()}, true
	for _, c := range commands {
		if c[0].text != "cd" {
			continue
		}
		if len(c) != 2 || !c[1].known || !c[1].plain || c[1].glob || strings.HasPrefix(c[1].text, "-") || len(all) > 8 {
			sure = false
			continue
		}
		for _, dir := range all[:len(all):len(all)] {
			if real, err := resolve(g.expand(c[1].text, dir)); err == nil {
				all = append(all, real)
			} else {
				sure = false
			}
		}
	}
	return all, sure
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
	return ""
}
