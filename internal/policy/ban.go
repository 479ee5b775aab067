package policy

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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

// line is a shell line, parsed once for everybody who looks at it.
type line struct {
	text string
	file *syntax.File // nil: it does not parse, or is too long
	seen seen

	// doubt says why bash may read the line in another way than it was parsed.
	doubt string

	survey *survey // made when it is first asked for
}

func readLine(text string) line {
	l := line{text: text, survey: &survey{}}
	if len(text) > maxParsed {
		return l
	}
	file, err := parse(text)
	if err == nil {
		l.file, l.seen, l.doubt = file, look(file), hereDocs(text, file)
	}
	return l
}

// shellMatch looks for a ban that speaks of anything in the line.
func (g *Gate) shellMatch(rules []rule, l line) (string, bool) {
	if !slices.ContainsFunc(rules, func(r rule) bool { return len(r.words)+len(r.globs) > 0 }) {
		return "", false
	}
	for _, r := range rules {
		if r.literal != "" && r.covers("Bash") && r.literal == strings.TrimSpace(l.text) {
			return r.text, true
		}
	}
	m := matcher{g: g, rules: rules, budget: 20_000}
	if hit, ok := m.line(l, 0); ok || !strings.Contains(l.text, "\\\n") {
		return hit, ok
	}
	// bash joins lines in places where the parser does not, and the other way
	// round in comments.
	for _, instead := range []string{"", "\n"} {
		if hit, ok := m.line(readLine(strings.ReplaceAll(l.text, "\\\n", instead)), 0); ok {
			return hit, ok
		}
	}
	return "", false
}

type matcher struct {
	g      *Gate
	rules  []rule
	budget int // words still to be looked at one by one
}

func (m *matcher) nested(text string, depth int) (string, bool) {
	if depth > maxNested || m.budget <= 0 {
		return m.line(line{text: text}, depth)
	}
	return m.line(readLine(text), depth)
}

func (m *matcher) line(l line, depth int) (string, bool) {
	if l.file == nil {
		words := crude(l.text)
		if hit, ok := m.words(words, true); ok {
			return hit, ok
		}
		return m.paths(words, []string{m.g.shellDir()}, true)
	}
	if l.doubt != "" {
		if hit, ok := m.doubtful(l, depth); ok {
			return hit, ok
		}
	}
	s := l.seen
	dirs := m.g.dirs(s.commands)
	shell := slices.ContainsFunc(s.commands, func(c []word) bool { return feeds(filepath.Base(c[0].text)) })
	for _, c := range s.commands {
		m.budget -= len(c)
		harmless := m.g.inert(c[0].text) || ownWords(c)
		if hit, ok := m.words(c, shell || !harmless); ok {
			return hit, ok
		}
		if hit, ok := m.paths(c[1:], dirs, !m.g.inert(c[0].text)); ok {
			return hit, ok
		}
		for _, w := range c[1:] {
			if (shell || !harmless) && strings.ContainsAny(w.text, " \t\n;|&()`$!") {
				if hit, ok := m.nested(strings.TrimPrefix(w.text, "!"), depth+1); ok {
					return hit, ok
				}
			}
		}
	}
	if shell {
		for _, body := range s.bodies {
			if hit, ok := m.nested(body, depth+1); ok {
				return hit, ok
			}
		}
	}
	for _, t := range s.targets {
		if hit, ok := m.paths([]word{t.word}, dirs, changes(t.op)); ok {
			return hit, ok
		}
	}
	return "", false
}

// doubtful looks at a line of which nobody knows what is data in it: everything may
// be a command, and each of its lines the first one.
func (m *matcher) doubtful(l line, depth int) (string, bool) {
	if hit, ok := m.line(line{text: l.text}, depth); ok {
		return hit, ok
	}
	_, rest, more := strings.Cut(l.text, "\n")
	for range maxDoubtful {
		if !more {
			break
		}
		after := readLine(rest)
		after.doubt = ""
		if hit, ok := m.line(after, depth); ok {
			return hit, ok
		}
		_, rest, more = strings.Cut(rest, "\n")
	}
	return "", false
}

// maxDoubtful bounds how many lines are looked at as first ones. Behind them every
// word counts all the same.
const maxDoubtful = 64

// words looks for the command of a ban at the beginning, or anywhere, because a
// program of which nothing is known may run what its words say.
func (m *matcher) words(ws []word, anywhere bool) (string, bool) {
	if own := gitCommand(len(ws), func(i int) string { return ws[i].text }); own > 1 {
		if hit, ok := m.words(append([]word{ws[0]}, ws[own:]...), anywhere); ok {
			return hit, ok
		}
	}
	var tokens []token
	for _, r := range m.rules {
		if len(r.words) == 0 {
			continue
		}
		if slices.Contains(r.words, "*") {
			if tokens == nil {
				for _, w := range ws {
					tokens = append(tokens, token{text: plainText(w.text)})
				}
			}
			if unify(r.words, tokens, r.prefix, false, anywhere) {
				return r.text, true
			}
			continue
		}
		for i := range ws {
			if i > 0 && !anywhere {
				break
			}
			if follows(r.words, ws[i:], r.prefix) {
				return r.text, true
			}
		}
	}
	return "", false
}

