// Package input is the editor of prompts: several lines, a history with search, an undo,
// and pastes of any size.
//
// An [Editor] is a value: its methods return another one and do no I/O. A long paste
// takes one character of the text, a chip, which is shown as such, deleted as one, and
// becomes the whole paste again in [Editor.Value]. So does an image; see [Editor.Draft].
package input

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
)

// A longer paste becomes a chip.
const (
	chipLines = 8
	chipBytes = 800
)

// firstChip is the character that stands for the first chip. No text that is typed or
// pasted has such characters; see [printable.Typed].
const firstChip = '\U000F0000'

// maxUndo bounds how many earlier states are kept.
const maxUndo = 100

// Editor is a text that is edited, and the cursor in it.
type Editor struct {
	text   string
	at     int    // bytes before the cursor
	chips  []chip // pastes and images
	killed string // for yank
	undo   []state
	typing bool // the last change was a character, so that a word is undone at once

	history History
}

type state struct {
	text string
	at   int
}

// New makes an editor with a history, oldest first.
func New(history []string) Editor { return Editor{history: NewHistory(history)} }

// Value is the text, with all that was pasted.
func (e Editor) Value() string { return e.expanded(e.text) }

func (e Editor) expanded(text string) string {
	return e.replaced(text, func(n int) string {
		if e.chips[n].image != nil {
			return e.name(n)
		}
		return e.chips[n].text
	})
}

