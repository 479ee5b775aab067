package stall

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// TailBytes is how much of the end of an output is examined.
const TailBytes = 1 << 10

// screen is the view of a person at the end of an output.
type screen struct {
	line   string   // the line of the cursor
	last   string   // that line, or else the nearest non-blank one above it
	above  []string // the non-blank lines down to the cursor
	rows   []string // all non-blank lines
	near   []string // the non-blank lines nearest to the cursor
	busy   bool     // the line was overwritten more than once: a counter or a spinner
	edits  bool     // a line editor reads the line
	full   bool     // the program positions the cursor
	bar    bool     // the whole line is in reverse video, as the last line of a pager
	idle   bool     // the cursor was moved to the corner, out of the way
	hidden bool     // the cursor is hidden
}

// Bounds of the screen, whose real size is unknown. The output begins at the last row, since it may move the cursor up.
const (
	mostRows   = 300
	mostColumn = 1100
	corner     = 79 // the last column of a common terminal
)

// terminal folds the end of an output into the lines that a person sees and the few facts that tell a prompt from
// progress. It knows the sequences that change one of these in the outputs of testdata, and skips the others.
type terminal struct {
	rows [][]rune
	place
	saved    place
	low      int  // the lowest row to which the cursor was moved
	drawn    int  // how often the line was begun again
	prev     rune // the last character
	graphics bool // line-drawing character set
	inverse  bool // reverse video
	inverted int  // number of consecutive characters in reverse video
	bar      bool // the complete line is in reverse video
	parked   bool // the last operation was a move to a column after the start of the line
	asked    bool // the cursor position was requested, or one space was erased, and nothing was written since
	spaced   bool // the last operation was a space, not preceded by a step back
	back     bool // the last operation was a step back
	editing  bool // bracketed paste is on, as for line editors
	other    bool // the alternate screen is on
	hidden   bool // the cursor is hidden
}

// place is the position of the cursor.
type place struct {
	row, at int
	top     int  // the row that programs call the first one: after the rows written before
	owned   bool // the program has addressed a row
	placed  bool // and no line feed followed
}

// look folds the end of an output.
func look(tail []byte) screen {
	if len(tail) > TailBytes {
		tail = tail[len(tail)-TailBytes:]
	}
	t := &terminal{place: place{row: mostRows}}
	p := ansi.NewParser()
	p.SetHandler(ansi.Handler{
		Print:     t.put,
		Execute:   t.control,
		HandleCsi: t.sequence,
		HandleEsc: func(c ansi.Cmd) {
			switch {
			case c.Intermediate() == '(':
				t.graphics = c.Final() == '0'
			case c.Final() == '7':
				t.saved = t.place
			case c.Final() == '8':
				t.place = t.saved
			}
		},
	})
	for _, b := range bytes.ToValidUTF8(tail, nil) {
		p.Advance(b)
	}
	return t.screen()
}

// nearby bounds the distance of the lines that tell progress: the rest of a screen may be any text, as in an editor.
const nearby = 4

func (t *terminal) screen() screen {
	s := screen{
		busy: t.drawn > 1, hidden: t.hidden, bar: t.bar, full: t.placed || t.other,
		idle: t.placed && t.parked && t.at >= corner && t.row == t.low,
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
		if max(n-t.row, t.row-n) < nearby {
			s.near = append(s.near, trim(line))
		}
		if n <= t.row {
			s.above = append(s.above, line)
		}
	}
	s.edits = t.editing || t.asked || t.parked && !t.placed && len(s.rows) > 0 && after([]rune(s.line), t.at)
	if n := len(s.above); n > 0 {
		s.last = strings.TrimSpace(s.above[n-1])
	}
	return s
}

// after reports whether the cursor is after the text of its line, or in a blank line.
func after(line []rune, at int) bool {
	before := string(line[:min(at, len(line))])
	return strings.TrimSpace(string(line)) == "" || strings.TrimSpace(before) != ""
}

// trim removes the sides of a box.
func trim(row string) string {
	return strings.TrimFunc(row, func(r rune) bool { return unicode.IsSpace(r) || r >= '─' && r <= '▟' })
}

