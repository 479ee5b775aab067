package stall

import "strings"

// sequence is an escape sequence (ECMA-48, and what xterm adds to it).
type sequence struct {
	name    string // how it begins and its last byte: "[H", "?h", "(0", "7"
	numbers string // between the two, with ; between them
}

// number is the i-th of its numbers, or what stands for one that is not given.
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

// escape reads the sequence that text begins with, and says how long it is; 0: it
// begins with none.
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

// stringEnd is where a text for the terminal itself ends: behind a bell, or before
// an escape, with which another sequence begins.
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
