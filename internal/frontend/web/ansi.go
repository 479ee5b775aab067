package web

import (
	"bytes"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// sgr is a sequence that sets colours and the like.
var sgr = regexp.MustCompile("\x1b\\[([0-9;:]*)m")

// style is how output is drawn from a place on: the classes of its element.
type style struct {
	bold, faint, italic, underline, inverse bool
	text, back                              int // 1 to 16; 0: as usual
}

// classes are those of the page's style sheet, which has the sixteen colours.
func (s style) classes() string {
	var c []string
	for _, on := range []struct {
		is   bool
		name string
	}{{s.bold, "b"}, {s.faint, "f"}, {s.italic, "i"}, {s.underline, "u"}, {s.inverse, "v"}} {
		if on.is {
			c = append(c, on.name)
		}
	}
	if s.text > 0 {
		c = append(c, "c"+strconv.Itoa(s.text-1))
	}
	if s.back > 0 {
		c = append(c, "g"+strconv.Itoa(s.back-1))
	}
	return strings.Join(c, " ")
}

// styleOf is the style that classes mean. Others than those of a style are left out.
func styleOf(classes string) (s style) {
	for c := range strings.FieldsSeq(classes) {
		switch c {
		case "b":
			s.bold = true
		case "f":
			s.faint = true
		case "i":
			s.italic = true
		case "u":
			s.underline = true
		case "v":
			s.inverse = true
		default:
			if n, err := strconv.Atoi(c[1:]); err == nil && n >= 0 && n < 16 && c[0] == 'c' {
				s.text = n + 1
			} else if err == nil && n >= 0 && n < 16 && c[0] == 'g' {
				s.back = n + 1
			}
		}
	}
	return s
}

// set applies the numbers of a sequence. Colours beyond the sixteen are drawn as usual.
func (s style) set(numbers string) style {
	words := strings.FieldsFunc(numbers, func(r rune) bool { return r == ';' || r == ':' })
	if len(words) == 0 {
		return style{}
	}
	for len(words) > 0 {
		n, err := strconv.Atoi(words[0])
		words = words[1:]
		switch {
		case err != nil:
		case n == 0:
			s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.faint = true
		case n == 3:
			s.italic = true
		case n == 4:
			s.underline = true
		case n == 7:
			s.inverse = true
		case n == 22:
			s.bold, s.faint = false, false
		case n == 23:
			s.italic = false
		case n == 24:
			s.underline = false
		case n == 27:
			s.inverse = false
		case n >= 30 && n <= 37:
			s.text = n - 29
		case n >= 90 && n <= 97:
			s.text = n - 81
		case n >= 40 && n <= 47:
			s.back = n - 39
		case n >= 100 && n <= 107:
			s.back = n - 91
		case n == 39:
			s.text = 0
		case n == 49:
			s.back = 0
		case n == 38 || n == 48:
			var c int
			if c, words = extended(words); n == 38 {
				s.text = c
			} else {
				s.back = c
			}
		}
	}
	return s
}

// extended reads a colour of the 256 or of all; those beyond the sixteen are 0.
func extended(words []string) (colour int, rest []string) {
	switch {
	case len(words) >= 2 && words[0] == "5":
		if n, err := strconv.Atoi(words[1]); err == nil && n >= 0 && n < 16 {
			colour = n + 1
		}
		return colour, words[2:]
	case len(words) >= 4 && words[0] == "2":
		return 0, words[4:]
	}
	return 0, nil
}

// drawn is output as HTML, in which nothing is alive but its colours, and the style at its end. A line
// that was drawn again shows what it showed last.
func drawn(text string, s style) (string, style) {
	var b strings.Builder
	for l := range strings.Lines(text) {
		body, nl := strings.CutSuffix(l, "\n")
		body = strings.TrimRight(body, "\r")
		if at := strings.LastIndexByte(body, '\r'); at >= 0 {
			for _, m := range sgr.FindAllStringSubmatch(body[:at], -1) {
				s = s.set(m[1])
			}
			body = body[at+1:]
		}
		from := 0
		for _, m := range append(sgr.FindAllStringSubmatchIndex(body, -1), nil) {
			to := len(body)
			if m != nil {
				to = m[0]
			}
			if part := excerpt.Plain(body[from:to]); part != "" {
				if c := s.classes(); c != "" {
					b.WriteString(`<span class="` + c + `">` + html.EscapeString(part) + `</span>`)
				} else {
					b.WriteString(html.EscapeString(part))
				}
			}
			if m != nil {
				s, from = s.set(body[m[2]:m[3]]), m[1]
			}
		}
		if nl {
			b.WriteByte('\n')
		}
	}
	return b.String(), s
}

// whole is how many bytes of data are whole characters and whole sequences of colours; the rest comes
// with what follows it.
func whole(data []byte) int {
	const longest = 32 // bytes of a sequence
	end := len(data)
	for n := 1; n <= min(utf8.UTFMax-1, end); n++ {
		if utf8.RuneStart(data[end-n]) {
			if !utf8.FullRune(data[end-n:]) {
				end -= n
			}
			break
		}
	}
	from := max(0, end-longest)
	if at := bytes.LastIndexByte(data[from:end], 0x1b); at >= 0 &&
		strings.Trim(strings.TrimPrefix(string(data[from+at+1:end]), "["), "0123456789;:") == "" {
		end = from + at
	}
	if end == 0 {
		return len(data)
	}
	return end
}
