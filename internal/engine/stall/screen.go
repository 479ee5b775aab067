package stall

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TailBytes is how much of the end of an output is examined.
const TailBytes = 1 << 10

// screen is what a person sees at the end of an output.
type screen struct {
	line   string   // the line of the cursor
	last   string   // that line, or else the nearest non-blank one above it, or below it
	above  []string // the non-blank lines down to that of the cursor
	rows   []string // all non-blank lines
	fresh  []string // the lines written last, for a program that positions the cursor
	busy   bool     // the line was overwritten more than once: a counter or a spinner
	edits  bool     // a line editor reads the line
	full   bool     // the program positions the cursor
	bar    bool     // the whole line is in reverse video, as the last line of a pager
	idle   bool     // the cursor was moved to the corner, out of the way
	hidden bool     // the cursor is hidden
}

// Minimum and maximum size of the emulated screen, whose real size is unknown.
const (
	lines      = 24
	columns    = 80
	mostRows   = 300
	mostColumn = 1100
)

// terminal emulates a terminal for the end of an output. The earlier output is unknown: it
// starts with a blank screen.
type terminal struct {
	rows [][]rune
	place
	saved    place
	wrote    []int // the rows, in the order of their last writes
	low      int   // the lowest row to which the cursor was moved
	drawn    int   // how often the line was begun again
	prev     rune  // the last character
	graphics bool  // line-drawing character set
	inverse  bool  // reverse video
	inverted int   // number of consecutive characters in reverse video
	bar      bool  // the complete line is in reverse video
	parked   bool  // the last operation was a move to a column after the start of the line
	asked    bool  // the cursor position was requested, or one space was erased, and nothing was written since
	spaced   bool  // the last operation was a space, not preceded by a step back
	back     bool  // the last operation was a step back
	editing  bool  // bracketed paste is on, as for line editors
	other    bool  // the alternate screen is on
	hidden   bool  // the cursor is hidden
	keys     bool  // the keypad is in application mode
}

// place is the position of the cursor, and whether it was set or results from writing.
type place struct {
	row, at   int
	top       int  // the row that programs call the first one
	addressed bool // a row was addressed since the screen was cleared
	fed       bool // a line feed followed
}

