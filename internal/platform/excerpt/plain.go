package excerpt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	esc      = 0x1b
	csi      = '['
	sequence = "]PX^_" // after ESC: OSC, DCS, SOS, PM, APC, all of which end at ST
)

// Plain makes the output of a program harmless and readable: it removes escape
// sequences, reduces a line that was redrawn by carriage returns or backspaces to
// its last state, and treats all else as [Visible] does. The work is linear, and
// Plain(Plain(s)) == Plain(s).
func Plain(s string) string {
	if harmless(s) {
		return s
	}
	p := printer{out: make([]byte, 0, len(s))}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == esc:
			i += sequenceLength(s[i:])
		case r == 0x90 || r == 0x98 || r == 0x9b || r >= 0x9d && r <= 0x9f:
			// The eight-bit form of ESC and a letter.
			i += sequenceBody(byte(r-0x40), s[i:])
		case r == '\n':
			p.newline()
		case r == '\r':
			p.redraw = true
		case r == '\b':
			p.backspace()
		default:
			p.put(r)
		}
	}
	return string(p.out)
}

// WithoutSequences returns s without escape sequences, such as colours, for text that a
// program reads.
func WithoutSequences(s string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, esc)
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i+1:]
		s = s[sequenceLength(s):]
	}
}

// Visible shows every invisible character, and every character that could change
// the look of others, as a mark such as <U+200B>. Tabs and newlines stay; invalid
// UTF-8 becomes U+FFFD. It removes no characters.
func Visible(s string) string {
	if harmless(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		out = appendVisible(out, r)
	}
	return string(out)
}

// Line is [Plain] on one line of at most limit code points, for names,
// titles and errors.
func Line(s string, limit int) string {
	s = strings.Join(strings.Fields(Plain(first(s, 8*max(limit, 0)))), " ")
	if utf8.RuneCountInString(s) > limit && limit > 0 {
		return first(s, limit-1) + "…"
	}
	return s
}

// harmless reports whether s is printable ASCII, tabs and newlines only.
func harmless(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < ' ' && c != '\n' && c != '\t') || c >= 0x7f {
			return false
		}
	}
	return true
}

// printer is a terminal with one line.
type printer struct {
	out    []byte
	line   int  // where the line begins in out
	redraw bool // a carriage return came: the next character begins the line anew
}

func (p *printer) put(r rune) {
	if p.redraw {
		p.out, p.redraw = p.out[:p.line], false
	}
	p.out = appendVisible(p.out, r)
}

func (p *printer) newline() {
	p.out = append(p.out, '\n')
	p.line, p.redraw = len(p.out), false
}

func (p *printer) backspace() {
	if p.redraw || len(p.out) == p.line {
		return
	}
	_, size := utf8.DecodeLastRune(p.out)
	p.out = p.out[:len(p.out)-size]
}

func appendVisible(out []byte, r rune) []byte {
	if hidden(r) {
		return fmt.Appendf(out, "<U+%04X>", r)
	}
	return utf8.AppendRune(out, r)
}

// hidden reports characters without a shape of their own: controls, the format
// class (bidi, zero width, tags), separators that end lines, and fillers.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ' || r >= 0x7f && r <= 0x9f:
		return true
	case r < 0x80:
		return false
	case r == 0x2028 || r == 0x2029:
		return true
	case r == 0x034f || r == 0x115f || r == 0x1160 || r == 0x17b4 || r == 0x17b5 || r == 0x3164 || r == 0xffa0:
		return true
	case r >= 0x180b && r <= 0x180f, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

// sequenceLength returns the number of bytes of s that belong to an escape sequence
// whose ESC was just before s.
func sequenceLength(s string) int {
	if s == "" {
		return 0
	}
	if c := s[0]; c == csi || strings.IndexByte(sequence, c) >= 0 {
		return 1 + sequenceBody(c, s[1:])
	}
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
		i++
	}
	if i < len(s) && s[i] >= 0x30 && s[i] <= 0x7e {
		i++
	}
	return i
}

// sequenceBody returns the number of bytes of s that belong to a sequence of the kind.
// A string without an end reaches to the end of its line only, so that it cannot
// hide the text after it.
func sequenceBody(kind byte, s string) int {
	i := 0
	if kind == csi {
		for i < len(s) && s[i] >= 0x30 && s[i] <= 0x3f {
			i++
		}
		for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
			i++
		}
		if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7e {
			i++
		}
		return i
	}
	for i < len(s) {
		switch c := s[i]; {
		case c == 0x07: // BEL ends an OSC, and in practice the others too
			return i + 1
		case c == esc:
			if i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
			return i
		case c == 0xc2 && i+1 < len(s) && s[i+1] == 0x9c: // ST in eight bits
			return i + 2
		case c < ' ' && c != '\t':
			return i
		}
		i++
	}
	return i
}
