package excerpt

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Exact shows text to a person who decides about it: every character that is
// invisible, that looks like a space without being one, or that changes the look of
// others is shown as a mark such as <U+202E>, and a byte that is not UTF-8
// as <0xFF>. Tabs and newlines stay. A "<" of the text that could be taken for the
// beginning of a mark is marked itself, as <U+003C>: two texts that differ are
// shown differently.
func Exact(s string) string {
	if harmless(s) && !strings.Contains(s, "<U+") && !strings.Contains(s, "<0x") {
		return s
	}
	out := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, "<0x%02X>", s[i])
		case r == '<' && (strings.HasPrefix(s[i:], "<U+") || strings.HasPrefix(s[i:], "<0x")),
			r != '\n' && r != '\t' && opaque(r):
			out = fmt.Appendf(out, "<U+%04X>", r)
		default:
			out = append(out, s[i:i+size]...)
		}
		i += size
	}
	return string(out)
}

// ExactLine is [Exact] on one line: newlines and tabs are marked too.
func ExactLine(s string) string {
	return strings.NewReplacer("\n", "<U+000A>", "\t", "<U+0009>").Replace(Exact(s))
}

// JSON escapes, in the way of JSON, the characters of one or more JSON texts that would
// control a terminal or be invisible on it. The result decodes to the same values; bytes
// that are not UTF-8 become U+FFFD, as they do in a decoder.
func JSON(data []byte) []byte {
	if !bytes.ContainsFunc(data, func(r rune) bool { return r == utf8.RuneError || live(r) }) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case !live(r):
			out = append(out, data[:size]...)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		data = data[size:]
	}
	return out
}

// live reports characters that JSON need not escape and that must not reach a
// terminal. A JSON string has no control characters below a space.
func live(r rune) bool { return r >= 0x7f && opaque(r) }

// opaque reports characters that [Exact] marks.
func opaque(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return false
	case r >= 0xfe00 && r <= 0xfe0f || r == 0x2800: // variation selectors, and an empty Braille cell
		return true
	}
	return hidden(r) || !unicode.IsPrint(r)
}

// Prose makes the answer of a model fit for a terminal: it removes characters that
// control a terminal or change the order of text. Marks that belong to a script or an
// emoji stay, unlike in [Plain].
func Prose(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r) && r != '\u200e' && r != '\u200f' && r != '\u061c',
			r == '\u200b', r == '\ufeff', r == '\u2028', r == '\u2029', r >= 0xe0000 && r <= 0xe007f:
			return -1
		}
		return r
	}, text)
}
