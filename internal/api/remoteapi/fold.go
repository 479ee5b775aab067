package remoteapi

import (
	"encoding/json"
	"strings"
)

// maxStream limits what is kept of one stream of text; the newest part is kept.
const maxStream = 1 << 20

// Fold is the state that results from the events of a session, in their order. Its zero value
// is that of a session without any.
type Fold struct {
	Tools  int
	Tokens int64
	Phase  string
	Note   string // the newest one
	Latest Event  // the tool that was used last
	Recent []Event

	hook, said stream
}

// recentTools is how many tools a fold keeps.
const recentTools = 5

// Add adds an event.
func (f *Fold) Add(e Event) {
	switch e.Type {
	case ToolEvent:
		f.Tools++
		if len(e.Input) > maxInput || !json.Valid(e.Input) {
			e.Input = nil
		}
		f.Latest = e
		f.Recent = append(f.Recent, e)
		f.Recent = f.Recent[max(0, len(f.Recent)-recentTools):]
	case UsageEvent:
		f.Tokens = max(f.Tokens, e.Tokens)
	case PhaseEvent:
		f.Phase = e.Text
	case NoteEvent:
		f.Note = e.Text
	case HookEvent:
		f.hook.add(e.Text)
	case AssistantEvent:
		f.said.add(e.Text)
	}
}

// maxInput limits the shown input of a tool.
const maxInput = 4 << 10

// Review returns the review of a session of type [Ultrareview]: the text between the last tags
// <remote-review> and </remote-review>, of the hooks' output if it is there, else of the
// agent's text. Events may split either anywhere, even within a tag.
func (f *Fold) Review() (text string, ok bool) {
	if text, ok = f.HookReview(); ok {
		return text, true
	}
	return review(f.said.text)
}

// HookReview is Review of the hooks' output only: it is complete as soon as it is there,
// whatever else the session still does.
func (f *Fold) HookReview() (text string, ok bool) { return review(f.hook.text) }

func review(text string) (string, bool) {
	const begin, end = "<remote-review>", "</remote-review>"
	to := strings.LastIndex(text, end)
	if to < 0 {
		return "", false
	}
	from := strings.LastIndex(text[:to], begin)
	if from < 0 {
		return "", false
	}
	return strings.TrimSpace(text[from+len(begin) : to]), true
}

// stream joins texts without a separator.
type stream struct{ text string }

func (s *stream) add(text string) {
	s.text += text
	if over := len(s.text) - maxStream; over > 0 {
		s.text = s.text[over:]
	}
}

// lastWords limits the result of [Fold.LastWords].
const lastWords = 2000

// LastWords returns the end of the agent's text.
func (f *Fold) LastWords() string {
	text := strings.ToValidUTF8(f.said.text, "")
	if r := []rune(text); len(r) > lastWords {
		text = "…" + string(r[len(r)-lastWords:])
	}
	return text
}
