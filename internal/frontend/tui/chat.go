package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/panel"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/task"
)

// leaveTwice is how soon ctrl+c must be pressed again to leave.
const leaveTwice = 2 * time.Second

// typedAhead is how long after the begin an enter may come that was typed before the
// terminal was ours: it is a newline then.
const typedAhead = 500 * time.Millisecond

// key takes in a key.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	if key == "ctrl+l" {
		return tea.ClearScreen
	}
	if key == "ctrl+z" {
		return m.suspend()
	}
	switch m.screen {
	case panelScreen:
		return m.panelKey(msg)
	case zoomScreen:
		return m.zoomKey(msg)
	case pageScreen:
		return m.pageKey(msg)
	case leaveScreen:
		return m.leaveKey(key)
	case pickerScreen:
		return m.pickerKey(msg)
	case inboxScreen:
		return m.inboxKey(msg)
	case rewindScreen:
		return m.rewindKey(msg)
	case setupScreen:
		return m.setupKey(msg)
	}
	if m.search != nil {
		m.searchKey(msg)
		return nil
	}
	if m.ask != nil && m.ask.armed() {
		if cmd, taken := m.questionKey(msg); taken {
			return cmd
		}
	}
	if m.completionKey(key) {
		return nil
	}
	return m.chatKey(msg)
}

// chatKey takes in a key of the conversation.
func (m *Model) chatKey(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	if key == "?" && !m.editor.Empty() {
		return m.edit(msg)
	}
	if key == "ctrl+j" && m.now.Sub(m.begun) < typedAhead {
		return m.submit()
	}
	if do := actionOf(m.bindings, key); do != nil {
		return do(m)
	}
	return m.edit(msg)
}

func (m *Model) newline() tea.Cmd {
	cmd := m.lookAtWord()
	m.editor = m.editor.Insert("\n")
	return cmd
}

// deleteOrLeave is ctrl+d.
func (m *Model) deleteOrLeave() tea.Cmd {
	if m.editor.Empty() {
		return m.leave()
	}
	m.editor = m.editor.Delete()
	return nil
}

// askAgain shows the questions that were put off.
func (m *Model) askAgain() {
	m.later = map[string]bool{}
	m.questions(m.open)
}

// up moves up, to a prompt that waits, or to one of before.
func (m *Model) up() {
	if e, ok := m.editor.Up(m.editorWidth()); ok {
		m.editor = e
		return
	}
	if n := len(m.queue); n > 0 && m.editor.Empty() {
		m.editor = m.editor.Put(m.queue[n-1])
		m.queue = m.queue[:n-1]
		return
	}
	m.editor, _ = m.editor.Older()
}

// down moves down, to a newer prompt, or to the task that waits for the user as the line
// at the bottom says.
func (m *Model) down() tea.Cmd {
	e, ok := m.editor.Down(m.editorWidth())
	if !ok {
		e, ok = m.editor.Newer()
	}
	m.editor = e
	if sum := m.tasks.Summary(); !ok && m.editor.Empty() && sum.Needs {
		return m.openPanel()
	}
	return nil
}

// edit takes in a key of the editor.
func (m *Model) edit(msg tea.KeyPressMsg) tea.Cmd {
	var look tea.Cmd
	if msg.Text == " " {
		look = m.lookAtWord()
	}
	m.editor = edited(m.editor, msg)
	m.leaving = time.Time{}
	if m.editor.Empty() {
		m.attach.looked = nil
	}
	return tea.Batch(look, m.completions())
}

// edited is an editor after a key.
func edited(e input.Editor, msg tea.KeyPressMsg) input.Editor {
	switch msg.String() {
	case "left":
		return e.Left()
	case "right", "ctrl+f":
		return e.Right()
	case "alt+b", "ctrl+left", "alt+left":
		return e.WordLeft()
	case "alt+f", "ctrl+right", "alt+right":
		return e.WordRight()
	case "home", "ctrl+a":
		return e.Home()
	case "end", "ctrl+e":
		return e.End()
	case "backspace", "ctrl+h", "shift+backspace":
		return e.Backspace()
	case "delete":
		return e.Delete()
	case "ctrl+w", "alt+backspace":
		return e.DeleteWord()
	case "alt+d":
		return e.DeleteWordRight()
	case "ctrl+u":
		return e.DeleteToHome()
	case "ctrl+k":
		return e.DeleteToEnd()
	case "ctrl+y":
		return e.Yank()
	case "ctrl+_", "ctrl+/":
		return e.Undo()
	}
	if msg.Text != "" {
		return e.Insert(msg.Text)
	}
	return e
}

