package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
)

// rewinding is the choice of an earlier prompt, to go back to where the conversation stood
// before it.
type rewinding struct {
	list    []control.PromptEntry
	at      int
	err     string
	loading bool
}

// rewind shows the prompts of the conversation.
func (m *Model) rewind() tea.Cmd {
	if m.o.Switch == nil {
		m.say("no other conversation can be opened from here")
		return nil
	}
	if len(m.queue) > 0 {
		m.say("prompts still wait for this conversation: send or clear them first")
		return nil
	}
	m.screen, m.back = rewindScreen, rewinding{loading: true}
	return ask(m, func(ctx context.Context, api control.API) (control.Prompts, error) { return api.Prompts(ctx) },
		func(list control.Prompts, err error) tea.Cmd { // the newest is chosen
			m.back = rewinding{list: list.Prompts, err: errorText(err), at: max(0, len(list.Prompts)-1)}
			return nil
		})
}

// rewindKey takes in a key of the choice.
func (m *Model) rewindKey(msg tea.KeyPressMsg) tea.Cmd {
	b := &m.back
	switch msg.String() {
	case "esc", "ctrl+c":
		m.screen = chatScreen
	case "up", "ctrl+p", "k":
		b.at = max(0, b.at-1)
	case "down", "ctrl+n", "j":
		b.at = min(max(0, len(b.list)-1), b.at+1)
	case "home":
		b.at = 0
	case "end":
		b.at = max(0, len(b.list)-1)
	case "enter":
		if b.at >= len(b.list) || b.loading {
			return nil
		}
		at := b.list[b.at].N
		b.loading = true // a second enter makes no second copy
		return ask(m, func(ctx context.Context, api control.API) (control.Forked, error) {
			return api.Fork(ctx, control.ForkRequest{At: at, Images: true})
		}, m.wentBack)
	}
	return nil
}

// wentBack goes over to the copy of the conversation, with the prompt in the editor.
func (m *Model) wentBack(f control.Forked, err error) tea.Cmd {
	m.screen, m.back = chatScreen, rewinding{}
	if err != nil {
		m.say("the conversation was not copied: " + errorText(err))
		return nil
	}
	m.say(fmt.Sprintf("back before that prompt, in a copy; %s stays as it is", m.info.Session))
	m.editor = m.editor.Put(draftOf(f.Prompt, f.Images))
	return m.switchTo(f.Session)
}

// rewindFrame are the prompts of the conversation.
func (m *Model) rewindFrame() frame {
	t, b := m.theme, m.back
	title := ansi.Truncate("Go back to before a prompt, in a copy of the conversation", m.width, "…")
	lines := []string{t.Bold.Render(title), ""}
	if note := b.err; len(b.list) == 0 {
		switch {
		case b.loading:
			note = "reading …"
		case note == "":
			note = "there is no prompt yet"
		}
		lines = append(lines, t.Dim.Render(ansi.Truncate(note, m.width, "…")))
	}
	room := m.height - 4
	from := max(0, min(b.at-room/2, len(b.list)-room))
	for i := from; i < min(len(b.list), from+room); i++ {
		p := b.list[i]
		end := ago(m.now.Sub(p.At)) + " ago"
		left := max(8, m.width-ansi.StringWidth(end)-4)
		text := ansi.Truncate(printable.Line(strings.Join(strings.Fields(p.Text), " "), 400), left, "…")
		line := text + strings.Repeat(" ", max(0, left-ansi.StringWidth(text))) + "  " + t.Dim.Render(end)
		mark := "  "
		if i == b.at {
			mark = t.Accent.Render("❯ ")
		}
		lines = append(lines, ansi.Truncate(mark+line, m.width, "…"))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	foot := "enter goes back · esc stays"
	return frame{lines: append(lines, t.Dim.Render(ansi.Truncate(foot, m.width, "…")))}
}
