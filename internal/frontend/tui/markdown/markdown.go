// Package markdown draws Markdown as lines of a terminal.
//
// A text that is still being written is drawn as a [Stream]: what lies before the last
// boundary between two blocks is drawn once, and only what lies behind it again with
// each piece. The text must be printable already; see package printable. Source code is
// coloured by a small scanner of our own: the lexers of chroma cost 9 ms before main.
package markdown

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/theme"
)

// Least is the least width that is drawn for. What is narrower is cut by the screen.
const Least = 16

// Stream is a text that grows at its end, drawn at one width.
type Stream struct {
	theme theme.Theme
	width int
	from  int      // what lies before is in done
	done  []string // lines

	tail      []string // of what lies behind, as it was drawn last
	tailBytes int
	drawn     bool

	// Work counts the bytes that were drawn, for tests.
	Work int
}

// NewStream makes a stream.
func NewStream(t theme.Theme, width int) *Stream { return &Stream{theme: t, width: max(Least, width)} }

// Lines draws the text, which begins with what it was at the last call. The result is
// only good until the next call.
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

// appendBlocks puts lines behind others, with an empty one between them.
func appendBlocks(lines, more []string) []string {
	if len(more) == 0 {
		return lines
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return append(lines, more...)
}

// boundary is the last place from which the text can be drawn for itself: behind an
// empty line that is in no fence, before a line that goes on with no list. It is from
// if there is none.
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

// partial reports whether more of the line may make it go on with what was before.
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