// paste inserts pasted text.
func (m *Model) paste(text string) tea.Cmd {
	switch {
	case m.field != nil:
		m.field.editor = m.field.editor.Paste(text)
	case m.screen == zoomScreen:
		m.zoom.editor = m.zoom.editor.Paste(text)
	case m.screen == setupScreen:
		m.setup.typed(text)
	case m.screen == pickerScreen:
		m.picker.add(strings.Join(strings.Fields(text), " "))
	case m.screen == inboxScreen && m.ask != nil && m.ask.takesText():
		m.ask.editor = m.ask.editor.Paste(text)
	case m.screen != chatScreen:
	case m.ask != nil && m.ask.takesText():
		m.ask.editor = m.ask.editor.Paste(text)
	default:
		if cmd, ok := m.pasteImages(text); ok {
			return cmd
		}
		m.editor = m.editor.Paste(text)
		return m.completions()
	}
	return nil
}

// searchKey takes in a key of the search in the history.
func (m *Model) searchKey(msg tea.KeyPressMsg) {
	s := *m.search
	switch key := msg.String(); key {
	case "esc", "ctrl+c", "ctrl+g":
		m.search = nil
		return
	case "enter", "tab", "right", "left":
		if text, ok := s.Found(); ok {
			m.editor = m.editor.Set(text)
		}
		m.search = nil
		return
	case "ctrl+r", "up":
		s = m.editor.Find(s, s.Query, true)
	case "backspace", "ctrl+h":
		if r := []rune(s.Query); len(r) > 0 {
			s = m.editor.Find(input.Search{}, string(r[:len(r)-1]), false)
		}
	default:
		if msg.Text != "" {
			s = m.editor.Find(s, s.Query+msg.Text, false)
		}
	}
	m.search = &s
}

// openBlock opens the selected block, or the last one with more to show.
func (m *Model) openBlock() {
	id := m.window.Selected
	for i := len(m.talk.Blocks) - 1; id == 0 && i >= 0; i-- {
		if m.talk.Blocks[i].Folded() {
			id = m.talk.Blocks[i].ID
		}
	}
	m.talk.Toggle(id)
}

// escape cancels the selection, or else interrupts the turn.
func (m *Model) escape() tea.Cmd {
	switch {
	case m.window.Selected != 0:
		m.window.Selected = 0
		m.window.Follow()
	case m.busy():
		return m.interrupt()
	case m.window.Scrolled:
		m.window.Follow()
	case !m.editor.Empty():
	case !m.escaped.IsZero() && m.now.Sub(m.escaped) < leaveTwice:
		m.escaped = time.Time{}
		return m.rewind()
	default:
		m.escaped = m.now
		m.say("esc again goes back to an earlier prompt")
	}
	return nil
}

// clear is ctrl+c.
func (m *Model) clear() tea.Cmd {
	again := !m.leaving.IsZero() && m.now.Sub(m.leaving) < leaveTwice
	m.leaving = m.now
	switch {
	case !m.editor.Empty():
		m.editor = m.editor.Clear()
		m.attach.looked = nil
		m.complete = m.complete.none()
		m.leaving = time.Time{}
	case again:
		return m.leave()
	case m.busy():
		m.say("interrupted; ctrl+c again leaves")
		return m.interrupt()
	default:
		m.say("ctrl+c again leaves")
	}
	return nil
}

// suspend makes the program stand still.
func (m *Model) suspend() tea.Cmd {
	if m.o.Suspend == nil {
		return nil
	}
	select {
	case m.l.suspend <- struct{}{}:
	default:
	}
	return nil
}

// submit sends the typed text.
func (m *Model) submit() tea.Cmd {
	if m.editor.Before() != "" && m.editor.Behind() == "" && strings.HasSuffix(m.editor.Before(), "\\") {
		m.editor = m.editor.Backspace().Insert("\n")
		return nil
	}
	look := m.lookAtWord()
	if m.attach.submit = m.attach.reading > 0; m.attach.submit {
		return look
	}
	draft := m.editor.Draft()
	text := draft.Text
	if text == "" {
		return nil
	}
	if why := m.blind(); why != "" {
		m.say("not sent: " + why)
		return nil
	}
	m.complete = m.complete.none()
	word, rest, _ := strings.Cut(text, " ")
	if isCommand(word) {
		return m.command(draft, strings.TrimPrefix(word, "/"), strings.TrimSpace(rest))
	}
	m.clearSent()
	return m.give(draft)
}

// clearSent empties the editor when its text is sent.
func (m *Model) clearSent() {
	m.editor = m.editor.Sent()
	m.attach.looked = nil
}

// give sends a prompt, or has it wait for the end of the turn.
func (m *Model) give(d input.Draft) tea.Cmd {
	m.window.Follow()
	if m.busy() {
		m.queue = append(m.queue, d)
		return nil
	}
	return m.prompt(d)
}

