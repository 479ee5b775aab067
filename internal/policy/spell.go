package policy

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// A spelling is a word as far as the line says it: text, with marks for what is
// known only when the line runs. Beside the marks of names of files there are:
const (
	openText  = '\x04' // any text, in one word
	openWords = '\x05' // any text, which may be no word or several
	wordBreak = '\x06' // here an unquoted value is split
)

const marks = "\x01\x02\x03\x04\x05\x06"

// bounds of what is looked at in one line.
const (
	maxSpellings = 16   // of one word, or of one variable
	maxLines     = 32   // that one command may stand for
	maxOpen      = 1000 // bytes of a spelling with marks
	maxSurveyed  = 5000 // commands of a line
)

// survey is what a line could run, read and write, as far as its words say. It
// does not depend on the order in which the parts run: a variable has every value
// that the line gives it, and a command may run in every folder that it enters.
type survey struct {
	commands [][]string // spellings of the words; of a program that runs another, both
	targets  []opened
	dirs     []string // spellings of folders
	fed      string   // why a shell may run text that the line does not show; empty: none does
	unread   string   // why the line could not be read as a whole
}

// opened is a redirection.
type opened struct {
	path  string // a spelling
	write bool
}

func marked(s string) bool { return strings.ContainsAny(s, marks) }

func open(s string) bool { return strings.ContainsAny(s, "\x04\x05") }

// speller makes the survey of a line.
type speller struct {
	g      *Gate
	vars   map[string][]string // what the line sets
	lost   bool                // variables may be anything
	out    survey
	piped  bool
	bare   bool // a shell reads its commands from its input
	bodies []string
	count  int
	inner  int // substitutions that are being looked at
}

// survey looks at a line.
func (g *Gate) survey(l line) survey {
	s := speller{g: g, vars: map[string][]string{}}
	s.out.dirs = []string{g.shellDir()}
	if s.out.unread = l.doubt; l.file == nil {
		s.out.unread = "it cannot be read as a whole"
	} else {
		s.file(l.file, 0)
	}
	if s.out.unread != "" {
		for _, w := range crude(l.text) {
			s.out.targets = append(s.out.targets, opened{plainText(w.text), true})
		}
	}
	return s.out
}

// file looks at a line, or at one in a word of another.
func (s *speller) file(f *syntax.File, depth int) {
	loops := false
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.WhileClause, *syntax.ForClause, *syntax.FuncDecl:
			loops = true
		case *syntax.BinaryCmd:
			s.piped = s.piped || n.Op == syntax.Pipe || n.Op == syntax.PipeAll
		}
		return true
	})
	s.values(f)
	for round := 0; loops && round < 3; round++ {
		before := s.size()
		if s.values(f); s.size() == before {
			break
		}
		s.lost = s.lost || round == 2
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			s.call(n, depth)
		case *syntax.Redirect:
			s.redirect(n)
		}
		return true
	})
	for _, text := range evaluated(f) {
		s.text(text, depth)
	}
	if !s.bare {
		return
	}
	if s.piped {
		s.feed("a shell would run what another command prints")
	}
	bodies := s.bodies
	s.bodies = nil
	for _, body := range bodies {
		s.text(body, depth)
	}
}

func (s *speller) feed(why string) {
	if s.out.fed == "" {
		s.out.fed = why
	}
}

func (s *speller) size() int {
	n := 0
	for _, v := range s.vars {
		n += len(v)
	}
	return n
}

// values notes what the line sets variables to.
func (s *speller) values(f *syntax.File) {
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			for _, a := range n.Assigns {
				if a.Name != nil && a.Name.Value == "IFS" && len(n.Args) > 0 {
					continue // for this command alone
				}
				s.assign(a)
			}
			s.builtinSets(n)
		case *syntax.DeclClause:
			for _, a := range n.Args {
				if a.Naked && a.Name == nil && strings.Contains(textOf(a.Value), "n") {
					s.lost = true // a name for another variable
				}
				s.assign(a)
			}
		case *syntax.ForClause:
			if iter, ok := n.Loop.(*syntax.WordIter); ok && iter.Name != nil {
				s.iterate(iter, n.Select)
			}
		case *syntax.ParamExp:
			if n.Param != nil && n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				s.set(n.Param.Value, s.joined(n.Exp.Word))
			}
		}
		return true
	})
}

