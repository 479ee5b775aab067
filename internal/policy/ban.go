package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// shellMatch looks for a ban that speaks of a plain word in the line, in any position.
func (g *Gate) shellMatch(rules []rule, l line) (string, bool) {
	text := strings.TrimSpace(l.text)
	for _, r := range rules {
		if r.literal != "" && r.covers("Bash") && r.literal == text {
			return r.text, true
		}
		if len(r.words) > 0 && slices.ContainsFunc(l.commands, func(c command) bool { return c.begins(r, false) }) {
			return r.text, true
		}
		if len(r.globs) == 0 {
			continue
		}
		reads := kindOf(r.tool) != editTool
		for _, c := range l.commands {
			if len(c.words) > 0 && (reads || changes(c)) && g.speaksOfAny(r, c.words[1:], l.dirs) {
				return r.text, true
			}
		}
		for _, t := range l.targets {
			if !t.body() && (reads || t.writes()) && g.speaksOfAny(r, []word{t.word}, l.dirs) {
				return r.text, true
			}
		}
	}
	return "", false
}

// begins reports whether a command is one that the rule names, at its beginning, or at any word if the program may run
// what its words say. Loosely, words that the line does not show are what the rule has, and options may stand between.
func (c command) begins(r rule, loose bool) bool {
	if len(c.words) == 0 {
		return false
	}
	ws := c.words
	anywhere := !talks(c) && (!loose || launches(c.name()))
	first := func(w word) bool { return r.words[0] == "*" || fits(r.words[0], w, true, loose) || loose && w.split }
	if !first(ws[0]) && !(anywhere && slices.ContainsFunc(ws[1:], first)) {
		return false
	}
	if own := gitCommand(ws); own > 1 && follows(r, append([]word{ws[0]}, ws[own:]...), anywhere, loose) {
		return true
	}
	if own := gitCommand(ws); own > 1 && loose && !slices.ContainsFunc(ws[1:own], func(w word) bool { return w.split }) {
		return false
	}
	return follows(r, ws, anywhere, loose)
}

// follows compares words with those of a rule, in which the word * stands for any words. The time grows with the
// product of the lengths.
func follows(r rule, ws []word, anywhere, loose bool) bool {
	n := len(r.words)
	found, next := make([]bool, n+1), make([]bool, n+1) // at i: its first i words
	option := make([]bool, n+1)                         // at i: and then an option, whose value may come next
	found[0] = true
	stars := func() {
		for i, want := range r.words {
			found[i+1] = found[i+1] || found[i] && want == "*"
		}
	}
	stars()
	for at, w := range ws {
		if r.prefix && found[n] {
			return true
		}
		clear(next)
		value := slices.Clone(option)
		clear(option)
		for i := range n + 1 {
			if next[i] = next[i] || value[i]; !found[i] || i == n {
				continue
			}
			switch {
			case r.words[i] == "*":
				next[i] = true
			case fits(r.words[i], w, i == 0 && (at == 0 || anywhere), loose):
				next[i+1] = true
			}
			if loose && i > 0 && strings.HasPrefix(w.text, "-") && len(w.text) > 1 && w.text != "--" {
				next[i], option[i] = true, !strings.Contains(w.text, "=")
			}
			if loose && w.split && (i > 0 || w.pattern == anyText || fits(r.words[i],
				word{pattern: before(w.pattern) + anyText, open: true}, true, true)) {
				for k := i; k <= n; k++ { // it may be no word, or several
					next[k] = true
				}
			}
		}
		next[0] = next[0] || anywhere
		found, next = next, found
		stars()
	}
	return found[n]
}

func before(pattern string) string {
	text, _, _ := strings.Cut(pattern, anyText)
	return text
}

// fits compares one word with one of a rule. A program is also known by its path.
func fits(want string, w word, program, loose bool) bool {
	if !w.marked() || !loose {
		return !w.open && (like(want, w.text) || program && like(want, filepath.Base(w.text)))
	}
	return may(want, w.pattern) || program && may(want, w.pattern[strings.LastIndexByte(w.pattern, '/')+1:])
}

// may reports whether a text with marks could be one that a pattern with * matches, by its beginning and its end.
func may(want, pattern string) bool {
	head, tail := before(pattern), pattern[strings.LastIndex(pattern, anyText)+1:]
	if !strings.Contains(pattern, anyText) {
		return like(want, pattern)
	}
	first, last := want, want
	if i := strings.IndexByte(want, '*'); i >= 0 {
		first, last = want[:i], want[strings.LastIndexByte(want, '*')+1:]
	} else if len(head)+len(tail) > len(want) {
		return false
	}
	ends := func(a, b string) bool { return strings.HasSuffix(a, b) || strings.HasSuffix(b, a) }
	starts := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	if len(first) == len(want) {
		return strings.HasPrefix(want, head) && strings.HasSuffix(want, tail)
	}
	return starts(first, head) && ends(last, tail)
}

