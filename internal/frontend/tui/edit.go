package tui

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/task"
)

// callEdit is a call whose texts are being changed.
type callEdit struct {
	fields []field
	at     int // the one in the editor
}

// field is a text of an input.
type field struct{ name, text string }

// canChange reports whether another input can be given with an answer: only for a call of a tool.
func (a *asking) canChange() bool {
	kind := a.question.Kind
	return (kind == task.Permission || kind == "") && a.question.ToolUseID != ""
}

// takesText reports whether keys go to the editor of the question.
func (a *asking) takesText() bool { return a.typing || a.edit != nil }

// beginEdit puts the most important text of the call into the editor.
func (a *asking) beginEdit() {
	fields, err := textFields(a.input())
	if err != nil || len(fields) == 0 {
		a.problem = "the call has no text that can be changed here: see drover approvals allow --input"
		return
	}
	a.edit, a.problem = &callEdit{fields: fields}, ""
	a.editField(0)
}

// input is the input that would be run.
func (a *asking) input() json.RawMessage {
	if a.changed != nil {
		return a.changed
	}
	return a.question.Input
}

// editField puts a field into the editor.
func (a *asking) editField(i int) {
	a.edit.at = i
	a.editor, _ = input.New(nil).Load(a.edit.fields[i].text) // textFields has tried it
}

// editKey takes in a key while a text of the call is edited.
func (m *Model) editKey(msg tea.KeyPressMsg) {
	a, width := m.ask, m.editorWidth()
	key := msg.String()
	switch key {
	case "esc", "ctrl+c":
		a.edit, a.problem = nil, ""
		return
	case "shift+enter", "alt+enter", "ctrl+j":
		a.editor = a.editor.Insert("\n")
		return
	case "up", "down":
		move := map[string]func(int) (input.Editor, bool){"up": a.editor.Up, "down": a.editor.Down}[key]
		if moved, ok := move(width); ok {
			a.editor = moved
		}
		return
	case "tab", "enter":
	default:
		a.editor = edited(a.editor, msg)
		return
	}
	a.edit.fields[a.edit.at].text = a.editor.Value()
	if key == "tab" {
		a.editField((a.edit.at + 1) % len(a.edit.fields))
		return
	}
	now, err := withTexts(a.question.Input, a.edit.fields)
	if err != nil {
		a.problem = errorText(err)
		return
	}
	a.edit, a.changed = nil, now
	a.compose()
}

// textFields returns the texts of an input that an editor can hold, the most important first.
// An input that has a name twice is an error, since one of both would be changed.
func textFields(raw json.RawMessage) ([]field, error) {
	all, err := jsonc.Members(raw)
	if err != nil {
		return nil, err
	}
	var fields []field
	for i, m := range all {
		if slices.ContainsFunc(all[:i], func(other jsonc.Member) bool { return strings.EqualFold(m.Key, other.Key) }) {
			return nil, errors.New("the input has a name twice")
		}
		var text string
		if m.Value[0] != '"' || json.Unmarshal(m.Value, &text) != nil {
			continue
		}
		if _, ok := input.New(nil).Load(text); ok {
			fields = append(fields, field{m.Key, text})
		}
	}
	slices.SortStableFunc(fields, func(a, b field) int { return cmp.Compare(weight(a.name), weight(b.name)) })
	return fields, nil
}

// weight is the place of a field among those that can be changed.
func weight(name string) int {
	first := []string{"command", "plan", "url", "prompt", "content", "new_string", "query", "message", "file_path"}
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// withTexts returns the input with other texts; nil: they are the same.
func withTexts(raw json.RawMessage, fields []field) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	changed := false
	for _, f := range fields {
		var was string
		if json.Unmarshal(all[f.name], &was) == nil && was == f.text {
			continue
		}
		text, err := json.Marshal(f.text)
		if err != nil {
			return nil, err
		}
		all[f.name], changed = text, true
	}
	if !changed {
		return nil, nil
	}
	return json.Marshal(all)
}