// builtinSets notes variables that a builtin sets to what it reads.
func (s *speller) builtinSets(c *syntax.CallExpr) {
	if len(c.Args) == 0 {
		return
	}
	switch c.Args[0].Lit() {
	case "read", "mapfile", "readarray", "getopts", "printf", "let", "unset", "select":
		for i, a := range c.Args[1:] {
			name := a.Lit()
			if c.Args[0].Lit() == "printf" && (i == 0 || c.Args[i].Lit() != "-v") {
				continue
			}
			if name != "" && !strings.HasPrefix(name, "-") {
				s.set(name, []string{string(rune(openText))})
			}
		}
	case "eval", "source", ".":
		for name := range s.vars {
			s.set(name, []string{string(rune(openText))})
		}
	}
}

func (s *speller) iterate(iter *syntax.WordIter, choose bool) {
	if choose || !iter.InPos.IsValid() {
		s.set(iter.Name.Value, []string{string(rune(openText))})
		return
	}
	for _, item := range iter.Items {
		for _, ws := range s.word(item) {
			for _, w := range ws {
				s.set(iter.Name.Value, []string{strings.ReplaceAll(w, string(rune(openWords)), string(rune(openText)))})
			}
		}
	}
}

func (s *speller) assign(a *syntax.Assign) {
	if a.Name == nil {
		return
	}
	name := a.Name.Value
	if name == "IFS" {
		s.lost = true
	}
	if slices.Contains([]string{"PROMPT_COMMAND", "BASH_ENV", "ENV", "PS4"}, name) && a.Value != nil {
		for _, v := range s.joined(a.Value) {
			if open(v) || strings.ContainsAny(v, "$`") {
				s.feed("a variable holds what a shell runs")
			}
		}
	}
	switch {
	case a.Naked:
	case a.Append, a.Index != nil, a.Array != nil:
		s.set(name, []string{string(rune(openText))})
	case a.Value == nil:
		s.set(name, []string{""})
	default:
		s.set(name, s.joined(a.Value))
	}
}

func (s *speller) set(name string, values []string) {
	all := s.vars[name]
	for _, v := range values {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	if len(all) > maxSpellings {
		all = []string{string(rune(openText))}
	}
	s.vars[name] = all
}

// joined are the spellings of a word that is not split.
func (s *speller) joined(w *syntax.Word) []string {
	if w == nil {
		return []string{""}
	}
	out, _ := s.parts(w.Parts, true)
	for i, text := range out {
		out[i] = unglob(text)
	}
	return out
}

// unglob is the text of a spelling in which nothing becomes names of files.
func unglob(text string) string {
	if !strings.ContainsAny(text, "\x01\x02\x03") {
		return text
	}
	return strings.NewReplacer("\x01", "*", "\x02", "?", "\x03", "[").Replace(text)
}

func textOf(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	return w.Lit()
}

// word are the lists of words that a word may become.
func (s *speller) word(w *syntax.Word) [][]string {
	if w == nil {
		return [][]string{nil}
	}
	some := false
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		some = some || ok && strings.Contains(lit.Value, "{")
	}
	if some {
		if out, ok := s.braces(w); ok {
			return out
		}
	}
	texts, quoted := s.parts(w.Parts, false)
	out := make([][]string, 0, len(texts))
	for _, t := range texts {
		if t == string(rune(anyFrom)) {
			t = "[" // the program of that name
		}
		out = append(out, splitWords(t, quoted))
	}
	return out
}

// splitWords makes words of a spelling.
func splitWords(t string, quoted bool) []string {
	if !strings.ContainsRune(t, wordBreak) {
		if t == "" && !quoted {
			return nil
		}
		return []string{t}
	}
	return strings.FieldsFunc(t, func(c rune) bool { return c == wordBreak })
}