// like matches text with a pattern in which * stands for any text, in time that grows with their product.
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

// speaksOfAny reports whether a ban speaks of a file that one of the words names.
func (g *Gate) speaksOfAny(r rule, ws []word, dirs []string) bool {
	for _, w := range ws {
		if w.open && !w.odd || strings.HasPrefix(w.text, "--exclude=") || strings.HasPrefix(w.text, "--exclude-dir=") {
			continue // it is left out, or not known
		}
		for _, form := range spellings(w.text) {
			for _, dir := range dirs {
				if matchForms(r, g.forms(form, dir)) {
					return true
				}
			}
		}
	}
	return false
}

// spellings are the parts of a word that may be a path: of if=x, @x, -ox, and of a revision with a path.
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
	if i := strings.LastIndexByte(text, ':'); i >= 0 && i+1 < len(text) {
		out = append(out, text[i+1:]) // of :0:x and :(top)x:y
	}
	if rest, ok := strings.CutPrefix(text, "~+/"); ok {
		out = append(out, "./"+rest)
	}
	if i := strings.IndexByte(text, '@'); i >= 0 && i+1 < len(text) && i < 3 {
		out = append(out, text[i+1:])
	}
	if text[0] == '-' && len(text) > 2 {
		out = append(out, text[2:])
		if i := strings.IndexAny(text, "./~"); i > 2 {
			out = append(out, text[i:])
		}
	}
	return out
}

// doubt looks for a ban that the words of a line could spell, though they do not plainly: a word that is known only
// when the line runs, a folder with a banned file that is read as a whole, text for a shell that the line does not
// show. What a program does that the line starts is no doubt.
// bounded says that a sandbox hides what rules deny.
func (g *Gate) doubt(rules []rule, l line, bounded bool) (rule, why string) {
	for _, r := range rules {
		hidden := bounded && g.hides(r)
		if len(r.words)+len(r.globs) == 0 {
			continue
		}
		if !hidden && l.unread != "" {
			return r.text, l.unread
		}
		if len(r.words) > 0 {
			if l.fed != "" {
				return r.text, l.fed
			}
			for _, c := range l.commands {
				if c.begins(r, true) || launched(c, r) {
					return r.text, "a command may be one that it names"
				}
			}
			continue
		}
		for _, c := range l.commands {
			if file := g.committed(r, c, l); file != "" {
				return r.text, "git shows what commits hold, and " + file + " is in one"
			}
			if !hidden && g.mayUse(r, c, l) {
				return r.text, c.name() + " may use a file that it names"
			}
		}
		for _, t := range l.targets {
			if !t.body() && (kindOf(r.tool) == editTool) == t.writes() && (t.word.marked() || l.lost) &&
				t.word.text != "/dev/null" && !hidden {
				return r.text, "a redirection may open a file that it names"
			}
		}
	}
	return "", ""
}

// launched reports whether xargs or find runs a command that may be one of a rule, with words that the line does not
// show.
func launched(c command, r rule) bool {
	ws := slices.Clone(c.words)
	for i, w := range ws {
		if strings.Contains(w.text, "{}") {
			ws[i] = word{pattern: strings.ReplaceAll(w.text, "{}", anyText), open: true}
		}
	}
	if at := slices.IndexFunc(ws, runsFound); at > 0 && !talks(c) && searches(c.name()) {
		return command{words: ws[at+1:]}.begins(r, true)
	}
	if name := c.name(); name != "xargs" && name != "parallel" {
		return false
	}
	ws = append(ws[1:], word{pattern: anyText, open: true, split: true})
	for strings.HasPrefix(ws[0].text, "-") || !ws[0].open && strings.Trim(ws[0].text, "0123456789") == "" {
		ws = ws[1:]
	}
	if len(ws) > 2 && ws[0].open { // the value of -I
		ws = ws[1:]
	}
	one := command{words: ws}
	return one.begins(r, true) || launches(one.name())
}

// runsFound reports options of find and fd after which a command follows.
func runsFound(w word) bool {
	return slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"}, w.text)
}

// maxLaunched bounds where in the words of a program that runs others a command is looked for.
const maxLaunched = 32

