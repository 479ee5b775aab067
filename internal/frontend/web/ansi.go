package web

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// sgr finds the next sequence that sets colours or attributes; from < 0: none.
func sgr(text string) (from, to int, numbers string) {
	for at := 0; ; at += 2 {
		n := strings.Index(text[at:], "\x1b[")
		if n < 0 {
			return -1, len(text), ""
		}
		at += n
		rest := strings.TrimLeft(text[at+2:], "0123456789;:")
		if strings.HasPrefix(rest, "m") {
			end := len(text) - len(rest)
			return at, end + 1, text[at+2 : end]
		}
	}
}

// attributes are the classes of the style sheet for bold, faint, italic, underlined and inverse text, and numbers the
// parameters that switch each on.
const (
	attributes = "bfiuv"
	numbers    = "\x01\x02\x03\x04\x07"
)

// style is the style of output.
type style struct {
	on         uint8 // attributes, as bits
	text, back int   // 1 to 16; 0: default
}

// classes are the classes of the style sheet.
func (s style) classes() string {
	var c []string
	for n, name := range strings.Split(attributes, "") {
		if s.on&(1<<n) != 0 {
			c = append(c, name)
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

// styleOf is the style of classes. It ignores unknown ones.
func styleOf(classes string) (s style) {
	for c := range strings.FieldsSeq(classes) {
		if n := strings.Index(attributes, c); n >= 0 && len(c) == 1 {
			s.on |= 1 << n
		} else if n, err := strconv.Atoi(c[1:]); err == nil && n >= 0 && n < 16 && c[0] == 'c' {
			s.text = n + 1
		} else if err == nil && n >= 0 && n < 16 && c[0] == 'g' {
			s.back = n + 1
		}
	}
	return s
}

// set applies the parameters of a sequence. Colours beyond the sixteen become the default.
func (s style) set(parameters string) style {
	words := strings.FieldsFunc(parameters, func(r rune) bool { return r == ';' || r == ':' })
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
		case n < 10 && strings.IndexByte(numbers, byte(n)) >= 0:
			s.on |= 1 << strings.IndexByte(numbers, byte(n))
		case n == 22:
			s.on &^= 3
		case n == 23 || n == 24:
			s.on &^= 4 << (n - 23)
		case n == 27:
			s.on &^= 16
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
		case n == 38:
			s.text, words = extended(words)
		case n == 48:
			s.back, words = extended(words)
		}
	}
	return s
}

// extended reads a colour of the 256 or a true colour; one beyond the sixteen is 0.
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

// drawn returns output as HTML with its colours, escaped, and the style at its end. Of a line that was overwritten
// after a carriage return it shows the last state.
func drawn(text string, s style) (string, style) {
	var b strings.Builder
	for l := range strings.Lines(text) {
		body, nl := strings.CutSuffix(l, "\n")
		body = strings.TrimRight(body, "\r")
		hidden := strings.LastIndexByte(body, '\r') + 1
		for at := 0; at < len(body); {
			from, to, numbers := sgr(body[at:])
			end := at + to
			if from >= 0 {
				end = at + from
			}
			if part := excerpt.Plain(body[min(max(at, hidden), end):end]); part != "" {
				if c := s.classes(); c != "" {
					b.WriteString(`<span class="` + c + `">` + html.EscapeString(part) + `</span>`)
				} else {
					b.WriteString(html.EscapeString(part))
				}
			}
			if from >= 0 {
				s = s.set(numbers)
			}
			at += to
		}
		if nl {
			b.WriteByte('\n')
		}
	}
	return b.String(), s
}

// whole returns how many bytes of data are complete characters and sequences. The rest continues in the next part.
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
