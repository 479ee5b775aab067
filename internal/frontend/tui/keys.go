package tui

import "slices"

// action is the effect of a key.
type action string

// The actions of keys, by their names in the table of [Bindings].
const (
	actSubmit     action = "submit"
	actNewline    action = "newline"
	actImage      action = "image"
	actInterrupt  action = "interrupt"
	actClear      action = "clear"
	actLeave      action = "leave"
	actMode       action = "mode"
	actBackground action = "background"
	actTasks      action = "tasks"
	actInbox      action = "inbox"
	actMouse      action = "mouse"
	actTodos      action = "todos"
	actOpen       action = "open"
	actOpenAll    action = "open all"
	actQuestion   action = "question"
	actSearch     action = "search"
	actComplete   action = "complete"
	actSuspend    action = "suspend"
	actRedraw     action = "redraw"
	actHelp       action = "help"
	actPageUp     action = "page up"
	actPageDown   action = "page down"
	actLineUp     action = "line up"
	actLineDown   action = "line down"
	actBegin      action = "begin"
	actFollow     action = "follow"
	actPrevious   action = "previous block"
	actNext       action = "next block"
	actUp         action = "up"
	actDown       action = "down"
)

// Binding is what some keys do in a part of the UI.
type Binding struct {
	Where string   // the part
	Keys  []string // by their names in bubbletea
	Does  string   // for people
	do    action
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
		{inChat, []string{"enter"}, "send the prompt; while the agent works it waits in the queue", actSubmit},
		{inChat, []string{"shift+enter", "alt+enter", "ctrl+j"}, "a new line; so does enter behind a `\\`", actNewline},
		{inChat, []string{"ctrl+v"}, "put the image of the clipboard into the prompt", actImage},
		{inChat, []string{"esc"}, "interrupt the turn, and nothing else; twice without one: back to an earlier prompt", actInterrupt},
		{inChat, []string{"ctrl+c"}, "clear what is typed; else interrupt the turn; else leave", actClear},
		{inChat, []string{"shift+tab"}, "the next permission mode: default, acceptEdits, plan", actMode},
		{inChat, []string{"ctrl+d"}, "leave, if nothing is typed", actLeave},
		{inChat, []string{"ctrl+b"}, "move what the agent waits for to the background; with nothing, or again, the turn itself", actBackground},
		{inChat, []string{"shift+down", "ctrl+t"}, "the tasks", actTasks},
		{inChat, []string{"alt+i"}, "the inbox: what needs you in all sessions", actInbox},
		{inChat, []string{"alt+t"}, "show or hide the to-dos", actTodos},
		{inChat, []string{"alt+m"}, "use the mouse, or leave it to the terminal", actMouse},
		{inChat, []string{"ctrl+o"}, "open the chosen block, or the last one; again folds it", actOpen},
		{inChat, []string{"alt+o"}, "open all blocks, or fold them", actOpenAll},
		{inChat, []string{"ctrl+g"}, "go to the question that waits", actQuestion},
		{inChat, []string{"ctrl+r"}, "search in the history", actSearch},
		{inChat, []string{"tab"}, "complete a `/command` or an `@file`", actComplete},
		{inChat, []string{"up"}, "a row up; in the first row the prompt before, or one that waits", actUp},
		{inChat, []string{"down"}, "a row down; in the last row the prompt after", actDown},
		{inChat, []string{"pgup"}, "a page up", actPageUp},
		{inChat, []string{"pgdown"}, "a page down", actPageDown},
		{inChat, []string{"shift+up", "ctrl+up"}, "a line up", actLineUp},
		{inChat, []string{"ctrl+down"}, "a line down", actLineDown},
		{inChat, []string{"ctrl+home"}, "to the begin of the conversation", actBegin},
		{inChat, []string{"ctrl+end"}, "to its end, and follow it", actFollow},
		{inChat, []string{"alt+up"}, "choose the block before that can be opened", actPrevious},
		{inChat, []string{"alt+down"}, "choose the block after", actNext},
		{inChat, []string{"ctrl+z"}, "suspend Drover; `fg` brings it back", actSuspend},
		{inChat, []string{"ctrl+l"}, "draw the screen anew", actRedraw},
		{inChat, []string{"?", "f1"}, "all keys; `?` if nothing is typed", actHelp},

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
		i := slices.IndexFunc(list, func(b Binding) bool { return b.do != "" && string(b.do) == name })
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

// keyOf is the first key that does something in the conversation.
func keyOf(bindings []Binding, do action) string {
	for _, b := range bindings {
		if b.do == do && len(b.Keys) > 0 {
			return b.Keys[0]
		}
	}
	return "no key"
}

// actionOf returns the action of a key in the conversation.
func actionOf(bindings []Binding, key string) action {
	for _, b := range bindings {
		if b.Where == inChat && slices.Contains(b.Keys, key) {
			return b.do
		}
	}
	return ""
}

// slash is a command of the UI. All others are those of the session; see
// [control.API.Commands].
type slash struct {
	name, does string
}

// commands returns the commands of the UI.
func commands() []slash {
	return append(pageCommands(), []slash{
		{"tasks", "the tasks"},
		{"inbox", "what needs you, in all sessions and projects"},
		{"stop", "stop a task: /stop ID"},
		{"interrupt", "interrupt the turn"},
		{"resume", "go on with another conversation"},
		{"fork", "go back to before an earlier prompt, in a copy of the conversation"},
		{"mode", "the permission mode: /mode default, acceptEdits, plan, dontAsk or bypassPermissions"},
		{"think", "how much the model thinks: /think low, medium, high, xhigh, max or off"},
		{"autopilot", "go on by itself until all is done: /autopilot on, off, or nothing for the other one"},
		{"teleport", "have work done by the usual service of remote agents: /teleport WORK"},
		{"new", "begin another conversation; this one goes on"},
		{"detach", "leave; the work goes on"},
		{"quit", "leave, and say what becomes of what runs"},
	}...)
}
