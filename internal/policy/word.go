package policy

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Words are cut off at these bounds: what is longer is open.
const (
	maxWords = 256  // that one word with braces may become
	maxOpen  = 1000 // bytes of a word with marks
)

// anyText marks, in patterns, text that the line does not show.
const anyText = "\x04"

// word is one word of a command, quotes removed.
type word struct {
	text    string // as far as the line shows it
	pattern string // the text with a mark for each part that the shell replaces
	open    bool   // it is known only when the line runs
	split   bool   // and it may be no word, or several
	glob    bool   // it may become names of files
	odd     bool   // it has braces, a tilde or unusual escape codes
	secret  bool   // it may hold text of the environment
}

func literal(text string) word { return word{text: text, pattern: text} }

// plain reports a word that stands for itself.
func (w word) plain() bool { return !w.open && !w.glob && !w.odd }

// marked reports a word that may become another text, or a name of a file.
func (w word) marked() bool { return w.open || w.glob }

// evaluate is what bash makes of a word: more than one where it has braces. The result is never empty.
func evaluate(w *syntax.Word) []word {
	some := false
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		some = some || ok && strings.Contains(strings.ReplaceAll(lit.Value, "{}", ""), "{")
	}
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !some || !syntax.SplitBraces(copied) {
		return []word{join(w.Parts)}
	}
	var out []word
	for part, err := range expand.BracesSeq(&expand.Config{}, copied) {
		if err != nil || len(out) == maxWords {
			return []word{{pattern: anyText, open: true, split: true}}
		}
		one := join(part.Parts)
		one.odd = true
		if one.text == "" { // it may be no word at all
			one.open, one.split = true, true
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return []word{{pattern: anyText, open: true, split: true}}
	}
	return out
}

// join makes a word of its parts.
func join(parts []syntax.WordPart) word {
	var w word
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			text, pattern := unescape(p.Value)
			if i == 0 && strings.HasPrefix(p.Value, "~") {
				// Of the folders that a tilde stands for only the home directory is known.
				w.odd = true
				w.open = p.Value != "~" && !strings.HasPrefix(p.Value, "~/") || p.Value == "~" && len(parts) > 1
			}
			w.glob = w.glob || pattern != text
			w.text, w.pattern = w.text+text, w.pattern+pattern
		case *syntax.SglQuoted:
			text, known := p.Value, true
			if p.Dollar {
				text, known = ansi(p)
			}
			w.odd, w.open = w.odd || text != p.Value, w.open || !known
			w.text, w.pattern = w.text+text, w.pattern+text
		case *syntax.DblQuoted:
			w.open = w.open || p.Dollar
			for _, q := range p.Parts {
				if lit, ok := q.(*syntax.Lit); ok {
					text := unescapeQuoted(lit.Value)
					w.text, w.pattern = w.text+text, w.pattern+text
				} else {
					w.expand(q, true)
				}
			}
		default:
			w.expand(p, false)
		}
	}
	w.glob = w.glob && w.text != "[" // the program of that name
	if w.marked() && len(w.pattern) > maxOpen {
		w.pattern = anyText
	}
	return w
}

// expand continues a word with an expansion. What is not quoted is split, and may be a pattern or nothing at all.
func (w *word) expand(p syntax.WordPart, quoted bool) {
	if text, ok := quotedText(p); ok && quoted {
		w.text, w.pattern = w.text+text, w.pattern+text
		return
	}
	if arith, ok := p.(*syntax.ArithmExp); ok && numeric(arith.X) {
		quoted = true // one number
	}
	name, plain := parameter(p)
	w.secret = w.secret || plain && !shown(name)
	w.open, w.split, w.pattern = true, w.split || !quoted, w.pattern+anyText
}

