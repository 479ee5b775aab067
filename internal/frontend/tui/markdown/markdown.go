// Package markdown draws Markdown as lines of a terminal.
//
// A growing text is drawn as a [Stream]: the part before the last boundary between two
// blocks is drawn once, and only the part after it again with each piece. The text must
// be printable already; see package printable. A small scanner colours source code: the
// lexers of chroma would cost 9 ms before main.
package markdown

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/theme"
)

// Least is the smallest width of a drawing. A narrower screen cuts the lines.
const Least = 16

// Stream is a text that grows at its end, drawn at one width.
type Stream struct {
	theme theme.Theme
	width int
	from  int      // the text before it is in done
	done  []string // lines

	tail      []string // the drawing of the text after from
	tailBytes int
	drawn     bool

	// Work counts the bytes that were drawn, for tests.
	Work int
}

// NewStream makes a stream.
func NewStream(t theme.Theme, width int) *Stream { return &Stream{theme: t, width: max(Least, width)} }

// Lines draws the text, which extends the text of the last call. The result is valid
// until the next call.
func (s *Stream) Lines(text string) []string {
	if s.from > len(text) {
		*s = *NewStream(s.theme, s.width)
	}
	if end := boundary(text, s.from); end > s.from {
		s.Work += end - s.from
		s.done = appendBlocks(s.done, Render(s.theme, text[s.from:end], s.width))
		s.from, s.drawn = end, false
	}
	if rest := text[s.from:]; !s.drawn || len(rest) != s.tailBytes {
		s.Work += len(rest)
		s.tail, s.tailBytes, s.drawn = Render(s.theme, rest, s.width), len(rest), true
	}
	return appendBlocks(s.done[:len(s.done):len(s.done)], s.tail)
}

// appendBlocks appends lines to others, with an empty line between them.
func appendBlocks(lines, more []string) []string {
	if len(more) == 0 {
		return lines
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return append(lines, more...)
}

// boundary returns the last offset from which the text can be drawn on its own: after an
// empty line outside of fences, before a line that continues no list. Without one it
// returns from.
func boundary(text string, from int) int {
	best, fence, empty := from, "", false
	for at := from; at < len(text); {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			if fence == "" && empty && starts(text[at:]) && !partial(text[at:]) {
				best = at
			}
			break
		}
		line := text[at : at+end]
		switch trimmed := strings.TrimLeft(line, " "); {
		case fence != "":
			if closes(trimmed, fence) {
				fence = ""
			}
			empty = false
		case strings.TrimSpace(line) == "":
			empty = true
		default:
			if empty && starts(line) {
				best = at
			}
			fence, empty = opens(trimmed), false
		}
		at += end + 1
	}
	return best
}

// partial reports whether more of the line may turn it into a part of the block before.
func partial(line string) bool {
	return len(line) < 4 || strings.Trim(line, "0123456789") == "" || strings.Trim(line, "0123456789") == "."
}

// starts reports whether a line begins a block that belongs to no earlier one.
func starts(line string) bool {
	if line == "" || line[0] == ' ' || line[0] == '\t' || line[0] == '>' || line[0] == '[' {
		return false
	}
	if strings.IndexByte("-*+", line[0]) >= 0 && (len(line) == 1 || line[1] == ' ' || line[1] == '\t') {
		return false
	}
	digits := strings.TrimLeft(line, "0123456789")
	return len(digits) == len(line) || digits == "" || digits[0] != '.' && digits[0] != ')'
}

func opens(line string) string {
	for _, c := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, c))
		if n >= 3 && (c == "~" || !strings.Contains(line[n:], "`")) {
			return strings.Repeat(c, n)
		}
	}
	return ""
}

func closes(line, fence string) bool {
	return strings.HasPrefix(line, fence) && strings.Trim(line, fence[:1]+" \t") == ""
}

// wrap breaks a styled text into lines of at most width columns, each of which begins
// and ends without a style.
func wrap(text string, width int) []string {
	if text == "" {
		return nil
	}
	if !strings.Contains(text, "\n") && ansi.StringWidth(text) <= width {
		return []string{text}
	}
	lines := strings.Split(lipgloss.Wrap(text, max(1, width), ""), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}