// replaced is a text with something in the place of each chip.
func (e Editor) replaced(text string, by func(n int) string) string {
	if len(e.chips) == 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if n := int(r - firstChip); n >= 0 && n < len(e.chips) {
			b.WriteString(by(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Empty reports whether nothing is typed.
func (e Editor) Empty() bool { return e.text == "" }

// Before returns the text before the cursor.
func (e Editor) Before() string { return e.text[:e.at] }

// Behind returns the text after the cursor.
func (e Editor) Behind() string { return e.text[e.at:] }

// Clear empties the editor. Undo brings the text back.
func (e Editor) Clear() Editor {
	e = e.changed()
	e.text, e.at, e.history.place = "", 0, -1
	return e
}

// Sent takes the text as sent: it goes to the history, and the editor is empty.
func (e Editor) Sent() Editor {
	e.history = e.history.add(e.Draft().Typed())
	e.text = "" // its images are gone with it
	return Editor{history: e.history, killed: e.expanded(e.killed)}
}

// Set replaces the text and puts the cursor at its end.
func (e Editor) Set(text string) Editor { return e.Put(Draft{Text: text}) }

// maxLoad bounds a text that is edited in place, in bytes.
const maxLoad = 16 << 10

// Load replaces the text as Set does, but never by a label. ok is false, and nothing is changed,
// for a text that the editor could not give back as it is.
func (e Editor) Load(text string) (_ Editor, ok bool) {
	if len(text) > maxLoad || printable.Typed(text) != text {
		return e, false
	}
	e = e.changed()
	e.text, e.at, e.chips = text, len(text), nil
	return e, true
}

// changed remembers the text for undo.
func (e Editor) changed() Editor {
	e.typing = false
	return e.remember()
}

func (e Editor) remember() Editor {
	from := max(0, len(e.undo)+1-maxUndo)
	e.undo = append(slices.Clone(e.undo[from:]), state{e.text, e.at})
	return e
}

// Undo takes back the last change.
func (e Editor) Undo() Editor {
	if n := len(e.undo); n > 0 {
		e.text, e.at = e.undo[n-1].text, e.undo[n-1].at
		e.undo, e.typing = e.undo[:n-1:n-1], false
	}
	return e
}

// Insert types a text.
func (e Editor) Insert(text string) Editor {
	text = printable.Typed(text)
	if text == "" {
		return e
	}
	word := utf8.RuneCountInString(text) == 1 && !unicode.IsSpace([]rune(text)[0])
	if !word || !e.typing {
		e = e.remember()
	}
	e.typing = word
	e.text = e.text[:e.at] + text + e.text[e.at:]
	e.at += len(text)
	e.history.place = -1
	return e
}

func long(text string) bool { return len(text) > chipBytes || strings.Count(text, "\n") >= chipLines }

// Paste inserts a text that was pasted.
func (e Editor) Paste(text string) Editor {
	text = printable.Typed(text)
	if !long(text) {
		e.typing = false
		return e.Insert(text)
	}
	return e.changed().add(chip{text: text})
}

// label is how a chip is shown.
func (e Editor) label(n int) string {
	if e.chips[n].image != nil {
		return e.imageLabel(n)
	}
	text := e.chips[n].text
	if lines := strings.Count(text, "\n") + 1; lines > 1 {
		return fmt.Sprintf("[pasted text %d: %d lines]", n+1, lines)
	}
	return fmt.Sprintf("[pasted text %d: %d characters]", n+1, utf8.RuneCountInString(text))
}

// next returns the length of the character at an offset.
func next(text string, at int) int {
	if at >= len(text) {
		return 0
	}
	cluster, _ := ansi.FirstGraphemeCluster(text[at:], ansi.GraphemeWidth)
	return max(1, len(cluster))
}

func before(text string, at int) int {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	if start == at {
		return min(1, at) // the newline
	}
	for {
		n := next(text, start)
		if start+n >= at {
			return at - start
		}
		start += n
	}
}

// Left and the others move the cursor.
func (e Editor) Left() Editor { return e.to(e.at - before(e.text, e.at)) }

// Right moves a character to the right.
func (e Editor) Right() Editor { return e.to(e.at + next(e.text, e.at)) }

func (e Editor) to(at int) Editor {
	e.at, e.typing = min(max(0, at), len(e.text)), false
	return e
}

// Home moves to the begin of the line, End to its end.
func (e Editor) Home() Editor { return e.to(strings.LastIndexByte(e.text[:e.at], '\n') + 1) }

// End moves to the end of the line.
func (e Editor) End() Editor {
	if n := strings.IndexByte(e.text[e.at:], '\n'); n >= 0 {
		return e.to(e.at + n)
	}
	return e.to(len(e.text))
}

// wordLeft and wordRight are the ends of words around the cursor.
func (e Editor) wordLeft() int {
	i := len(strings.TrimRightFunc(e.text[:e.at], func(r rune) bool { return !wordy(r) }))
	return len(strings.TrimRightFunc(e.text[:i], wordy))
}

func (e Editor) wordRight() int {
	rest := strings.TrimLeftFunc(e.text[e.at:], func(r rune) bool { return !wordy(r) })
	return len(e.text) - len(strings.TrimLeftFunc(rest, wordy))
}

func wordy(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r >= firstChip
}

// WordLeft moves a word to the left.
func (e Editor) WordLeft() Editor { return e.to(e.wordLeft()) }

// WordRight moves a word to the right.
func (e Editor) WordRight() Editor { return e.to(e.wordRight()) }

// remove takes out a part of the text.
func (e Editor) remove(from, to int, keep bool) Editor {
	if from >= to {
		return e
	}
	e = e.changed()
	if keep {
		e.killed = e.text[from:to]
	}
	e.text = e.text[:from] + e.text[to:]
	e.at, e.history.place = from, -1
	return e
}

// Backspace deletes the character before the cursor.
func (e Editor) Backspace() Editor { return e.remove(e.at-before(e.text, e.at), e.at, false) }

// Delete deletes the character after the cursor.
func (e Editor) Delete() Editor { return e.remove(e.at, e.at+next(e.text, e.at), false) }

// DeleteWord deletes the word before the cursor.
func (e Editor) DeleteWord() Editor { return e.remove(e.wordLeft(), e.at, true) }

// DeleteWordRight deletes the word after the cursor.
func (e Editor) DeleteWordRight() Editor { return e.remove(e.at, e.wordRight(), true) }

// DeleteToHome deletes the line up to the cursor.
func (e Editor) DeleteToHome() Editor { return e.remove(e.Home().at, e.at, true) }

// DeleteToEnd deletes what follows in the line, or the newline if nothing does.
func (e Editor) DeleteToEnd() Editor {
	end := e.End().at
	if end == e.at && end < len(e.text) {
		end++
	}
	return e.remove(e.at, end, true)
}

// Yank inserts the last deleted text.
func (e Editor) Yank() Editor {
	e = e.changed()
	e.text = e.text[:e.at] + e.killed + e.text[e.at:]
	e.at += len(e.killed)
	return e
}

// ReplaceBefore puts a text in the place of the last n bytes before the cursor, as a
// completion does.
func (e Editor) ReplaceBefore(n int, text string) Editor {
	e = e.changed()
	from := max(0, e.at-n)
	text = printable.Typed(text)
	e.text = e.text[:from] + text + e.text[e.at:]
	e.at = from + len(text)
	return e
}

// Up moves a row up; ok is false at the first.
func (e Editor) Up(width int) (_ Editor, ok bool) { return e.vertical(width, -1) }

// Down moves a row down; ok is false at the last.
func (e Editor) Down(width int) (_ Editor, ok bool) { return e.vertical(width, 1) }

func (e Editor) vertical(width, step int) (Editor, bool) {
	rows := e.rows(width)
	y, x := e.cursor(rows)
	if y+step < 0 || y+step >= len(rows) {
		return e, false
	}
	r := rows[y+step]
	at, column := r.from, 0
	for at < r.to {
		n := next(e.text, at)
		w := e.width(e.text[at : at+n])
		if column+w > x || at+n > r.to || at+n == r.to && !r.last {
			break
		}
		at, column = at+n, column+w
	}
	return e.to(at), true
}

// row is a line on the screen: bytes of the text.
type row struct {
	from, to int
	last     bool // it ends with its line, not because it is full
}

// rows breaks the text into rows.
func (e Editor) rows(width int) []row {
	width = max(4, width)
	var out []row
	from, column := 0, 0
	space := -1 // the offset after the last blank of the row
	for at := 0; at < len(e.text); {
		if e.text[at] == '\n' {
			out = append(out, row{from, at, true})
			at++
			from, column, space = at, 0, -1
			continue
		}
		n := next(e.text, at)
		w := e.width(e.text[at : at+n])
		if column+w > width && at > from {
			end := at
			if space > from {
				end = space
			}
			out = append(out, row{from, end, false})
			from, space = end, -1
			column = e.width(e.text[from:at])
		}
		column += w
		at += n
		if e.text[at-1] == ' ' {
			space = at
		}
	}
	return append(out, row{from, len(e.text), true})
}

// width is how many columns a part of the text takes.
func (e Editor) width(text string) int { return ansi.StringWidth(e.shown(text)) }

// shown is a part of the text as it is shown.
func (e Editor) shown(text string) string {
	return e.replaced(strings.ReplaceAll(text, "\t", "    "), e.label)
}

// cursor is the row and the column of the cursor.
func (e Editor) cursor(rows []row) (y, x int) {
	for i, r := range rows {
		if e.at < r.to || e.at == r.to && r.last {
			return i, e.width(e.text[r.from:e.at])
		}
	}
	r := rows[len(rows)-1]
	return len(rows) - 1, e.width(e.text[r.from:e.at])
}

// View is the text in at most height rows, and where the cursor is in them.
func (e Editor) View(width, height int, style lipgloss.Style) (lines []string, y, x int) {
	rows := e.rows(width)
	y, x = e.cursor(rows)
	from := max(0, min(y-height+1, len(rows)-height))
	if y < from {
		from = y
	}
	for _, r := range rows[from:min(len(rows), from+height)] {
		line := ansi.Truncate(e.shown(e.text[r.from:r.to]), max(4, width), "")
		if line != "" {
			line = style.Render(line)
		}
		lines = append(lines, line)
	}
	return lines, y - from, min(x, max(4, width)-1)
}

// Height is how many rows the text takes.
func (e Editor) Height(width int) int { return len(e.rows(width)) }
