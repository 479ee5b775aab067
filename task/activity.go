package task

import (
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// Activity is one thing an agent did.
type Activity struct {
	ToolName string          `json:"tool_name"`
	Input    json.RawMessage `json:"input,omitempty"` // of [MaxActivityInput] bytes at most
}

// RecentActivities is how many activities a [Progress] keeps.
const RecentActivities = 5

// MaxActivityInput bounds the input of an activity: a record holds several, is written with each
// event, and stays in memory after the end. The transcript has the whole input.
const (
	MaxActivityInput = 2048
	maxActivityText  = 256 // of a text in an input that is too long
)

// Add returns progress with one more activity, keeping the summary and the
// newest [RecentActivities].
func (p Progress) Add(a Activity) Progress {
	a = a.Short()
	p.ToolUseCount++
	p.LastActivity = &a
	recent := append(slices.Clone(p.RecentActivities), a)
	if n := len(recent) - RecentActivities; n > 0 {
		recent = recent[n:]
	}
	p.RecentActivities = recent
	return p
}

// Short returns the activity with the long values of its input shortened or left out.
func (a Activity) Short() Activity {
	if len(a.Input) > MaxActivityInput {
		a.Input = short(a.Input)
	}
	return a
}

func short(input json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return nil
	}
	for name, value := range fields {
		var text string
		switch {
		case len(value) <= maxActivityText:
		case json.Unmarshal(value, &text) == nil:
			fields[name], _ = json.Marshal(cut(text, maxActivityText) + "…") // a string always has a form
		default:
			delete(fields, name)
		}
	}
	input, err := json.Marshal(fields)
	if err != nil || len(input) > MaxActivityInput {
		return nil
	}
	return input
}

// cut returns the beginning of a text, in whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
