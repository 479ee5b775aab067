// Package printable makes text of unknown origin fit for the screen: names, output,
// arguments, texts of models, pastes.
//
// It is the one door by which such text enters the terminal UI. Text that has gone
// through it holds no escape sequence, no control character but newlines, and nothing
// that changes the order in which other text is shown. [Guard] checks the same of
// finished lines, which may also hold the colours of the UI itself.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// TabWidth is how many columns a tab takes at most.
const TabWidth = 4

// Block makes the output of a program printable, as lines.
func Block(s string) string {
	return Tabs(strings.TrimRight(excerpt.Plain(s), "\n"))
}

// Line is text on one line of at most limit characters, such as a name.
func Line(s string, limit int) string { return excerpt.Line(s, limit) }

// Prose makes the text of a model printable. Marks that belong to a script or an emoji stay.
func Prose(s string) string {
	if harmless(s) {
		return s
	}
	return excerpt.Prose(strings.ReplaceAll(s, "\r\n", "\n"))
}

// Exact is text for somebody who decides about it: nothing is left out, and what
// cannot be seen is shown as a mark such as <U+202E>.
func Exact(s string) string { return Tabs(excerpt.Exact(s)) }

// Typed makes typed or pasted text printable: newlines and tabs stay, and whole escape sequences
// and other control characters go.
func Typed(s string) string {
	if harmless(s) {
		return s
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	if strings.ContainsRune(s, '\x1b') || strings.ContainsRune(s, '\u009b') {
		s = ansi.Strip(s)
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.Is(unicode.Co, r) {
			return '\uFFFD'
		}
		return r
	}, excerpt.Prose(s))
}

// harmless reports whether s is printable ASCII, tabs and newlines only.
func harmless(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Tabs replaces tabs by spaces up to the next stop.
func Tabs(s string) string {
	if !strings.Contains(s, "\t") {
		return s
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			n := TabWidth - column%TabWidth
			b.WriteString("    "[:n])
			column += n
		case '\n':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
	}
	return b.String()
}

// Guard is a finished line without anything but printable characters and colours: of
// escape sequences only those that end in m stay.
func Guard(line string) string {
	if guarded(line) {
		return line
	}
	var b strings.Builder
	for i := 0; i < len(line); {
		if n := colour(line[i:]); n > 0 {
			b.WriteString(line[i : i+n])
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(line[i:])
		if !alive(r) {
			b.WriteString(line[i : i+size])
		}
		i += size
	}
	return b.String()
}

func guarded(line string) bool {
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == 0x1b:
			n := colour(line[i:])
			if n == 0 {
				return false
			}
			i += n
		case c < ' ' || c == 0x7f:
			return false
		case c < 0x80:
			i++
		default:
			r, size := utf8.DecodeRuneInString(line[i:])
			if alive(r) {
				return false
			}
			i += size
		}
	}
	return true
}

// colour is the length of the sequence that s begins with, if it sets colours: ESC [,
// digits, semicolons and colons, m.
func colour(s string) int {
	if len(s) < 3 || s[0] != 0x1b || s[1] != '[' {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c == ';', c == ':':
		case c == 'm':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

func alive(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' ||
		r >= '\u2066' && r <= '\u2069'
}
