package tui

import (
	tea "charm.land/bubbletea/v2"
)

// wheelLines is how far the wheel scrolls.
const wheelLines = 3

// toggleMouse begins to use the mouse, or leaves it to the terminal again.
func (m *Model) toggleMouse() {
	m.mouse = !m.mouse
	if m.mouse {
		m.say("the mouse scrolls and chooses; with shift held the terminal selects text")
	} else {
		m.say("the mouse is the terminal's again")
	}
}

// wheel scrolls the screen, or moves in a list.
func (m *Model) wheel(msg tea.MouseWheelMsg) tea.Cmd {
	n, key := wheelLines, tea.Key{Code: tea.KeyDown}
	if msg.Button == tea.MouseWheelUp {
		n, key = -wheelLines, tea.Key{Code: tea.KeyUp}
	}
	switch m.screen {
	case chatScreen, leaveScreen:
		m.window.Scroll(m.talk, m.drawer, m.width, m.talkHeight(), n)
	case zoomScreen:
		m.zoom.window.Scroll(m.zoom.talk, m.zoom.drawer, m.width, m.zoomHeight(), n)
	case pageScreen:
		m.scrollPage(n)
	case panelScreen:
		return m.panelKey(tea.KeyPressMsg(key))
	case inboxScreen:
		if m.ask == nil && m.field == nil {
			return m.inboxKey(tea.KeyPressMsg(key))
		}
	case pickerScreen:
		return m.pickerKey(tea.KeyPressMsg(key))
	}
	return nil
}

// click chooses the row under the mouse; a second click opens it, or takes it. Questions
// are answered by keys alone.
func (m *Model) click(msg tea.MouseClickMsg) tea.Cmd {
	if msg.Button != tea.MouseLeft {
		return nil
	}
	enter := tea.KeyPressMsg(tea.Key{Code: tea.KeyEnter})
	switch m.screen {
	case chatScreen:
		rows := m.window.Rows(m.talk, m.drawer, m.width, m.talkHeight())
		if msg.Y >= len(rows) {
			return nil
		}
		switch id := rows[msg.Y].Block; {
		case !m.talk.CanOpen(id):
		case id == m.window.Selected:
			m.talk.Toggle(id)
		default:
			m.window.Selected = id
		}
	case panelScreen:
		if m.field != nil {
			return nil
		}
		if again, ok := m.tasks.Click(msg.Y, m.height, m.now); !ok {
			return nil
		} else if again {
			return m.panelKey(enter)
		}
		return m.followChosen()
	case inboxScreen:
		if m.ask != nil || m.field != nil || msg.Y == 0 {
			return nil
		}
		foot, _ := m.itemLines()
		from, each, fits := m.inboxRange(len(foot))
		at := from + (msg.Y-1)/each
		if at >= min(len(m.inbox.now.List.Items), from+fits) {
			return nil
		}
		if at == m.inbox.at {
			return m.inboxKey(enter)
		}
		m.chooseItem(at)
	case pageScreen:
		p := &m.page
		at := p.top + msg.Y - pageHead
		if msg.Y < pageHead || at >= len(p.rows) || p.rows[at].do == nil {
			return nil
		}
		if at == p.at {
			return m.pageKey(enter)
		}
		p.at = at
	}
	return nil
}