// braces are the words of one with braces: they follow one another.
func (s *speller) braces(w *syntax.Word) ([][]string, bool) {
	copied := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !syntax.SplitBraces(copied) {
		return nil, false
	}
	out := [][]string{nil}
	n := 0
	for part, err := range expand.BracesSeq(&expand.Config{}, copied) {
		if n++; err != nil || n > maxWords {
			return [][]string{{string(rune(openWords))}}, true
		}
		texts, quoted := s.parts(part.Parts, false)
		var next [][]string
		for _, l := range out {
			for _, t := range texts {
				next = append(next, append(slices.Clip(l), splitWords(t, quoted)...))
			}
		}
		if out = next; len(out) > maxSpellings {
			return [][]string{{string(rune(openWords))}}, true
		}
	}
	return out, true
}

// parts are the spellings of the parts of a word. quoted says that it is a word
// even if it is empty.
func (s *speller) parts(parts []syntax.WordPart, inValue bool) (out []string, quoted bool) {
	out = []string{""}
	for i, p := range parts {
		var add []string
		switch p := p.(type) {
		case *syntax.Lit:
			add = s.literal(p.Value, i == 0)
			quoted = quoted || p.Value != ""
		case *syntax.SglQuoted:
			quoted = true
			text, known := p.Value, true
			if p.Dollar {
				text, _, known = ansi(p.Value)
			}
			if !known {
				text = string(rune(openText))
			}
			add = []string{plainText(text)}
		case *syntax.DblQuoted:
			quoted = true
			add = s.quoted(p)
		default:
			add = s.expansion(p, inValue, len(parts) > 1)
		}
		out = product(out, add)
	}
	return out, quoted
}

// plainText is text in which bytes that are marks stand for themselves: a line
// that holds such bytes is doubtful, so they count as any text.
func plainText(text string) string {
	if !marked(text) {
		return text
	}
	return strings.Map(func(c rune) rune {
		if c <= wordBreak {
			return openText
		}
		return c
	}, text)
}

func (s *speller) quoted(p *syntax.DblQuoted) []string {
	out := []string{""}
	for _, q := range p.Parts {
		if lit, ok := q.(*syntax.Lit); ok {
			out = product(out, []string{plainText(unescapeQuoted(lit.Value))})
		} else {
			out = product(out, s.expansion(q, true, len(p.Parts) > 1))
		}
	}
	return out
}

func product(a, b []string) []string {
	if len(b) == 1 {
		for i := range a {
			a[i] += b[0]
		}
		return a
	}
	if len(a)*len(b) > maxSpellings {
		for i := range a {
			a[i] += string(rune(openText))
		}
		return a
	}
	out := make([]string, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+y)
		}
	}
	return out
}

// literal is unquoted text, with ~ at its beginning and patterns.
func (s *speller) literal(text string, first bool) []string {
	if first && strings.HasPrefix(text, "~") {
		user, rest, slash := strings.Cut(text, "/")
		if slash {
			rest = "/" + rest
		}
		_, pattern := unescape(plainText(rest))
		out := []string{}
		switch user {
		case "~":
			if s.g.rules.Home != "" {
				return append(out, s.g.rules.Home+pattern)
			}
		case "~+":
			for _, dir := range s.out.dirs {
				out = append(out, dir+pattern)
			}
			return out
		}
		return append(out, string(rune(openText))+pattern)
	}
	_, pattern := unescape(plainText(text))
	return []string{pattern}
}

