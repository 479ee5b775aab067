package tui

import (
	"cmp"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
)

// Binding is what some keys do in a part of the UI.
type Binding struct {
	Where string   // the part
	Keys  []string // by their names in bubbletea
	Does  string   // for people

	// In the conversation: a name for the table of the user, and the effect.
	name string
	do   func(*Model) tea.Cmd
}

// The parts of the UI that have keys.
const (
	inChat     = "Conversation"
	inEditor   = "Writing a prompt"
	inSearch   = "Search in the history"
	inQuestion = "A question"
	inPanel    = "Tasks"
	inZoom     = "One task"
	inLeave    = "Leaving"
	inPicker   = "Resuming"
	inRewind   = "Going back"
	inInbox    = "Inbox"
	inPage     = "What a command shows"
	inSetUp    = "Setting up a model"
)

// Bindings is every key. docs/terminal.md has the same table.
func Bindings() []Binding {
	return []Binding{
		{inChat, []string{"enter"}, "send the prompt; while the agent works it waits in the queue",
			"submit", (*Model).submit},
		{inChat, []string{"shift+enter", "alt+enter", "ctrl+j"}, "a new line; so does enter behind a `\\`",
			"newline", (*Model).newline},
		{inChat, []string{"ctrl+v"}, "put the image of the clipboard into the prompt", "image", (*Model).readClipboard},
		{inChat, []string{"esc"}, "interrupt the turn, and nothing else; twice without one: back to an earlier prompt",
			"interrupt", (*Model).escape},
		{inChat, []string{"ctrl+c"}, "clear what is typed; else interrupt the turn; else leave", "clear", (*Model).clear},
		{inChat, []string{"shift+tab"}, "the next permission mode: default, acceptEdits, plan",
			"mode", (*Model).nextMode},
		{inChat, []string{"ctrl+d"}, "leave, if nothing is typed", "leave", (*Model).deleteOrLeave},
		{inChat, []string{"ctrl+b"}, "move what the agent waits for to the background; with nothing, or again, the turn itself",
			"background", (*Model).background},
		{inChat, []string{"shift+down", "ctrl+t"}, "the tasks", "tasks", (*Model).openPanel},
		{inChat, []string{"alt+i"}, "the inbox: what needs you in all sessions", "inbox", (*Model).openInbox},
		{inChat, []string{"alt+t"}, "show or hide the to-dos",
			"todos", does(func(m *Model) { m.showTodos = !m.showTodos })},
		{inChat, []string{"alt+m"}, "use the mouse, or leave it to the terminal", "mouse", does((*Model).toggleMouse)},
		{inChat, []string{"ctrl+o"}, "open the chosen block, or the last one; again folds it",
			"open", does((*Model).openBlock)},
		{inChat, []string{"alt+o"}, "open all blocks, or fold them",
			"open all", does(func(m *Model) { m.talk.OpenAll() })},
		{inChat, []string{"ctrl+g"}, "go to the question that waits", "question", does((*Model).askAgain)},
		{inChat, []string{"ctrl+r"}, "search in the history",
			"search", does(func(m *Model) { m.search = &input.Search{} })},
		{inChat, []string{"tab"}, "complete a `/command` or an `@file`", "complete", (*Model).startCompletion},
		{inChat, []string{"up"}, "a row up; in the first row the prompt before, or one that waits",
			"up", does((*Model).up)},
		{inChat, []string{"down"}, "a row down; in the last row the prompt after", "down", (*Model).down},
		{inChat, []string{"pgup"}, "a page up", "page up", scrolls(-1, true)},
		{inChat, []string{"pgdown"}, "a page down", "page down", scrolls(1, true)},
		{inChat, []string{"shift+up", "ctrl+up"}, "a line up", "line up", scrolls(-1, false)},
		{inChat, []string{"ctrl+down"}, "a line down", "line down", scrolls(1, false)},
		{inChat, []string{"ctrl+home"}, "to the begin of the conversation",
			"begin", does(func(m *Model) { m.window.Begin(m.talk) })},
		{inChat, []string{"ctrl+end"}, "to its end, and follow it", "follow", does(func(m *Model) { m.window.Follow() })},
		{inChat, []string{"alt+up"}, "choose the block before that can be opened", "previous block", selects(-1)},
		{inChat, []string{"alt+down"}, "choose the block after", "next block", selects(1)},
		{inChat, []string{"ctrl+z"}, "suspend Drover; `fg` brings it back", "suspend", (*Model).suspend},
		{inChat, []string{"ctrl+l"}, "draw the screen anew", "redraw", func(*Model) tea.Cmd { return tea.ClearScreen }},
		{inChat, []string{"?", "f1"}, "all keys; `?` if nothing is typed",
			"help", func(m *Model) tea.Cmd { return m.openPage("help") }},

		{Where: inEditor, Keys: []string{"left", "right", "ctrl+f"}, Does: "move a character"},
		{Where: inEditor, Keys: []string{"alt+b", "alt+f", "ctrl+left", "ctrl+right", "alt+left", "alt+right"},
			Does: "move a word"},
		{Where: inEditor, Keys: []string{"home", "end", "ctrl+a", "ctrl+e"},
			Does: "move to the begin or the end of the line"},
		{Where: inEditor, Keys: []string{"backspace", "ctrl+h", "delete"}, Does: "delete a character"},
		{Where: inEditor, Keys: []string{"ctrl+w", "alt+backspace", "alt+d"}, Does: "delete a word"},
		{Where: inEditor, Keys: []string{"ctrl+u", "ctrl+k"}, Does: "delete to the begin or the end of the line"},
		{Where: inEditor, Keys: []string{"ctrl+y"}, Does: "insert what was deleted last"},
		{Where: inEditor, Keys: []string{"ctrl+_", "ctrl+/"}, Does: "undo"},

		{Where: inSearch, Keys: []string{"ctrl+r"}, Does: "the next older prompt that fits"},
		{Where: inSearch, Keys: []string{"enter", "tab"}, Does: "take it, for editing"},
		{Where: inSearch, Keys: []string{"esc", "ctrl+c", "ctrl+g"}, Does: "give up"},

		{Where: inQuestion, Keys: []string{"up", "down"}, Does: "choose an answer"},
		{Where: inQuestion, Keys: []string{"enter"}, Does: "give it"},
		{Where: inQuestion, Keys: []string{"1", "2", "3", "4", "5", "6"}, Does: "give the answer with this number"},
		{Where: inQuestion, Keys: []string{"space"}, Does: "mark an option, where several may be chosen"},
		{Where: inQuestion, Keys: []string{"tab"},
			Does: "change a text of the call before you allow it; again: the next text"},
		{Where: inQuestion, Keys: []string{"s"}, Does: "show a plan as Markdown, or as it was written"},
		{Where: inQuestion, Keys: []string{"pgup", "pgdown"}, Does: "see the rest of a long call"},
		{Where: inQuestion, Keys: []string{"esc"}, Does: "answer later; ctrl+g comes back"},

		{Where: inPanel, Keys: []string{"up", "down", "pgup", "pgdown", "home", "end", "j", "k", "g", "G"},
			Does: "choose a task"},
		{Where: inPanel, Keys: []string{"enter", "right"}, Does: "open its conversation, or its output"},
		{Where: inPanel, Keys: []string{"x"}, Does: "twice: stop it with everything below it, and show the receipt"},
		{Where: inPanel, Keys: []string{"p"}, Does: "pause it, or let it go on"},
		{Where: inPanel, Keys: []string{"b"}, Does: "move it to the background"},
		{Where: inPanel, Keys: []string{"s"}, Does: "send it a message"},
		{Where: inPanel, Keys: []string{"r"}, Does: "run it again, if it has ended and can go on"},
		{Where: inPanel, Keys: []string{"a"}, Does: "show all tasks that have ended, or only those of the last 30 s"},
		{Where: inPanel, Keys: []string{"esc", "q", "shift+down", "ctrl+t"}, Does: "back to the conversation"},

		{Where: inZoom, Keys: []string{"enter"}, Does: "send what is typed to the task"},
		{Where: inZoom, Keys: []string{"pgup", "pgdown", "ctrl+up", "ctrl+down", "ctrl+home", "ctrl+end"}, Does: "scroll"},
		{Where: inZoom, Keys: []string{"ctrl+o", "alt+o"}, Does: "open the last block, or all"},
		{Where: inZoom, Keys: []string{"ctrl+x"}, Does: "twice: stop it with everything below it"},
		{Where: inZoom, Keys: []string{"esc"}, Does: "back to the tasks"},

		{Where: inLeave, Keys: []string{"up", "down", "enter", "1", "2", "3"},
			Does: "leave it running, stop it with a receipt, or stay"},
		{Where: inLeave, Keys: []string{"esc"}, Does: "stay"},

		{Where: inPicker, Keys: []string{"up", "down", "enter"}, Does: "choose a conversation; what is typed searches"},
		{Where: inPicker, Keys: []string{"esc"}, Does: "stay in this one"},

		{Where: inRewind, Keys: []string{"up", "down", "home", "end", "enter"},
			Does: "choose the prompt before which a copy of the conversation goes on"},
		{Where: inRewind, Keys: []string{"esc"}, Does: "stay"},

		{Where: inInbox, Keys: []string{"up", "down", "home", "end", "j", "k", "g", "G"}, Does: "choose an item"},
		{Where: inInbox, Keys: []string{"enter", "space"},
			Does: "answer its question, type an answer for its task, or mark its failure as seen"},
		{Where: inInbox, Keys: []string{"x"}, Does: "twice: stop its task with everything below it"},
		{Where: inInbox, Keys: []string{"esc", "q", "alt+i"}, Does: "back to the conversation"},

		{Where: inPage, Keys: []string{"up", "down", "j", "k"}, Does: "choose a line, or scroll by one"},
		{Where: inPage, Keys: []string{"pgup", "pgdown", "b", "f", "space", "home", "end", "g", "G"}, Does: "scroll"},
		{Where: inPage, Keys: []string{"left", "right", "h", "l"}, Does: "see the rest of long lines"},
		{Where: inPage, Keys: []string{"enter"}, Does: "take the chosen line, such as a model"},
		{Where: inPage, Keys: []string{"r"}, Does: "read it again"},
		{Where: inPage, Keys: []string{"esc", "q"}, Does: "back to the conversation"},

		{Where: inSetUp, Keys: []string{"up", "down", "enter"}, Does: "choose how Drover reaches a model; what is typed searches a long list"},
		{Where: inSetUp, Keys: []string{"tab"}, Does: "the next field of a form"},
		{Where: inSetUp, Keys: []string{"ctrl+s"}, Does: "save what could not be checked"},
		{Where: inSetUp, Keys: []string{"esc"}, Does: "back; from the first page, leave"},
	}
}