// control executes a control character.
func (t *terminal) control(c byte) {
	switch c {
	case '\n':
		t.row, t.at, t.drawn = t.row+1, 0, 0
		t.placed, t.parked, t.bar = false, false, false
	case '\r':
		if t.at > 0 {
			t.drawn++
		}
		t.at, t.parked = 0, false
	case '\b':
		t.at, t.parked, t.asked = max(0, t.at-1), false, t.spaced
		t.spaced, t.back = false, true
	case '\t':
		t.put('\t')
	}
}

// put writes a character.
func (t *terminal) put(r rune) {
	if unicode.IsControl(r) && r != '\t' {
		return
	}
	if t.graphics && r >= 'j' && r <= 'x' {
		r = '│'
	}
	t.prev, t.parked, t.asked, t.bar = r, false, false, t.inverse && (t.at == 0 || t.bar)
	t.spaced, t.back = r == ' ' && !t.back, false
	if t.at >= mostColumn {
		return
	}
	if t.inverse {
		t.inverted++
	}
	line := t.fill()
	*line = append((*line)[:t.at], append([]rune{r}, (*line)[min(t.at+1, len(*line)):]...)...)
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

// sequence executes a control sequence.
func (t *terminal) sequence(c ansi.Cmd, params ansi.Params) {
	param := func(i, otherwise int) int {
		n, _, _ := params.Param(i, otherwise)
		return n
	}
	n := min(max(1, param(0, 1)), mostRows)
	switch c.Prefix() {
	case 0:
	case '?':
		t.mode(param(0, 0), c.Final())
		return
	default:
		return
	}
	switch c.Final() {
	case 'A':
		t.row, t.drawn = max(0, t.row-n), 0
	case 'B':
		t.row, t.drawn = min(t.row+n, 2*mostRows+TailBytes), 0
	case 'C':
		t.at, t.parked = min(t.at+n, mostColumn), true
	case 'D':
		t.at, t.parked = max(0, t.at-n), false
	case 'G':
		if t.at, t.parked = n-1, n > 1; n == 1 {
			t.drawn++
		}
	case 'd':
		t.address(n-1, t.at)
	case 'H', 'f':
		t.address(n-1, max(1, param(1, 1))-1)
	case 'J', 'K':
		t.erase(c.Final(), param(0, 0))
	case 's':
		t.saved = t.place
	case 'u':
		t.place = t.saved
	case 'n':
		t.asked = param(0, 0) == 6
	case 'm':
		t.invert(params)
	}
}

// address moves the cursor to a row, counted from 0. A program that does so owns the screen.
func (t *terminal) address(row, at int) {
	if !t.owned {
		t.top = len(t.rows)
	}
	t.row, t.at, t.drawn, t.parked = t.top+min(row, mostRows), min(at, mostColumn), 0, at > 0
	t.low = max(t.low, t.row)
	t.owned = t.owned || row+at > 0 // lines that follow the first place are as without addressing
	t.placed = t.owned
}

func (t *terminal) mode(n int, final byte) {
	on := final == 'h'
	switch n {
	case 47, 1047, 1049:
		t.clear()
		t.other = on
	case 25:
		t.hidden = !on
	case 2004:
		t.editing = on
	}
}

// clear clears the screen and forgets the addressed rows.
func (t *terminal) clear() { t.rows, t.place, t.low, t.drawn = nil, place{}, 0, 0 }

// invert switches reverse video. A single space in reverse video is a cursor that the program draws itself.
func (t *terminal) invert(params ansi.Params) {
	on := t.inverse
	params.ForEach(0, func(_, n int, _ bool) {
		switch n {
		case 0, 27:
			on = false
		case 7:
			on = true
		}
	})
	if !on && t.inverted == 1 && t.prev == ' ' && t.at > 0 && t.row < len(t.rows) && t.at <= len(t.rows[t.row]) {
		t.rows[t.row][t.at-1] = caret
	}
	t.inverse, t.inverted = on, 0
}

// caret represents a cursor that the program draws.
const caret = '█'

// erase erases the end of the line, or of the screen, or all of either.
func (t *terminal) erase(what byte, which int) {
	if which == 0 {
		line := t.fill()
		*line = (*line)[:t.at]
		if what == 'J' {
			t.rows = t.rows[:t.row+1]
		}
		return
	}
	if what == 'J' && which >= 2 {
		t.clear()
	}
	if what == 'K' && which == 2 {
		*t.fill() = nil
	}
}
