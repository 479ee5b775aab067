package tui

import (
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
)

// menu is a list of which one line is chosen. In a list that can be searched, typed text narrows it.
type menu struct {
	at    int
	query string
}

// key takes in a key of a list of n lines. It reports whether the key moves or narrows the list.
func (c *menu) key(msg tea.KeyPressMsg, n int, search bool) bool {
	key := msg.String()
	if search && msg.Text != "" {
		c.add(msg.Text)
		return true
	}
	switch key {
	case "up", "ctrl+p", "k":
		c.at = max(0, c.at-1)
	case "down", "ctrl+n", "j":
		c.at = min(max(0, n-1), c.at+1)
	case "home":
		c.at = 0
	case "end":
		c.at = max(0, n-1)
	case "backspace", "ctrl+h":
		if r := []rune(c.query); len(r) > 0 {
			c.query, c.at = string(r[:len(r)-1]), 0
		}
	default:
		return false
	}
	return true
}

// add narrows the list by typed or pasted text.
func (c *menu) add(text string) { c.query, c.at = c.query+printable.Line(text, 4096), 0 }

// fits reports whether a text matches what is typed.
func (c *menu) fits(text string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(c.query))
}

// menuLines draws as many lines as fit, around the chosen line, or the note for an empty list.
func (m *Model) menuLines(c menu, n, room int, note string, line func(i int) string) []string {
	t := m.theme
	if n == 0 {
		return []string{t.Dim.Render(ansi.Truncate(note, m.width, "…"))}
	}
	var lines []string
	from := max(0, min(c.at-room/2, n-room))
	for i := from; i < min(n, from+room); i++ {
		mark := "  "
		if i == c.at {
			mark = t.Accent.Render("❯ ")
		}
		lines = append(lines, ansi.Truncate(mark+line(i), m.width, "…"))
	}
	return lines
}

// apart is a line of a menu with a text on the left and facts on the right.
func (m *Model) apart(text, end string) string {
	left := max(8, m.width-ansi.StringWidth(end)-4)
	text = ansi.Truncate(text, left, "…")
	return text + strings.Repeat(" ", max(0, left-ansi.StringWidth(text))) + "  " + m.theme.Dim.Render(end)
}

// framed fills the screen with lines, and the keys at the bottom.
func (m *Model) framed(lines []string, keys string, cursor *tea.Cursor) frame {
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return frame{append(lines[:m.height-1], m.theme.Dim.Render(ansi.Truncate(keys, m.width, "…"))), cursor}
}

// message is a text that is typed for a task.
type message struct {
	editor input.Editor
	send   func(text string) tea.Cmd
}

// fieldKey takes in a key of the field.
func (m *Model) fieldKey(msg tea.KeyPressMsg) tea.Cmd {
	f := m.field
	switch msg.String() {
	case "esc", "ctrl+c":
		m.field = nil
	case "enter":
		m.field = nil
		if text := f.editor.Value(); strings.TrimSpace(text) != "" {
			return f.send(text)
		}
	default:
		f.editor = edited(f.editor, msg)
	}
	return nil
}

// typedLines draws an editor in at most height lines. The cursor is relative to them.
func (m *Model) typedLines(e input.Editor, height int) ([]string, *tea.Cursor) {
	lines, y, x := e.View(m.editorWidth(), height, m.theme.Plain)
	for i, line := range lines {
		lines[i] = "  " + line
	}
	lines[0] = m.theme.Prompt.Render("> ") + strings.TrimPrefix(lines[0], "  ")
	return lines, tea.NewCursor(x+2, y)
}

// below moves a cursor down by lines above it.
func below(cursor *tea.Cursor, lines int) *tea.Cursor {
	if cursor != nil {
		cursor.Y += lines
	}
	return cursor
}