// expansion are the values of what is expanded. In a value or in quotes it stays
// one word.
func (s *speller) expansion(p syntax.WordPart, whole, joined bool) []string {
	unknown := string(rune(openWords))
	if whole {
		unknown = string(rune(openText))
	}
	switch p := p.(type) {
	case *syntax.ParamExp:
		return s.parameter(p, whole, joined)
	case *syntax.CmdSubst:
		if values, ok := s.printed(p); ok {
			return s.unquoted(values, whole)
		}
		if !whole && joined && !prints(p) {
			unknown = string(rune(openText))
		}
		return []string{unknown}
	case *syntax.ProcSubst:
		return []string{"/dev/fd/63"}
	case *syntax.ExtGlob:
		return []string{string(rune(openText))}
	}
	return []string{string(rune(openText))}
}

// unquoted are values as they are split where they are not quoted.
func (s *speller) unquoted(values []string, whole bool) []string {
	if whole {
		return slices.Clone(values)
	}
	out := make([]string, 0, len(values))
	for _, v := range values {
		if strings.ContainsAny(v, " \t\n") {
			v = strings.NewReplacer(" ", "\x06", "\t", "\x06", "\n", "\x06").Replace(v)
		}
		v = strings.NewReplacer("*", "\x01", "?", "\x02", "[", "\x03", "\x04", "\x05").Replace(v)
		out = append(out, v)
	}
	return out
}

func (s *speller) parameter(p *syntax.ParamExp, whole, joined bool) []string {
	unknown := []string{string(rune(openWords))}
	if whole {
		unknown = []string{string(rune(openText))}
	}
	if p.Param == nil || p.Excl || p.Slice != nil || p.Repl != nil || p.Names != 0 || p.NestedParam != nil ||
		p.Flags != nil ||
		len(p.Modifiers) > 0 {
		return unknown
	}
	name := p.Param.Value
	if name == "@" || p.Index != nil {
		return []string{string(rune(openWords))} // as words even in quotes
	}
	if p.Length {
		return []string{string(rune(openText))}
	}
	values, ours := s.vars[name]
	switch {
	case s.lost && ours: // what the line sets, or anything
		values = append(slices.Clone(values), string(rune(openText)))
	case s.lost:
		return unknown
	case ours:
		values = slices.Clone(values)
	case name == "HOME" && s.g.rules.Home != "":
		values = []string{s.g.rules.Home}
	case name == "PWD":
		values = slices.Clone(s.out.dirs)
	case name == "IFS":
		values = []string{" \t\n"}
	case name == "GIT_DIR":
		values = []string{".git", string(rune(openText))}
	default:
		values = []string{string(rune(openText))}
		if joined && !whole && p.Exp == nil && strings.Trim(name, "0123456789*#") != "" {
			return values // the environment is not of this line: it is no list of words
		}
	}
	if p.Exp != nil {
		switch p.Exp.Op {
		case syntax.DefaultUnset,
			syntax.DefaultUnsetOrNull,
			syntax.AssignUnset,
			syntax.AssignUnsetOrNull,
			syntax.AlternateUnset,
			syntax.AlternateUnsetOrNull:
			for _, v := range s.joined(p.Exp.Word) {
				if !slices.Contains(values, v) {
					values = append(values, v)
				}
			}
			if p.Exp.Op == syntax.AlternateUnset || p.Exp.Op == syntax.AlternateUnsetOrNull {
				values = append(values, "")
			}
		case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		default:
			return unknown
		}
	}
	return s.unquoted(values, whole)
}

// printed is what a substitution prints, where its words say it.
func (s *speller) printed(p *syntax.CmdSubst) ([]string, bool) {
	if text, ok := quotedText(p); ok {
		return []string{plainText(text)}, true
	}
	if len(p.Stmts) != 1 || len(p.Stmts[0].Redirs) > 0 {
		return nil, false
	}
	c, ok := p.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 {
		return nil, false
	}
	if s.inner++; s.inner > maxNested {
		s.inner--
		return nil, false
	}
	defer func() { s.inner-- }()
	lines := [][]string{nil}
	for _, a := range c.Args {
		var next [][]string
		for _, alt := range s.word(a) {
			for _, l := range lines {
				next = append(next, append(slices.Clip(l), alt...))
			}
		}
		if lines = next; len(lines) > maxSpellings {
			return nil, false
		}
	}
	var out []string
	for _, l := range lines {
		values, ok := s.said(l)
		if !ok || len(out)+len(values) > maxSpellings {
			return nil, false
		}
		out = append(out, values...)
	}
	return out, len(out) > 0
}

