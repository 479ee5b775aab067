package console

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// How a table looks.
const (
	tableGap  = 2 // blanks between columns
	leastCell = 8 // columns of the terminal that a column keeps in any terminal
)

// Colours, as the numbers that a terminal is given.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint is the colour of a cell; empty: that of the terminal.
type paint func(row, col int) string

// Table prints rows in columns, the first of which are the heads. It is written as a
// whole, so that a pipe that breaks is met once.
func (a *Console) Table(rows [][]string, colour paint) error {
	_, err := a.Stdout.Write(a.LayOut(rows, colour))
	return err
}

// LayOut makes a table, as wide as the terminal if there is one.
func (a *Console) LayOut(rows [][]string, colour paint) []byte {
	if !a.Colored() {
		colour = nil
	}
	return LayOut(rows, a.Columns(), colour)
}

// LayOut makes a table that is at most width columns of a terminal wide, where that is
// possible without the first column; 0 is no limit.
func LayOut(rows [][]string, width int, colour paint) []byte {
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

// columnWidths is what each column needs. The last cell of a row that is shorter than
// others needs nothing, since nothing stands behind it.
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

// narrow takes from the widest columns what is too much; the first column has what is
// typed again, and stays.
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

// cells knows how many columns of a terminal characters take, whatever the locale says.
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

// ByState colours one column by the state that it names.
func ByState(rows [][]string, name string) paint {
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

// icon stands for what a teammate is about: it rests, or it is at work.
func icon(r task.Record) string {
	if r.Idle {
		return "…"
	}
	return "▶"
}

// mateDoing is the work of a live teammate with what it is about.
func mateDoing(r task.Record) string {
	return Cell(Work(r), 30) + ": " + icon(r) + " " + excerpt.Line(r.Activity(), 50)
}
