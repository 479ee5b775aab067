package shell

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote returns a line that a shell splits into the arguments.
func Quote(args ...string) string {
	words := make([]string, len(args))
	for i, a := range args {
		switch {
		case a != "" && !strings.ContainsFunc(a, special):
			words[i] = a
		case strings.Contains(a, "'") && !strings.ContainsAny(a, "\"\\$`!"):
			words[i] = `"` + a + `"`
		default:
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// special reports whether a character may not be in a word that is not quoted.
func special(r rune) bool {
	return strings.ContainsRune("\"'`\\$&|;<>()[]{}*?!#~^ ", r) || r == utf8.RuneError || !unicode.IsPrint(r)
}
