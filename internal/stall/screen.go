package stall

import (
	"strings"
	"unicode/utf8"
)

// TailBytes is how much of the end of an output is looked at.
const TailBytes = 1 << 10

// screen is what a person sees at the end of an output.
type screen struct {
	line string   // the one that the cursor is in, as it stands
	last string   // the last one that is not blank
	busy bool     // the line was written over more than once: something counts, or spins
	tail []string // the last lines that are not blank, as they stand, the newest last
}

// look plays the end of an output as a terminal would, as far as single lines
// go: carriage returns, deletions and moves within the line, colours.
func look(tail []byte) screen {
	if len(tail) > TailBytes {
		tail = tail[len(tail)-TailBytes:]
	}
	text := strings.ToValidUTF8(string(tail), "")
	var s screen
	var line []rune
	at, drawn := 0, 0
	keep := func() {
		if t := strings.TrimSpace(string(line)); t != "" {
			s.last, s.tail = t, append(s.tail, string(line))
		}
	}
	for len(text) > 0 {
		if n, move := escape(text); n > 0 {
			text = text[n:]
			switch {
			case move.erase:
				line = line[:min(at, len(line))]
			case move.column > 0:
				if at = move.column - 1; at == 0 {
					drawn++
				}
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch {
		case r == '\n':
			keep()
			line, at, drawn = nil, 0, 0
		case r == '\r':
			if at > 0 && !strings.HasPrefix(text, "\n") {
				drawn++
			}
			at = 0
		case r == '\b':
			at = max(0, at-1)
		case r == '\t' || r >= ' ':
			for len(line) < at {
				line = append(line, ' ')
			}
			line = append(line[:at], append([]rune{r}, line[min(at+1, len(line)):]...)...)
			at++
		}
	}
	keep()
	s.line, s.busy = string(line), drawn > 1
	return s
}

// move is what an escape sequence does to the line; the zero move does nothing.
type move struct {
	erase  bool // from the cursor to the end
	column int  // from 1; 0: it stays
}

// escape reads the sequence that text begins with, and says how long it is; 0: it
// begins with none.
func escape(text string) (int, move) {
	if len(text) < 2 || text[0] != '\x1b' {
		return 0, move{}
	}
	if text[1] == ']' { // a title or a link, up to a bell or to an escape, of which another sequence begins
		if i := strings.IndexAny(text[2:], "\a\x1b"); i >= 0 && text[2+i] == '\a' {
			return i + 3, move{}
		} else if i >= 0 {
			return i + 2, move{}
		}
		return len(text), move{}
	}
	if text[1] != '[' {
		return 2, move{}
	}
	i := 2
	for i < len(text) && (text[i] < '@' || text[i] > '~') {
		i++
	}
	if i == len(text) {
		return i, move{}
	}
	switch text[i] {
	case 'K', 'J':
		return i + 1, move{erase: true}
	case 'G':
		column := 0
		for _, c := range text[2:i] {
			if c >= '0' && c <= '9' && column < 1000 {
				column = 10*column + int(c-'0')
			}
		}
		return i + 1, move{column: max(1, column)}
	}
	return i + 1, move{}
}