// command carries out a /command.
func (m *Model) command(d input.Draft, name, rest string) tea.Cmd {
	if name == "exit" {
		name = "quit"
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		cmd, done := c.do(m, rest)
		if done {
			m.editor = m.editor.Sent()
		}
		return cmd
	}
	if m.offered != nil && !slices.ContainsFunc(m.offered, func(c control.Command) bool { return c.Name == name }) {
		m.say(fmt.Sprintf("there is no command /%s: see /help, or begin with // to send it", name))
		return nil
	}
	m.clearSent()
	return m.give(d)
}

// begins begins another conversation.
func (m *Model) begins() tea.Cmd {
	if m.o.Switch == nil {
		m.say("no new conversation can be begun from here")
		return nil
	}
	return m.switchTo("")
}

// nextMode goes round the permission modes that ask.
func (m *Model) nextMode() tea.Cmd {
	modes := []string{"default", "acceptEdits", "plan"}
	next := modes[(slices.Index(modes, m.settings().Mode)+1)%len(modes)]
	return m.configure(control.ConfigureRequest{Mode: &next})
}

// configure changes what the agent works with, from its next call on.
func (m *Model) configure(req control.ConfigureRequest) tea.Cmd {
	if !m.connected() {
		m.say("the session begins with your first prompt: give --model or --permission-mode, or change it then")
		return nil
	}
	return ask(m, func(ctx context.Context, api control.API) (control.Settings, error) { return api.Configure(ctx, req) },
		func(set control.Settings, err error) tea.Cmd {
			if err != nil {
				m.tell("the settings were not changed: " + errorText(err))
				return nil
			}
			m.state.Settings = &set
			return nil
		})
}

// openPanel shows the tasks.
func (m *Model) openPanel() tea.Cmd {
	m.screen, m.follows = panelScreen, ""
	return tea.Batch(m.list(), m.followChosen())
}

// panelKey takes in a key of the panel.
func (m *Model) panelKey(msg tea.KeyPressMsg) tea.Cmd {
	if m.field != nil {
		return m.fieldKey(msg)
	}
	key := msg.String()
	if key == "ctrl+c" || key == "ctrl+d" {
		key = "esc"
	}
	a := m.tasks.Key(key, m.now)
	r := a.Task
	id := string(r.ID)
	switch a.Do {
	case panel.Leave:
		if m.o.TasksOnly {
			return tea.Quit
		}
		m.tasks.Close(m.now)
		m.screen, m.follows = chatScreen, ""
	case panel.Stop:
		return m.stop(false, id)
	case panel.Pause:
		return m.act("pause", r, func(ctx context.Context, api control.API) error {
			_, err := api.Pause(ctx, []string{id})
			return err
		})
	case panel.Resume:
		return m.act("let go on", r, func(ctx context.Context, api control.API) error {
			_, err := api.Resume(ctx, control.ResumeRequest{Ref: id})
			return err
		})
	case panel.Retry:
		env := m.o.Env
		return m.act("run again", r, func(ctx context.Context, api control.API) error {
			_, err := api.Resume(ctx, control.ResumeRequest{Ref: id, Env: env})
			return err
		})
	case panel.Background:
		return m.promote(r)
	case panel.Send:
		m.sendTo = r
		m.field = &message{editor: input.New(nil), send: func(text string) tea.Cmd {
			return m.message(r, strings.TrimSpace(text))
		}}
	case panel.Open:
		return m.openZoom(r)
	case panel.Follow:
		return m.followChosen()
	}
	return nil
}

// zoomed is one task that is looked at.
type zoomed struct {
	record task.Record
	talk   *transcript.State
	drawer *transcript.Drawer
	window transcript.Window
	editor input.Editor
	asked  time.Time // when the messages were asked for
	err    string
	armed  time.Time // when the key was pressed that stops the task if it is pressed again
}

// zoomMessagesMost is how many messages of a task are shown.
const zoomMessagesMost = 50

// openZoom shows the conversation of an agent, or the output of other work.
func (m *Model) openZoom(r task.Record) tea.Cmd {
	m.screen, m.follows = zoomScreen, ""
	m.tasks.Hold(r.ID, m.now)
	m.zoom = zoomed{record: r, talk: &transcript.State{}, drawer: transcript.NewDrawer(m.theme), editor: input.New(nil)}
	if r.Traits().Work == task.ByAgent {
		return m.readZoom()
	}
	return m.read(printed{r.ID, true, zoomScreen}, control.OutputRequest{Tail: 1000, Max: 1 << 20})
}

// zoomPace is how often the messages of an agent are read.
const zoomPace = 300 * time.Millisecond

