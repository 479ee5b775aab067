package markdown

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// Complete reports whether lines that [Render] has made show every letter and digit of the source
// in its order: that is not so where Markdown hides text, such as the title of a link.
func Complete(source string, lines []string) bool {
	shown := []rune(ansi.Strip(strings.Join(lines, "\n")))
	// [Render] replaces without loss the number of a list item, which it counts, and the language of a fence.
	unseen := regexp.MustCompile("(?m)^[ >]*\\d{1,9}[.)] |^[ >]*(```+|~~~+) *[A-Za-z0-9+#_-]{1,20} *$")
	at := 0
	for _, r := range unseen.ReplaceAllString(source, "") {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			continue
		}
		for at < len(shown) && shown[at] != r {
			at++
		}
		if at == len(shown) {
			return false
		}
		at++
	}
	return true
}
