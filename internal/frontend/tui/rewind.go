package tui

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/figures"
)

// rewinding is the choice of an earlier prompt, to go back to where the conversation stood
// before it.
type rewinding struct {
	menu
	list    []control.PromptEntry
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
			m.back = rewinding{list: list.Prompts, err: errorText(err), menu: menu{at: max(0, len(list.Prompts)-1)}}
			return nil
		})
}

// rewindKey takes in a key of the choice.
func (m *Model) rewindKey(msg tea.KeyPressMsg) tea.Cmd {
	b := &m.back
	switch msg.String() {
	case "esc", "ctrl+c":
		m.screen = chatScreen
	case "enter":
		if b.at >= len(b.list) || b.loading {
			return nil
		}
		at := b.list[b.at].N
		b.loading = true // a second enter makes no second copy
		return ask(m, func(ctx context.Context, api control.API) (control.Forked, error) {
			return api.Fork(ctx, control.ForkRequest{At: at, Images: true})
		}, m.wentBack)
	default:
		b.key(msg, len(b.list), false)
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
	note := cmp.Or(b.err, "there is no prompt yet")
	if b.loading {
		note = "reading …"
	}
	lines := m.menuLines(b.menu, len(b.list), m.height-4, note, func(i int) string {
		text := printable.Line(strings.Join(strings.Fields(b.list[i].Text), " "), 400)
		return m.apart(text, figures.Age(m.now.Sub(b.list[i].At))+" ago")
	})
	return m.framed(append([]string{t.Bold.Render(title), ""}, lines...), "enter goes back · esc stays", nil)
}