// look emulates a terminal for the end of an output.
func look(tail []byte) screen {
	if len(tail) > TailBytes {
		tail = tail[len(tail)-TailBytes:]
	}
	t := &terminal{place: place{row: mostRows}} // the output may move the cursor up
	for text := strings.ToValidUTF8(string(tail), ""); text != ""; {
		if n, q := escape(text); n > 0 {
			text = text[n:]
			t.obey(q)
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		t.write(r, strings.HasPrefix(text, "\n"))
	}
	return t.screen()
}

// freshest is how many of the lines written last are examined: the rest of a screen may be any
// text, for example in an editor.
const freshest = 4

func (t *terminal) screen() screen {
	placed := t.addressed && !t.fed
	s := screen{
		busy: t.drawn > 1, hidden: t.hidden, bar: t.bar, full: placed || t.other || t.keys,
		idle: placed && t.parked && t.at >= columns-1 && t.row-t.top == t.low,
	}
	for n, row := range t.rows {
		line := string(row)
		if n == t.row {
			s.line = line
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		s.rows = append(s.rows, line)
		if n <= t.row {
			s.above = append(s.above, line)
		}
	}
	s.fresh = t.fresh(placed || strings.TrimSpace(s.line) == "")
	s.edits = t.editing || t.asked || t.parked && !placed && len(s.rows) > 0 && behind([]rune(s.line), t.at)
	for _, of := range [][]string{s.rows, s.above} {
		if len(of) > 0 {
			s.last = strings.TrimSpace(of[len(of)-1])
		}
	}
	return s
}

// behind reports whether the cursor is after the text of its line.
func behind(line []rune, at int) bool {
	before, all := string(line[:min(at, len(line))]), string(line)
	return strings.TrimSpace(all) == "" || strings.TrimSpace(before) != ""
}

// fresh returns the lines that were written last, or only that of the cursor.
func (t *terminal) fresh(several bool) (out []string) {
	if !several {
		return []string{string(t.rows[t.row])}
	}
	for _, n := range slices.Backward(t.wrote) {
		if n < len(t.rows) && len(out) < freshest && trim(string(t.rows[n])) != "" {
			out = append(out, trim(string(t.rows[n])))
		}
	}
	return out
}

// trim removes the sides of a box.
func trim(row string) string {
	return strings.TrimFunc(row, func(r rune) bool { return unicode.IsSpace(r) || r >= '─' && r <= '▟' })
}

// write writes one character; feeds: a line feed follows.
func (t *terminal) write(r rune, feeds bool) {
	switch {
	case r == '\n':
		t.feed()
	case r == '\r':
		if t.at > 0 && !feeds {
			t.drawn++
		}
		t.at, t.parked = 0, false
	case r == '\b':
		t.at, t.parked, t.asked = max(0, t.at-1), false, t.spaced
		t.spaced, t.back = false, true
	case r == '\t' || r >= ' ' && !unicode.IsControl(r):
		t.put(r)
	}
}

func (t *terminal) feed() {
	t.fed = true
	if t.addressed && t.row-t.top+1 >= max(lines, t.low+1) {
		t.top++
	}
	t.row, t.at, t.drawn, t.parked = t.row+1, 0, 0, false
	t.bar = false
}

func (t *terminal) put(r rune) {
	if t.graphics && r >= 'j' && r <= 'x' {
		r = '│'
	}
	t.prev, t.parked, t.asked, t.bar = r, false, false, t.inverse && (t.at == 0 || t.bar)
	t.spaced, t.back = r == ' ' && !t.back, false
	if t.at >= mostColumn {
		return
	}
	if n := len(t.wrote); r != ' ' && (n == 0 || t.wrote[n-1] != t.row) {
		t.wrote = append(slices.DeleteFunc(t.wrote, func(row int) bool { return row == t.row }), t.row)
	}
	line := t.fill()
	if t.inverse {
		t.inverted++
	}
	if t.at == len(*line) {
		*line = append(*line, r)
	} else {
		(*line)[t.at] = r
	}
	t.at++
}

// fill extends the line of the cursor to the cursor.
func (t *terminal) fill() *[]rune {
	for len(t.rows) <= t.row {
		t.rows = append(t.rows, nil)
	}
	line := &t.rows[t.row]
	for len(*line) < t.at {
		*line = append(*line, ' ')
	}
	return line
}

// address moves the cursor to a row, counted from 0.
func (t *terminal) address(row, at int) {
	if t.top == 0 {
		t.top = len(t.rows)
	}
	row = min(row, mostRows)
	t.row, t.at, t.drawn, t.parked = t.top+row, min(at, mostColumn), 0, at > 0
	if row+at == 0 && !t.addressed {
		return // home: lines follow as without addressing
	}
	t.addressed, t.fed, t.low = true, false, max(t.low, row)
}

// clear clears the screen, and resets the addressing of rows.
func (t *terminal) clear() {
	t.rows, t.wrote, t.place, t.low, t.drawn = nil, nil, place{}, 0, 0
}

// obey executes an escape sequence. Colors and unknown sequences do nothing.
func (t *terminal) obey(q sequence) {
	n := min(max(1, q.number(0, 1)), mostRows)
	switch q.name {
	case "[A":
		t.row, t.drawn = max(0, t.row-n), 0
	case "[F":
		t.row, t.at, t.drawn = max(0, t.row-n), 0, 0
	case "[B":
		t.row, t.drawn = min(t.row+n, 2*mostRows+TailBytes), 0
	case "[C":
		t.at, t.parked = min(t.at+n, mostColumn), true
	case "[D":
		t.at, t.parked = max(0, t.at-n), false
	case "[G":
		if t.at, t.parked = n-1, n > 1; n == 1 {
			t.drawn++
		}
	case "[d":
		t.address(n-1, t.at)
	case "[H", "[f":
		t.address(n-1, max(1, q.number(1, 1))-1)
	case "[J", "[K", "[X", "[P", "[@":
		t.erase(q.name, q.number(0, 0), n)
	case "[b":
		for range min(n, columns) {
			t.write(t.prev, false) // there is no character to repeat yet
		}
	case "[n":
		t.asked = q.number(0, 0) == 6
	case "7", "[s":
		t.saved = t.place
	case "8", "[u":
		t.place = t.saved
	case "[m":
		t.invert(strings.HasPrefix(q.numbers+";", "7;") || t.inverse && q.numbers != "27" && q.number(0, 0) != 0)
	case "(0", "(B":
		t.graphics = q.name == "(0"
	case "=", ">":
		t.keys = q.name == "="
	case "c":
		t.clear()
	case "?h", "?l":
		t.mode(q, q.name == "?h")
	}
}

func (t *terminal) mode(q sequence, on bool) {
	switch q.number(0, 0) {
	case 1:
		t.keys = on
	case 47, 1047, 1049:
		t.clear()
		t.other = on
	case 25:
		t.hidden = !on
	case 2004:
		t.editing = on
	}
}

// invert switches reverse video. A single space in reverse video is a cursor that the program
// draws itself.
func (t *terminal) invert(on bool) {
	if !on && t.inverted == 1 && t.prev == ' ' && t.at > 0 && t.row < len(t.rows) && t.at <= len(t.rows[t.row]) {
		t.rows[t.row][t.at-1] = caret
	}
	t.inverse, t.inverted = on, 0
}

// caret represents a cursor that the program draws.
const caret = '█'

// erase erases characters of the line or of the screen.
func (t *terminal) erase(name string, which, n int) {
	if name == "[J" && which >= 2 {
		t.clear()
		return
	}
	line := t.fill()
	end := min(t.at+n, len(*line))
	switch {
	case name == "[P":
		*line = slices.Delete(*line, t.at, end)
	case name == "[@":
		*line = slices.Insert(*line, t.at, slices.Repeat([]rune{' '}, min(n, columns))...)
		*line = (*line)[:min(len(*line), mostColumn)]
	case name == "[X":
		blank((*line)[t.at:end])
	case which == 0:
		*line = (*line)[:t.at]
		if name == "[J" {
			t.rows = t.rows[:t.row+1]
		}
	case which == 1:
		blank((*line)[:min(t.at+1, len(*line))])
	default:
		blank(*line)
	}
}

func blank(of []rune) {
	for i := range of {
		of[i] = ' '
	}
}
