package policy

import (
	"path/filepath"
	"strings"
)

// token is a word of a command for the comparison with a rule.
type token struct {
	text string // a spelling
	any  bool   // it may be no word or several
}

func tokensOf(words []string) []token {
	out := make([]token, len(words))
	for i, w := range words {
		out[i] = token{w, strings.ContainsRune(w, openWords)}
		if len(w) > maxOpen && marked(w) {
			out[i].text = string(rune(openText))
		}
	}
	return out
}

// fitting is how far the words of a rule have been found.
type fitting struct {
	found  []bool // at i: its first i words
	option []bool // at i: and then an option, whose value may come next
}

// unify reports whether the words of a command could begin as a rule says. A *
// that is a word of the rule stands for any words. With options, options may stand
// between the words of the rule; with anywhere, the command may begin at any word.
// The time grows with the product of the lengths.
func unify(rule []string, ws []token, prefix, options, anywhere bool) bool {
	n := len(rule)
	now, next := fitting{make([]bool, n+1), make([]bool, n+1)}, fitting{make([]bool, n+1), make([]bool, n+1)}
	now.found[0] = true
	stars(rule, now.found)
	for at, w := range ws {
		if prefix && now.found[n] {
			return true
		}
		if anywhere && !now.found[0] {
			now.found[0] = true
			stars(rule, now.found)
		}
		clear(next.found)
		clear(next.option)
		for i := range n + 1 {
			if now.option[i] {
				next.found[i] = true
			}
			if !now.found[i] {
				continue
			}
			if w.any {
				several(rule, i, w.text, at == 0 || anywhere, next.found)
			}
			if i == n {
				continue
			}
			if rule[i] == "*" {
				next.found[i] = true
			} else if fits(rule[i], w.text, i == 0 && (at == 0 || anywhere)) {
				next.found[i+1] = true
			}
			if options && i > 0 && fits("-*", w.text, false) && w.text != "-" && w.text != "--" {
				next.found[i] = true
				next.option[i] = !strings.Contains(w.text, "=")
			}
		}
		stars(rule, next.found)
		now, next = next, now
	}
	return now.found[n]
}

// stars goes on over words of the rule that stand for no word.
func stars(rule []string, found []bool) {
	for i, want := range rule {
		if found[i] && want == "*" {
			found[i+1] = true
		}
	}
}

// several notes what a word may be that is no word or several.
func several(rule []string, i int, text string, program bool, found []bool) {
	head, _, _ := strings.Cut(text, string(rune(openWords)))
	if text == string(rune(openWords)) {
		found[i] = true // no word at all
	}
	if i == len(rule) {
		found[i] = true
		return
	}
	if rule[i] != "*" && !fits(rule[i], head+string(rune(openText)), program && i == 0) {
		return
	}
	for k := i + 1; k <= len(rule); k++ { // what follows may be anything
		found[k] = true
	}
}

// fits compares one word of a rule with a spelling. A program is also known by
// its path.
func fits(want, text string, program bool) bool {
	if !marked(text) {
		return like(want, text) || program && like(want, filepath.Base(text))
	}
	want = strings.ReplaceAll(want, "*", "\x04")
	text = strings.ReplaceAll(text, "\x05", "\x04")
	return meet(want, text) || program && meet(want, text[strings.LastIndexByte(text, '/')+1:])
}

// wide marks stand for any number of bytes.
func wide(c byte) bool { return c == openText || c == anyText }

// common reports whether two bytes of patterns have a byte in common.
func common(a, b byte) bool {
	switch {
	case a == openText || b == openText:
		return true
	case a == anyText || a == anyByte:
		return b != '/'
	case b == anyText || b == anyByte:
		return a != '/'
	}
	return a == b
}

// meet reports whether two patterns have a text in common: openText is any text,
// anyText any without a slash, anyByte one byte but a slash. anyFrom begins a set
// of bytes, and counts as any text up to the next slash. What is left open at the
// beginning of a name in b finds no point there, as names of files in a shell.
func meet(a, b string) bool {
	a, b = sets(a), sets(b)
	from := 0
	for from < len(a) && from < len(b) && a[from] > wordBreak && b[from] > wordBreak {
		if a[from] != b[from] {
			return false
		}
		from++
	}
	for n := 1; len(a)-n >= from && len(b)-n >= from && a[len(a)-n] > wordBreak && b[len(b)-n] > wordBreak; n++ {
		if a[len(a)-n] != b[len(b)-n] {
			return false
		}
	}
	row, next := make([]bool, len(b)+2), make([]bool, len(b)+2)
	row[from] = true
	for i := from; ; i++ {
		for j := from; j <= len(b); j++ {
			if !row[j] {
				continue
			}
			if j < len(b) && wide(b[j]) {
				row[j+1] = true
			}
			if i == len(a) {
				continue
			}
			if wide(a[i]) {
				next[j] = true
			}
			if j == len(b) || !common(a[i], b[j]) || a[i] == '.' && hides(a, i) && b[j] <= anyByte && hides(b, j) {
				continue
			}
			switch {
			case wide(a[i]) && wide(b[j]):
			case wide(a[i]):
				row[j+1] = true
			case wide(b[j]):
				next[j] = true
			default:
				next[j+1] = true
			}
		}
		if i == len(a) {
			return row[len(b)]
		}
		row, next = next, row
		clear(next)
	}
}

// hides reports the beginning of a name in a path.
func hides(s string, i int) bool { return i == 0 || s[i-1] == '/' }

// sets makes any text of sets of bytes.
func sets(s string) string {
	for {
		i := strings.IndexByte(s, anyFrom)
		if i < 0 {
			return s
		}
		end := strings.IndexByte(s[i:], '/')
		if end < 0 {
			end = len(s) - i
		}
		s = s[:i] + string(rune(anyText)) + s[i+end:]
	}
}
