package console

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/drover-dev/drover/task"
)

// How a table looks.
const (
	tableGap  = 2 // blanks between columns
	leastCell = 8 // columns of the terminal that a column keeps in any terminal
)

// Colors, as codes of a terminal.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// Paint returns the color of a cell; empty: the default one.
type Paint func(row, col int) string

// Table prints rows in columns; the first row is the head. It writes once, so that a broken pipe is one
// error.
func (a *Console) Table(rows [][]string, colour Paint) error {
	_, err := a.Stdout.Write(a.LayOut(rows, colour))
	return err
}

// LayOut makes a table that fits the terminal on stdout.
func (a *Console) LayOut(rows [][]string, colour Paint) []byte {
	if !a.Colored() {
		colour = nil
	}
	return LayOut(rows, a.Columns(), colour)
}

// LayOut makes a table of at most width columns of a terminal, as far as the other columns than the
// first can be cut; 0 is no limit.
func LayOut(rows [][]string, width int, colour Paint) []byte {
	cols := columnWidths(rows)
	if width > 0 {
		narrow(cols, width)
	}
	var b bytes.Buffer
	for r, row := range rows {
		for c, text := range row {
			text = inColumns(text, cols[c])
			pad := cols[c] - TextWidth(text) + tableGap
			if colour != nil && text != "" {
				if code := colour(r, c); code != "" {
					text = "\x1b[" + code + "m" + text + "\x1b[0m"
				}
			}
			b.WriteString(text)
			if slices.ContainsFunc(row[c+1:], func(s string) bool { return s != "" }) {
				b.WriteString(strings.Repeat(" ", pad))
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// columnWidths is the width of each column. The last cell of a short row does not count: nothing
// follows it.
func columnWidths(rows [][]string) []int {
	var cols []int
	for _, row := range rows {
		cols = append(cols, make([]int, max(0, len(row)-len(cols)))...)
	}
	for _, row := range rows {
		for c, text := range row {
			if c < len(row)-1 || len(row) == len(cols) {
				cols[c] = max(cols[c], TextWidth(text))
			}
		}
	}
	return cols
}

// narrow cuts the widest columns. The first column stays: it has the IDs that users type.
func narrow(cols []int, width int) {
	sum := tableGap * (len(cols) - 1)
	for _, n := range cols {
		sum += n
	}
	for ; sum > width; sum-- {
		widest := 0
		for c := 1; c < len(cols); c++ {
			if widest == 0 || cols[c] > cols[widest] {
				widest = c
			}
		}
		if widest == 0 || cols[widest] <= leastCell {
			return
		}
		cols[widest]--
	}
}

// cells measures characters in columns of a terminal, independent of the locale.
func cells() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

func TextWidth(text string) int { return cells().StringWidth(text) }

// inColumns is the beginning of a text that fits.
func inColumns(text string, width int) string {
	if TextWidth(text) <= width || width <= 0 {
		return text
	}
	return cells().Truncate(text, width, "…")
}

// Headed is bold in the first row.
func Headed(row, _ int) string {
	if row == 0 {
		return bold
	}
	return ""
}

// ByState colors a column by its states.
func ByState(rows [][]string, name string) Paint {
	at := slices.Index(rows[0], name)
	return func(row, col int) string {
		if row == 0 || col != at {
			return Headed(row, col)
		}
		word, _, _ := strings.Cut(rows[row][col], " ")
		switch word {
		case string(task.Running), "live", "connected":
			return green
		case string(task.Failed), string(Bad), "damaged", "invalid":
			return red
		case string(task.Killed), string(Warn), "waits":
			return yellow
		case string(task.Completed), "ended", "hidden", "disabled":
			return faint
		}
		return ""
	}
}