// bindingsWith are the keys with others for what the user has set, and what of that is not
// known.
func bindingsWith(keys map[string]string) (list []Binding, unknown []string) {
	list = Bindings()
	for name, key := range keys {
		i := slices.IndexFunc(list, func(b Binding) bool { return b.do != nil && b.name == name })
		if i < 0 || key == "" {
			unknown = append(unknown, name)
			continue
		}
		list[i].Keys = []string{key}
		for k := range list { // it does nothing else any more
			if k != i && list[k].Where == inChat {
				list[k].Keys = slices.DeleteFunc(slices.Clone(list[k].Keys), func(old string) bool { return old == key })
			}
		}
	}
	slices.Sort(unknown)
	return list, unknown
}

// keyOf is the first key of an action in the conversation.
func keyOf(bindings []Binding, name string) string {
	for _, b := range bindings {
		if b.name == name && len(b.Keys) > 0 {
			return b.Keys[0]
		}
	}
	return "no key"
}

// actionOf returns the effect of a key in the conversation; nil: it has none.
func actionOf(bindings []Binding, key string) func(*Model) tea.Cmd {
	for _, b := range bindings {
		if b.Where == inChat && slices.Contains(b.Keys, key) {
			return b.do
		}
	}
	return nil
}

// does is an action without a command.
func does(f func(*Model)) func(*Model) tea.Cmd {
	return func(m *Model) tea.Cmd {
		f(m)
		return nil
	}
}