func (m *Model) readZoom() tea.Cmd {
	r := m.zoom.record
	if r.Traits().Work != task.ByAgent || m.now.Sub(m.zoom.asked) < zoomPace && !r.Status.Terminal() {
		return nil
	}
	m.zoom.asked = m.now
	return ask(m, func(ctx context.Context, api control.API) (control.Messages, error) {
		return api.Messages(ctx, control.MessagesRequest{Ref: string(r.ID), Limit: zoomMessagesMost})
	}, func(list control.Messages, err error) tea.Cmd {
		m.zoomMessages(r.ID, list, err)
		return nil
	})
}

func (m *Model) zoomMessages(id task.ID, list control.Messages, err error) {
	if m.screen != zoomScreen || m.zoom.record.ID != id {
		return
	}
	if m.zoom.err = errorText(err); err != nil {
		return
	}
	next := transcript.Messages(list.List)
	next.Keep(m.zoom.talk)
	m.zoom.talk = next
	m.zoom.drawer.Reset()
	if list.Task.Status != "" {
		m.zoom.record = list.Task
	}
}

// zoomKey takes in a key of one task.
func (m *Model) zoomKey(msg tea.KeyPressMsg) tea.Cmd {
	z := &m.zoom
	height := m.zoomHeight()
	switch msg.String() {
	case "esc", "ctrl+c":
		m.tasks.Hold("", m.now)
		m.screen, m.follows = panelScreen, ""
		return m.followChosen()
	case "ctrl+x":
		if z.record.Status.Terminal() {
			m.say("it has ended")
			return nil
		}
		if z.armed.IsZero() || m.now.Sub(z.armed) > leaveTwice {
			z.armed = m.now
			m.say("press ctrl+x again to stop it, with everything below it")
			return nil
		}
		z.armed = time.Time{}
		return m.stop(false, string(z.record.ID))
	case "enter":
		text := strings.TrimSpace(z.editor.Value())
		if text == "" {
			return nil
		}
		if !m.zoomTakes() {
			m.say("this task takes no messages")
			return nil
		}
		z.editor = input.New(nil)
		return m.message(z.record, text)
	case "pgup":
		z.window.Scroll(z.talk, z.drawer, m.width, height, -max(1, height-2))
	case "pgdown":
		z.window.Scroll(z.talk, z.drawer, m.width, height, max(1, height-2))
	case "ctrl+up", "shift+up", "up":
		z.window.Scroll(z.talk, z.drawer, m.width, height, -1)
	case "ctrl+down", "shift+down", "down":
		z.window.Scroll(z.talk, z.drawer, m.width, height, 1)
	case "ctrl+home":
		z.window.Begin(z.talk)
	case "ctrl+end":
		z.window.Follow()
	case "ctrl+o":
		for i := len(z.talk.Blocks) - 1; i >= 0; i-- {
			if z.talk.Blocks[i].Folded() {
				z.talk.Toggle(z.talk.Blocks[i].ID)
				break
			}
		}
	case "alt+o":
		z.talk.OpenAll()
	default:
		z.editor = edited(z.editor, msg)
	}
	return nil
}

// zoomTakes reports whether a message can be sent to the task.
func (m *Model) zoomTakes() bool {
	r := m.zoom.record
	return r.Kind.IsAgent() || r.TTY && !r.Status.Terminal()
}

// leave ends the UI, or asks what becomes of what runs.
func (m *Model) leave() tea.Cmd {
	if !m.connected() || len(m.tasks.Summary().Live) == 0 && !m.busy() && len(m.queue) == 0 {
		return tea.Quit
	}
	m.screen, m.choice = leaveScreen, 0
	return nil
}

// leaveKey takes in a key of the dialog of leaving.
func (m *Model) leaveKey(key string) tea.Cmd {
	switch key {
	case "up", "shift+tab", "ctrl+p":
		m.choice = (m.choice + 2) % 3
		return nil
	case "down", "tab", "ctrl+n":
		m.choice = (m.choice + 1) % 3
		return nil
	case "1", "2", "3":
		m.choice = int(key[0] - '1')
	case "enter":
	case "esc", "q":
		m.choice = 2
	case "ctrl+c", "ctrl+d":
		m.choice = 0
	default:
		return nil
	}
	m.screen = chatScreen
	switch m.choice {
	case 0:
		return tea.Quit
	case 1:
		m.discards = true
		var refs []string
		for _, r := range m.tasks.Summary().Live {
			refs = append(refs, string(r.ID))
		}
		if m.main.ID != "" && !m.main.Status.Terminal() {
			refs = append(refs, string(m.main.ID))
		}
		if len(refs) == 0 {
			return tea.Sequence(m.interrupt(), tea.Quit)
		}
		m.say("stopping …")
		return m.stop(true, refs...)
	}
	return nil
}