// follows reports whether the words begin as the rule says, in which no word is *.
// A program is also known by its path. A ban on an exact line holds for a longer
// one only if it says so.
func follows(rule []string, ws []word, prefix bool) bool {
	if len(ws) < len(rule) || !prefix && len(ws) != len(rule) ||
		!like(rule[0], ws[0].text) && !like(rule[0], filepath.Base(ws[0].text)) {
		return false
	}
	for i, want := range rule[1:] {
		if !like(want, ws[i+1].text) {
			return false
		}
	}
	return true
}

// like matches text with a pattern in which * stands for any text, in time
// that grows with their product.
func like(pattern, text string) bool { return match(pattern, text, '*', 0) }

// match compares text with a pattern in which one byte stands for any text and
// another for any one byte.
func match(pattern, text string, many, one byte) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == many:
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == text[t] || one != 0 && pattern[p] == one):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], string(rune(many))) == ""
}

// paths looks for a file that a ban on reading, or on writing, speaks of.
func (m *matcher) paths(ws []word, dirs []string, write bool) (string, bool) {
	if !slices.ContainsFunc(
		m.rules,
		func(r rule) bool { return len(r.globs) > 0 && (write || kindOf(r.tool) != editTool) },
	) {
		return "", false
	}
	for _, w := range ws {
		if strings.HasPrefix(w.text, "--exclude=") || strings.HasPrefix(w.text, "--exclude-dir=") {
			continue // it is left out
		}
		for _, form := range spellings(w.text) {
			for _, dir := range dirs {
				forms := m.g.forms(form, dir)
				for _, r := range m.rules {
					if len(r.globs) > 0 && (write || kindOf(r.tool) != editTool) && matchForms(r, forms) {
						return r.text, true
					}
				}
			}
		}
	}
	return "", false
}

// spellings are the parts of a word that may be a path: of if=x, @x, -ox, and
// of a revision with a path.
func spellings(text string) []string {
	if text == "" {
		return nil
	}
	out := []string{text}
	for _, sep := range []string{"=", ":"} {
		if _, rest, ok := strings.Cut(text, sep); ok && rest != "" {
			out = append(out, rest)
		}
	}
	if i := strings.LastIndexByte(text, ':'); i >= 0 && i+1 < len(text) && i != strings.IndexByte(text, ':') {
		out = append(out, text[i+1:]) // of :0:x and :(top)x:y
	}
	if rest, ok := strings.CutPrefix(text, "~+/"); ok {
		out = append(out, "./"+rest)
	}
	if rest, ok := strings.CutPrefix(text, "@"); ok && rest != "" {
		out = append(out, rest)
	}
	if strings.HasPrefix(text, "-") && len(text) > 2 {
		out = append(out, text[2:])
	}
	return out
}

// changes reports whether a redirection can change a file.
func changes(op syntax.RedirOperator) bool { return op != syntax.RdrIn && op != syntax.DplIn }

// dirs are directories in which a command of the line may run, as far as its
// words say.
func (g *Gate) dirs(commands [][]word) []string {
	all := []string{g.shellDir()}
	for _, c := range commands {
		if name := c[0].text; name != "cd" && name != "pushd" || len(c) < 2 || len(all) > 8 {
			continue
		}
		for _, dir := range all[:len(all):len(all)] {
			if real, err := resolve(g.expand(c[len(c)-1].text, dir)); err == nil && !slices.Contains(all, real) {
				all = append(all, real)
			}
		}
	}
	return all
}

// inert reports programs that never run another program, and write no file,
// whatever their words are.
func (g *Gate) inert(name string) bool {
	p := g.memory.known().program(name)
	if p == nil {
		return name == "cd"
	}
	switch p.operands {
	case "wrap", "rule", "one":
		return false
	}
	switch name {
	case "rg", "ag", "fd", "fdfind", "bat", "batcat", "man", "less", "more", "diff3", "nm", "awk", "gawk",
		"mawk", "nawk", "help":
		return false
	}
	for _, o := range p.options {
		if o.risk == writes {
			return false
		}
	}
	return true
}

// gitCommand is where the command of git stands behind the options of git itself,
// and 0 if it is not git.
func gitCommand(n int, at func(int) string) int {
	if n == 0 || filepath.Base(at(0)) != "git" {
		return 0
	}
	for i := 1; i < n; i++ {
		switch w := at(i); {
		case slices.Contains([]string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path",
			"--config-env", "--super-prefix"}, w):
			i++
		case !strings.HasPrefix(w, "-"):
			return i
		}
	}
	return 0
}

// ownWords reports commands of programs whose words are their own: those of git
// rm are not the program rm.
func ownWords(c []word) bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(c[1:], func(w word) bool {
			name, _, _ := strings.Cut(w.text, "=")
			return slices.Contains(names, name)
		})
	}
	switch filepath.Base(c[0].text) {
	case "git":
		return !has(
			"bisect", "submodule", "rebase", "filter-branch", "difftool", "mergetool", "-c",
			"--exec-path", "--config-env", "-x", "--exec", "--upload-pack", "--receive-pack",
		)
	case "npm", "pnpm", "yarn", "bun":
		return !has("exec", "x", "dlx", "-c", "--call")
	case "go":
		return !has("-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool")
	case "docker", "podman", "kubectl", "gh", "pip", "pip3", "cargo", "brew", "apt", "apt-get", "systemctl",
		"helm", "terraform":
		return true
	}
	return false
}

// feeds reports programs that take commands from their words or their input:
// then every text in the line may be a command.
func feeds(name string) bool {
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "eval", "source", ".", "xargs", "parallel",
		"ssh", "at", "batch", "trap":
		return true
	}
	return false
}
