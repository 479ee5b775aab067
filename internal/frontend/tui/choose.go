package tui

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/panel"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// completion offers words and files that complete the typed text.
type completion struct {
	sort    input.Sort
	typed   string
	options []string
	at      int

	files   []string
	reading bool
	readAt  time.Time
}

const (
	mostOptions = 8
	filesFor    = 10 * time.Second // before the files are read again
)

// none withdraws the offer and keeps the list of files.
func (c completion) none() completion {
	return completion{files: c.files, reading: c.reading, readAt: c.readAt}
}

// completions offers the candidates that fit the typed text.
func (m *Model) completions() tea.Cmd {
	sort, typed := m.editor.Completing()
	c := m.complete
	if sort == input.NoCompletion {
		m.complete = c.none()
		return nil
	}
	var candidates []string
	var cmd tea.Cmd
	switch sort {
	case input.Command:
		for _, k := range commands() {
			candidates = append(candidates, k.name)
		}
		for _, k := range m.offered {
			if k.ShadowedBy == "" && !k.NotForPeople && !slices.Contains(candidates, k.Name) {
				candidates = append(candidates, k.Name)
			}
		}
	case input.File:
		candidates = c.files
		cmd = m.readFiles()
		c = m.complete
	}
	c.options = input.Rank(candidates, typed, mostOptions)
	if sort != c.sort || typed != c.typed {
		c.at = 0
	}
	c.sort, c.typed = sort, typed
	c.at = min(c.at, max(0, len(c.options)-1))
	m.complete = c
	return cmd
}

func (m *Model) readFiles() tea.Cmd {
	if m.o.Files == nil || m.complete.reading || m.complete.files != nil && m.now.Sub(m.complete.readAt) < filesFor {
		return nil
	}
	m.complete.reading = true
	return read(m, m.o.Files, func(list []string, _ error) tea.Cmd {
		m.complete.files, m.complete.reading, m.complete.readAt = list, false, m.now
		m.completions()
		return nil
	})
}

// startCompletion completes at once if only one thing fits.
func (m *Model) startCompletion() tea.Cmd {
	cmd := m.completions()
	if len(m.complete.options) == 1 {
		m.takeCompletion()
	}
	return cmd
}

// completionKey takes in a key while something is offered.
func (m *Model) completionKey(key string) bool {
	c := &m.complete
	n := len(c.options)
	if c.sort == input.NoCompletion || n == 0 {
		return false
	}
	switch key {
	case "up":
		c.at = (c.at + n - 1) % n
	case "down":
		c.at = (c.at + 1) % n
	case "tab":
		m.takeCompletion()
	case "enter":
		if c.sort == input.Command && c.options[c.at] == c.typed {
			return false // it is complete: it is done
		}
		m.takeCompletion()
	case "esc":
		m.complete = c.none()
	default:
		return false
	}
	return true
}

func (m *Model) takeCompletion() {
	c := m.complete
	text := c.options[c.at]
	if !strings.HasSuffix(text, "/") {
		text += " "
	}
	m.editor = m.editor.ReplaceBefore(len(c.typed), text)
	m.complete = c.none()
	if strings.HasSuffix(text, "/") {
		m.completions()
	}
}

// picking is the choice of another conversation.
type picking struct {
	menu
	list    []Conversation
	err     string
	loading bool
}

// openPicker shows the conversations of the folder.
func (m *Model) openPicker() tea.Cmd {
	if m.o.Sessions == nil || m.o.Switch == nil {
		m.say("no other conversation can be opened from here")
		return nil
	}
	m.screen, m.picker = pickerScreen, picking{loading: true}
	return read(m, m.o.Sessions, func(list []Conversation, err error) tea.Cmd {
		m.picker.list, m.picker.err, m.picker.loading = list, errorText(err), false
		return nil
	})
}

// found returns the conversations that match the query.
func (p *picking) found() []Conversation {
	return slices.DeleteFunc(slices.Clone(p.list), func(c Conversation) bool {
		return !p.fits(c.Title + " " + string(c.Session))
	})
}

// pickerKey takes in a key of the choice.
func (m *Model) pickerKey(msg tea.KeyPressMsg) tea.Cmd {
	p := &m.picker
	found := p.found()
	switch msg.String() {
	case "esc", "ctrl+c":
		if m.epoch == 0 && m.o.Choose { // it leads back to nothing
			return tea.Quit
		}
		m.screen = chatScreen
	case "enter":
		if p.at >= len(found) {
			return nil
		}
		m.screen = chatScreen
		id := found[p.at].Session
		if id == m.info.Session {
			return nil
		}
		if len(m.queue) > 0 {
			m.say("prompts still wait for this conversation: send or clear them first")
			return nil
		}
		return m.switchTo(id)
	default:
		p.key(msg, len(found), true)
	}
	return nil
}

// switchTo goes over to another conversation; to a new one, if the ID is empty.
func (m *Model) switchTo(id task.ID) tea.Cmd {
	m.unplug()
	m.joining, m.lost, m.sent, m.ask, m.open = true, "", "", nil, nil
	m.talk, m.window, m.tasks, m.todos = &transcript.State{}, transcript.Window{}, panel.New(), todo.List{}
	m.info, m.state, m.main = control.Info{}, control.State{}, task.Record{}
	m.drawer.Reset()
	next := m.o.Switch
	m.o.Connect = func(ctx context.Context) (Connection, error) {
		c, err := next(ctx, id)
		if err == nil {
			id = c.Info.Session // a new one is the same from then on
		}
		return c, err
	}
	return m.connect(m.o.Connect)
}