// scrolls moves the conversation by lines, or by pages.
func scrolls(n int, pages bool) func(*Model) tea.Cmd {
	return does(func(m *Model) {
		height, step := m.talkHeight(), n
		if pages {
			step *= max(1, height-2)
		}
		m.window.Scroll(m.talk, m.drawer, m.width, height, step)
	})
}

// selects chooses a block of the conversation.
func selects(step int) func(*Model) tea.Cmd {
	return does(func(m *Model) { m.window.Select(m.talk, m.drawer, m.width, m.talkHeight(), step) })
}

// slash is a command of the UI. All others are those of the session; see [control.API.Commands]. do returns false if
// the command stays in the editor.
type slash struct {
	name, does string
	do         func(m *Model, rest string) (cmd tea.Cmd, done bool)
}

// commands returns the commands of the UI.
func commands() []slash {
	plain := func(f func(*Model) tea.Cmd) func(*Model, string) (tea.Cmd, bool) {
		return func(m *Model, _ string) (tea.Cmd, bool) { return f(m), true }
	}
	setting := func(f func(*control.ConfigureRequest, *string)) func(*Model, string) (tea.Cmd, bool) {
		return func(m *Model, rest string) (tea.Cmd, bool) {
			if rest == "" {
				set := m.settings()
				m.say(fmt.Sprintf("model %s, permission mode %s, thinking %s; /mode VALUE or /think VALUE changes it", set.Model,
					set.Mode, cmp.Or(set.Thinking.Effort, "as the provider has it")))
				return nil, false
			}
			var req control.ConfigureRequest
			f(&req, &rest)
			return m.configure(req), true
		}
	}
	model := setting(func(r *control.ConfigureRequest, value *string) { r.Model = value })
	var list []slash
	for _, p := range pageCommands() {
		p.do = func(m *Model, rest string) (tea.Cmd, bool) {
			if p.name == "model" && rest != "" {
				return model(m, rest)
			}
			return m.openPage(p.name), true
		}
		list = append(list, p)
	}
	return append(list, []slash{
		{"tasks", "the tasks", plain((*Model).openPanel)},
		{"inbox", "what needs you, in all sessions and projects", plain((*Model).openInbox)},
		{"stop", "stop a task: /stop ID", func(m *Model, rest string) (tea.Cmd, bool) {
			if rest == "" {
				m.say("which task? /stop ID; shift+down shows the tasks")
				return nil, false
			}
			return m.stop(false, rest), true
		}},
		{"interrupt", "interrupt the turn", plain((*Model).interrupt)},
		{"resume", "go on with another conversation", plain((*Model).openPicker)},
		{"fork", "go back to before an earlier prompt, in a copy of the conversation", plain((*Model).rewind)},
		{"mode", "the permission mode: /mode default, acceptEdits, plan, dontAsk or bypassPermissions",
			setting(func(r *control.ConfigureRequest, value *string) { r.Mode = value })},
		{"think", "how much the model thinks: /think low, medium, high, xhigh, max or off",
			setting(func(r *control.ConfigureRequest, value *string) {
				r.Thinking = &control.Thinking{Effort: *value}
				if *value == "off" {
					r.Thinking = &control.Thinking{Tokens: -1}
				}
			})},
		{"autopilot", "go on by itself until all is done: /autopilot on, off, or nothing for the other one",
			func(m *Model, rest string) (tea.Cmd, bool) { return m.autopilot(rest), true }},
		{"teleport", "have work done by the usual service of remote agents: /teleport WORK",
			func(m *Model, rest string) (tea.Cmd, bool) { return m.teleport(rest), true }},
		{"new", "begin another conversation; this one goes on", plain((*Model).begins)},
		{"detach", "leave; the work goes on", plain(func(*Model) tea.Cmd { return tea.Quit })},
		{"quit", "leave, and say what becomes of what runs", plain((*Model).leave)},
	}...)
}