// said is what a command prints, where its words say it.
func (s *speller) said(words []string) ([]string, bool) {
	if len(words) == 0 {
		return nil, false
	}
	rest := words[1:]
	switch words[0] {
	case "pwd":
		return slices.Clone(s.out.dirs), true
	case "echo":
		if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !strings.Contains(strings.Join(rest, ""), `\`) {
			return []string{unglob(strings.Join(rest, " "))}, true
		}
	case "printf":
		if len(rest) > 1 && rest[0] == "%s" {
			return []string{unglob(strings.Join(rest[1:], ""))}, true
		}
		if len(rest) == 1 && !strings.ContainsAny(rest[0], `%\`) {
			return []string{unglob(rest[0])}, true
		}
	case "git":
		switch strings.Join(rest, " ") {
		case "rev-parse --git-dir", "rev-parse --git-common-dir":
			return []string{".git"}, true
		}
		if len(rest) == 3 && rest[0] == "rev-parse" && rest[1] == "--git-path" {
			return []string{".git/" + rest[2]}, true
		}
	}
	return nil, false
}

// prints reports a substitution that prints text that the line has made. What
// other programs print is their own.
func prints(p *syntax.CmdSubst) bool {
	found := false
	for _, st := range p.Stmts {
		syntax.Walk(st, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
				switch filepath.Base(c.Args[0].Lit()) {
				case "echo", "printf", "cat", "sed", "awk", "gawk", "mawk", "tr", "rev",
					"base64", "xxd", "cut", "head", "tail", "perl", "python", "python3",
					".":
					found = true
				}
			}
			return !found
		})
	}
	return found
}

// call notes a command in every form that its words may take.
func (s *speller) call(c *syntax.CallExpr, depth int) {
	lines := [][]string{nil}
	for _, a := range c.Args {
		alts := s.word(a)
		if len(lines)*len(alts) > maxLines {
			alts = [][]string{{string(rune(openWords))}}
		}
		if len(alts) == 1 {
			for i, l := range lines {
				lines[i] = append(l, alts[0]...)
			}
			continue
		}
		var next [][]string
		for _, l := range lines {
			for _, ws := range alts {
				next = append(next, append(slices.Clip(l), ws...))
			}
		}
		lines = next
	}
	for _, l := range lines {
		if s.count++; s.count > maxSurveyed {
			s.out.unread = "it has too many commands to look at"
			return
		}
		s.command(l, depth, 0)
	}
}

func (s *speller) redirect(r *syntax.Redirect) {
	switch {
	case r.Hdoc != nil:
		s.bodies = append(s.bodies, s.joined(r.Hdoc)...)
	case r.Op == syntax.WordHdoc:
		s.bodies = append(s.bodies, s.joined(r.Word)...)
	case r.Word != nil && r.Op != syntax.DplIn && r.Op != syntax.DplOut || r.Word != nil && !number(r.Word.Lit()):
		for _, ws := range s.word(r.Word) {
			for _, w := range ws {
				s.out.targets = append(s.out.targets, opened{w, changes(r.Op)})
			}
		}
	}
}

func number(text string) bool { return text != "" && strings.Trim(text, "0123456789-") == "" }

// text notes what a shell would run.
func (s *speller) text(text string, depth int) {
	if open(text) {
		s.feed("a shell would run text that is known only when the line runs")
	}
	text = strings.NewReplacer("\x04", "$_", "\x05", "$_").Replace(unglob(text))
	if depth >= maxNested || len(text) > maxParsed {
		s.feed("a shell would run text that is nested too deep")
		return
	}
	f, err := parse(text)
	if err != nil {
		s.feed("a shell would run text that cannot be parsed")
		return
	}
	s.file(f, depth+1)
}
