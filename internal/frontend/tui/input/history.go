package input

import (
	"slices"
	"strings"
)

// maxHistory bounds how many prompts are kept.
const maxHistory = 1000

// History holds earlier prompts, oldest first. It is a value.
type History struct {
	list  []string
	place int    // of the shown prompt; -1: none
	draft string // the text before the first step back, with its chips
}

// NewHistory makes a history of prompts, oldest first.
func NewHistory(list []string) History {
	return History{list: slices.Clone(list[max(0, len(list)-maxHistory):]), place: -1}
}

func (h History) add(text string) History {
	h.place, h.draft = -1, ""
	if n := len(h.list); strings.TrimSpace(text) == "" || n > 0 && h.list[n-1] == text {
		return h
	}
	h.list = append(slices.Clone(h.list[max(0, len(h.list)+1-maxHistory):]), text)
	return h
}

// Older shows the prompt before; ok is false at the oldest one.
func (e Editor) Older() (_ Editor, ok bool) {
	h := e.history
	switch {
	case len(h.list) == 0 || h.place == 0:
		return e, false
	case h.place < 0:
		h.draft, h.place = e.text, len(h.list)-1
	default:
		h.place--
	}
	e = e.Set(h.list[h.place])
	e.history = h
	return e, true
}

// Newer shows the prompt after, and at last the draft; ok is false if no earlier
// prompt is shown.
func (e Editor) Newer() (_ Editor, ok bool) {
	h := e.history
	if h.place < 0 {
		return e, false
	}
	if h.place++; h.place < len(h.list) {
		e = e.Set(h.list[h.place])
	} else {
		e = e.changed()
		e.text, e.at, h.place = h.draft, len(h.draft), -1
	}
	e.history = h
	return e, true
}

// Search is a search in the history, backwards.
type Search struct {
	Query string
	skip  int
	found string
	ok    bool
}

// Find looks for a query; with again, for one older than the last that was found.
func (e Editor) Find(s Search, query string, again bool) Search {
	if again && s.ok {
		s.skip++
	} else if query != s.Query {
		s.skip = 0
	}
	s.Query = query
	skip, last := s.skip, ""
	for i := len(e.history.list) - 1; i >= 0; i-- {
		text := e.history.list[i]
		if text == last || !strings.Contains(strings.ToLower(text), strings.ToLower(query)) {
			continue
		}
		last = text
		if skip == 0 {
			s.found, s.ok = text, true
			return s
		}
		skip--
	}
	if again && s.ok {
		s.skip-- // the oldest stays
		return s
	}
	s.found, s.ok = "", false
	return s
}

// Found returns the prompt that matches.
func (s Search) Found() (string, bool) { return s.found, s.ok }