// quotedText is the text of $(cat <<END …) in which nothing is expanded, by which a long message is given.
func quotedText(p syntax.WordPart) (string, bool) {
	sub, ok := p.(*syntax.CmdSubst)
	if !ok || len(sub.Stmts) != 1 || len(sub.Stmts[0].Redirs) != 1 || sub.Stmts[0].Negated || sub.Stmts[0].Background {
		return "", false
	}
	call, ok := sub.Stmts[0].Cmd.(*syntax.CallExpr)
	r := sub.Stmts[0].Redirs[0]
	if !ok || len(call.Args) != 1 || len(call.Assigns) > 0 || call.Args[0].Lit() != "cat" || r.N != nil ||
		r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc || r.Hdoc == nil {
		return "", false
	}
	_, quoted, _ := plainDelimiter(r.Word)
	var text strings.Builder
	for _, p := range r.Hdoc.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok || strings.Contains(lit.Value, `\`) && !quoted {
			return "", false
		}
		text.WriteString(lit.Value)
	}
	body := text.String()
	if r.Op == syntax.DashHdoc {
		body = "\n" + body
		for strings.Contains(body, "\n\t") {
			body = strings.ReplaceAll(body, "\n\t", "\n")
		}
		body = body[1:]
	}
	return strings.TrimRight(body, "\n"), true
}

// parameter is the name of the plain forms of an expansion: $NAME, ${NAME} and ${#NAME}, which has none.
func parameter(p syntax.WordPart) (name string, plain bool) {
	e, ok := p.(*syntax.ParamExp)
	if !ok || e.Param == nil || e.Flags != nil || e.Excl || e.Width || e.IsSet || e.NestedParam != nil || e.Index != nil ||
		e.Slice != nil || e.Repl != nil || e.Names != 0 || len(e.Modifiers) > 0 || e.Split != 0 || e.GlobSubst != 0 ||
		e.RcExpand != 0 || e.Exp != nil {
		return "", false
	}
	if e.Length {
		return "#", true
	}
	return e.Param.Value, true
}

// numeric reports expressions of numbers alone: a name would be evaluated as an expression again, and may hold one
// that runs a command.
func numeric(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case *syntax.Word:
		lit := x.Lit()
		return lit != "" && len(lit) < 19 && strings.Trim(lit, "0123456789") == ""
	case *syntax.ParenArithm:
		return numeric(x.X)
	case *syntax.UnaryArithm:
		return x.Op != syntax.Inc && x.Op != syntax.Dec && numeric(x.X)
	case *syntax.BinaryArithm:
		switch x.Op {
		case syntax.Add, syntax.Sub, syntax.Mul, syntax.Quo, syntax.Rem, syntax.Eql, syntax.Neq, syntax.Gtr, syntax.Lss:
			return numeric(x.X) && numeric(x.Y)
		}
	}
	return false
}

// shown are variables of the environment that may be seen by everybody.
func shown(name string) bool {
	switch name {
	case "?", "#", "!", "$", "0", "_", "HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "TERM",
		"PATH", "TZ", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID", "SHLVL", "TMPDIR", "EDITOR", "PIPESTATUS", "CI",
		"GOPATH", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// unescape removes backslashes. The pattern has marks for what is not quoted and matches more than itself; it says
// more than bash would match, never less.
func unescape(s string) (text, pattern string) {
	if !strings.ContainsAny(s, `\*?[`) {
		return s, s
	}
	var t, p strings.Builder
	set := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		mark := string(c)
		switch {
		case c == '\\':
			if i++; i < len(s) && s[i] == '\n' {
				continue
			}
			if i < len(s) { // at the end of a line it stands for itself
				c = s[i]
			}
			mark = string(c)
		case c == '*' || c == '?' || c == '[':
			mark, set = anyText, set || c == '['
		case c == '/':
			set = false
		}
		t.WriteByte(c)
		if !set || mark == anyText {
			p.WriteString(mark) // what follows a bracket, up to the next slash, may be anything
		}
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

// ansi is the text of $'…'. It is known unless it has codes on which shells disagree.
func ansi(p *syntax.SglQuoted) (text string, known bool) {
	text, err := expand.Literal(nil, &syntax.Word{Parts: []syntax.WordPart{p}})
	return text, err == nil && utf8.ValidString(text) &&
		!regexp.MustCompile(`\\(c|0|[89]|x[^0-9a-fA-F])`).MatchString(p.Value)
}

// crude is what can be said of a line that does not parse: the words between
// everything that could part them.
func crude(text string) []word {
	text = strings.NewReplacer("\\\n", "", "'", "", `"`, "", `\`, "").Replace(text)
	var out []word
	ends := func(c rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>`${},=\x00", c) }
	for _, f := range strings.FieldsFunc(text, ends) {
		out = append(out, literal(f))
	}
	return out
}
