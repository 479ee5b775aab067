package stall

import "strings"

// sequence is an escape sequence (ECMA-48, and what xterm adds to it).
type sequence struct {
	name    string // its introducer and its last byte: "[H", "?h", "(0", "7"
	numbers string // parameters between the two, separated by ;
}

// number returns the i-th parameter, or a default if it is missing.
func (q sequence) number(i, otherwise int) int {
	fields := strings.SplitN(q.numbers, ";", i+2)
	if i >= len(fields) || fields[i] == "" {
		return otherwise
	}
	n := 0
	for _, c := range fields[i] {
		if c >= '0' && c <= '9' && n < 10000 {
			n = 10*n + int(c-'0')
		}
	}
	return n
}

// escape parses the sequence at the beginning of text, and returns its length; 0: there is
// none.
func escape(text string) (int, sequence) {
	if len(text) < 2 || text[0] != '\x1b' {
		return 0, sequence{}
	}
	switch text[1] {
	case ']', 'k', 'P', '_', '^': // a title, a link or the like
		return 2 + stringEnd(text[2:]), sequence{}
	case '(', ')':
		return min(3, len(text)), sequence{name: text[1:min(3, len(text))]}
	case '[':
		i := 2
		for i < len(text) && (text[i] < '@' || text[i] > '~') {
			i++
		}
		if i == len(text) {
			return i, sequence{}
		}
		begins, numbers := "[", text[2:i]
		if strings.HasPrefix(numbers, "?") {
			begins, numbers = "?", numbers[1:]
		}
		return i + 1, sequence{name: begins + text[i:i+1], numbers: numbers}
	}
	return 2, sequence{name: text[1:2]}
}

// stringEnd returns where a string for the terminal itself ends: after BEL, or before ESC,
// which begins another sequence.
func stringEnd(text string) int {
	i := strings.IndexAny(text, "\a\x1b")
	switch {
	case i < 0:
		return len(text)
	case text[i] == '\a':
		return i + 1
	}
	return i
}