// mayUse reports whether a command may use a file that a ban names, though its words do not say so.
func (g *Gate) mayUse(r rule, c command, l line) bool {
	if len(c.words) == 0 || silent(c) {
		return false
	}
	for i := 1; i < len(c.words) && i < maxLaunched && launches(c.name()); i++ {
		if inner := (command{words: c.words[i:]}); !launches(inner.name()) && g.mayUse(r, inner, l) {
			return true
		}
	}
	if kindOf(r.tool) == editTool && !changes(c) {
		return false
	}
	_, reads := readerOf(c.name())
	known := reads || writer(c.name(), c.words[1:]) || launches(c.name()) || reachesDeep(c)
	if removes(c.name()) && slices.ContainsFunc(c.words[1:], func(w word) bool { return g.around(r, w, l.dirs) }) {
		return true
	}
	if kindOf(r.tool) != editTool && slices.Contains([]string{"tee", "touch", "rm", "rmdir", "unlink", "chmod", "chown",
		"truncate"}, c.name()) {
		return false // they show nothing
	}
	if l.lost || slices.ContainsFunc(c.words[1:], func(w word) bool {
		return w.glob || w.open && (known ||
			w.pattern != anyText)
	}) {
		return true
	}
	if !reachesDeep(c) || kindOf(r.tool) == editTool {
		return false
	}
	some, operands := false, 0
	if searches(c.name()) && c.name() != "find" {
		operands = -1 // its first one is a pattern, and not a folder
	}
	for _, w := range c.words[1:] {
		if strings.HasPrefix(w.text, "-") {
			continue
		}
		operands++
		for _, dir := range l.dirs {
			if real, err := resolve(g.expand(w.text, dir)); err == nil && isFolder(real) {
				some = some || operands > 0
				if holds(r, real) {
					return true
				}
			}
		}
	}
	return !some && searches(c.name()) && slices.ContainsFunc(l.dirs, func(dir string) bool { return holds(r, dir) }) ||
		c.name() == "xargs"
}

// changes reports commands that may change the files in their words.
func changes(c command) bool { return !talks(c) || writer(c.name(), c.words[1:]) }

// around reports whether a word names a folder above the files of a ban.
func (g *Gate) around(r rule, w word, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		real, err := resolve(g.expand(w.text, dir))
		below := func(glob string) bool { return strings.HasPrefix(glob, real+"/") }
		return err == nil && !w.marked() && slices.ContainsFunc(r.globs, below)
	})
}

// silent reports commands that open no file in their words.
func silent(c command) bool {
	switch c.name() {
	case "echo", "printf", "true", "false", ":", "test", "[", "cd", "sleep", "seq", "kill", "pwd", "make", "mkdir",
		"export", "exit", "pushd", "popd", "set", "wait", "date", "basename", "dirname", "ls", "which", "type", "ps":
		return true
	case "git":
		return !slices.ContainsFunc(c.words, func(w word) bool { return w.text == "--no-index" })
	case "find":
		return talks(c)
	}
	if _, reads := readerOf(c.name()); reads {
		return false
	}
	return talks(c)
}

// reachesDeep reports commands that read whole folders.
func reachesDeep(c command) bool {
	has := func(letters string, long ...string) bool {
		return slices.ContainsFunc(c.words[1:], func(w word) bool {
			return strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "--") && strings.ContainsAny(w.text, letters) ||
				slices.Contains(long, w.text)
		})
	}
	switch c.name() {
	case "grep", "egrep", "fgrep":
		return has("rR", "--recursive", "--dereference-recursive")
	case "find", "fd", "fdfind":
		return !talks(c)
	case "rg", "ag", "ack", "tar", "bsdtar", "zip", "cp", "mv", "ln", "rsync", "scp", "diff", "sdiff", "xargs", "7z":
		return true
	}
	return false
}

// searches reports programs that read the folder that they run in.
func searches(name string) bool {
	return slices.Contains([]string{"grep", "egrep", "fgrep", "rg", "ag", "ack", "find", "fd", "fdfind"}, name)
}

// holds reports whether a ban on reading speaks of something that could lie in the folder, or is it.
func holds(r rule, dir string) bool {
	if kindOf(r.tool) == editTool || r.spares(strings.ToLower(dir)) {
		return false
	}
	for _, glob := range r.globs {
		fixed := glob
		if i := strings.IndexAny(glob, `*?[{\`); i >= 0 {
			fixed = glob[:strings.LastIndexByte(glob[:i], '/')+1]
		}
		fixed = strings.TrimSuffix(fixed, "/")
		if dir == "/" || fixed == dir || strings.HasPrefix(fixed, dir+"/") ||
			fixed != glob && (fixed == "" || strings.HasPrefix(dir, fixed+"/")) {
			return true
		}
	}
	return false
}

// mayHold reports whether a rule speaks of something that could lie in the folder, or is it.
func (g *Gate) mayHold(dir string) bool {
	of := func(r rule) bool { return holds(r, dir) }
	return slices.ContainsFunc(g.deny, of) || slices.ContainsFunc(g.ask, of)
}

// matchForms reports whether a ban speaks of a file, in all of its forms. A ban on a folder holds for all files in it.
func matchForms(r rule, forms []string) bool {
	for _, glob := range r.lower {
		for _, form := range forms {
			if !strings.HasPrefix(form, glob.fixed) || r.spares(form) {
				continue
			}
			if ok, err := doublestar.Match(glob.text, form); ok || err != nil {
				return true
			}
			if ok, _ := doublestar.Match(glob.text+"/**", form); ok {
				return true
			}
		}
	}
	return false
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
