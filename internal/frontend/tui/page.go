package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/task"
)

// page is the view of a command such as /permissions: lines that scroll, some of
// which do something when they are chosen.
type page struct {
	name    string // of its command
	reading bool
	err     string
	facts   pageFacts
	known   bool // facts were read

	rows  []pageRow // for a width
	width int
	top   int // the first row that is shown
	at    int // the chosen row, which is one with an action
	left  int // columns that are out of sight on the left
}

// pageRow is a line of a page. Its text has no style of its own, and is harmless unless it
// is raw: long lists are made printable line by line, as they reach the screen.
type pageRow struct {
	text  string
	raw   bool
	style lipgloss.Style
	do    func() tea.Cmd // nil: the row cannot be chosen
}

// pageFacts holds the facts that pages show; each page reads the ones that it needs.
type pageFacts struct {
	env   control.Environment
	tasks []task.Record
	diff  string
}

// pageCommands are the commands that show a page, with what they are for.
func pageCommands() []slash {
	return []slash{
		{name: "help", does: "all keys and commands"},
		{name: "permissions", does: "the permission mode, and the rules in force with their sources"},
		{name: "hooks", does: "commands that are run when something happens, with their sources"},
		{name: "mcp", does: "the MCP servers and their states"},
		{name: "agents", does: "the types of agents that can be started"},
		{name: "model", does: "choose the model from the next call on; /model NAME at once"},
		{name: "cost", does: "what was spent, by model and by task"},
		{name: "memory", does: "instructions and what is remembered of the folder"},
		{name: "context", does: "what fills the window of the model"},
		{name: "todos", does: "all to-dos, with what waits for what"},
		{name: "diff", does: "what git says has changed in the folder"},
	}
}

// openPage shows a page. What the session has is read when it is reached: it begins for that.
func (m *Model) openPage(name string) tea.Cmd {
	m.screen, m.page = pageScreen, page{name: name}
	return m.readPage()
}

// readPage reads what the page is made of.
func (m *Model) readPage() tea.Cmd {
	p := &m.page
	name := p.name
	switch name {
	case "help":
		p.known = true
		m.buildPage()
		return nil
	case "todos":
		p.known = true
		m.buildPage()
		return m.readTodos()
	case "diff":
		diff, folder := m.o.Diff, m.info.Project
		if diff == nil {
			p.err = "changes of files cannot be read from here"
			return nil
		}
		p.reading = true
		return read(m, func(ctx context.Context) (pageFacts, error) {
			text, err := diff(ctx, folder)
			return pageFacts{diff: text}, err
		}, m.pageRead(name))
	}
	p.reading, p.err = true, ""
	if !m.connected() {
		return m.reach()
	}
	return ask(m, func(ctx context.Context, api control.API) (f pageFacts, err error) {
		if f.env, err = api.Environment(ctx); err == nil && name == "cost" {
			var list control.Page
			list, err = api.List(ctx, control.ListRequest{All: true, Limit: mostNews})
			f.tasks = list.Tasks
		}
		return f, err
	}, m.pageRead(name))
}

// pageRead takes in the facts of a page.
func (m *Model) pageRead(name string) func(pageFacts, error) tea.Cmd {
	return func(facts pageFacts, err error) tea.Cmd {
		p := &m.page
		if m.screen != pageScreen || p.name != name {
			return nil
		}
		p.reading = false
		if p.err = errorText(err); err == nil {
			p.facts, p.known = facts, true
			m.buildPage()
		}
		return nil
	}
}

// buildPage makes the rows for the width that there is.
func (m *Model) buildPage() {
	p := &m.page
	b := pageBuilder{m: m, width: m.width - 2}
	p.rows, p.width = b.build(p.name, p.facts), m.width
	if p.at >= len(p.rows) || p.rows[p.at].do == nil {
		p.at = 0
		m.moveInPage(0)
	}
	m.scrollPage(0)
}

// pageHead is how many lines stand above the rows.
const pageHead = 2

// pageRoom is how many rows are shown.
func (m *Model) pageRoom() int { return max(1, m.height-pageHead-1) }

// scrollPage moves the page by rows.
func (m *Model) scrollPage(n int) {
	p := &m.page
	p.top = max(0, min(p.top+n, len(p.rows)-m.pageRoom()))
}

// moveInPage chooses the next row that does something, in the direction of step; with 0
// the row at the place or the next one after it. Without such rows the page scrolls.
func (m *Model) moveInPage(step int) {
	p := &m.page
	way := step
	if way == 0 {
		way = 1
	}
	for i := p.at + step; i >= 0 && i < len(p.rows); i += way {
		if p.rows[i].do != nil {
			p.at = i
			room := m.pageRoom()
			p.top = max(min(p.top, i), i-room+1)
			return
		}
	}
	m.scrollPage(step)
}

// pageKey takes in a key of a page.
func (m *Model) pageKey(msg tea.KeyPressMsg) tea.Cmd {
	p := &m.page
	switch msg.String() {
	case "esc", "q", "ctrl+c", "ctrl+d":
		m.screen = chatScreen
	case "up", "k", "ctrl+p":
		m.moveInPage(-1)
	case "down", "j", "ctrl+n":
		m.moveInPage(1)
	case "pgup", "b":
		m.scrollPage(-max(1, m.pageRoom()-2))
	case "pgdown", "space", "f":
		m.scrollPage(max(1, m.pageRoom()-2))
	case "home", "g":
		m.scrollPage(-len(p.rows))
	case "end", "G":
		m.scrollPage(len(p.rows))
	case "left", "h":
		p.left = max(0, p.left-20)
	case "right", "l":
		p.left = min(p.left+20, 2000)
	case "r":
		return m.readPage()
	case "enter":
		if p.at < len(p.rows) && p.rows[p.at].do != nil {
			m.screen = chatScreen
			return p.rows[p.at].do()
		}
	}
	return nil
}

// pageFrame draws the page.
func (m *Model) pageFrame() frame {
	t, p := m.theme, &m.page
	if p.known && p.width != m.width {
		m.buildPage()
	}
	head := "/" + p.name
	for _, c := range pageCommands() {
		if c.name == p.name {
			head += " · " + c.does
		}
	}
	if p.reading {
		head += " · reading …"
	}
	lines := []string{t.Bold.Render(ansi.Truncate(head, m.width, "…")), t.Rule.Render(strings.Repeat("─", m.width))}
	if p.err != "" {
		lines = append(lines, wrapped(p.err, m.width-2, "  ", t.Bad.Render)...)
	}
	room := m.height - 1 - len(lines)
	chooses := false
	p.top = max(0, min(p.top, len(p.rows)-room))
	for i := p.top; i < min(len(p.rows), p.top+room); i++ {
		r := p.rows[i]
		text := r.text
		if r.raw {
			text = printable.Tabs(printable.Exact(text))
		}
		text = ansi.Cut(text, p.left, p.left+m.width-2)
		mark := "  "
		if r.do != nil {
			chooses = true
			if i == p.at {
				mark = t.Accent.Render("▸ ")
			}
		}
		lines = append(lines, mark+r.style.Render(text))
	}
	keys := "esc back · r reads it again"
	if chooses {
		keys = "↑↓ enter chooses · " + keys
	}
	if n := len(p.rows) - room; n > 0 {
		keys = fmt.Sprintf("%d–%d of %d · pgup pgdown ← → scroll · ", p.top+1, p.top+room, len(p.rows)) + keys
	}
	return m.framed(lines, keys, nil)
}
