package input

import (
	"slices"
	"strings"
)

// Sort is the sort of word that is completed.
type Sort int

// The sorts of completion.
const (
	NoCompletion Sort = iota
	Command           // /name at the begin of the prompt
	File              // @path anywhere
)

// Completing returns the word before the cursor that can be completed, without its mark.
func (e Editor) Completing() (Sort, string) {
	text := e.Before()
	if strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") && !strings.ContainsAny(text, " \n") {
		return Command, text[1:]
	}
	word := text[strings.LastIndexAny(text, " \n\t(")+1:]
	if strings.HasPrefix(word, "@") {
		return File, word[1:]
	}
	return NoCompletion, ""
}

// Rank orders candidates by how well they fit what was typed, and leaves out those that
// do not: first those that begin with it, then those whose last part does, then those
// that hold it, then those that hold its characters in their order.
func Rank(candidates []string, typed string, most int) []string {
	type scored struct {
		text  string
		score int
	}
	var list []scored
	low := strings.ToLower(typed)
	for _, c := range candidates {
		if n := score(strings.ToLower(c), low); n >= 0 {
			list = append(list, scored{c, n})
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int {
		if a.score != b.score {
			return a.score - b.score
		}
		if low != "" && len(a.text) != len(b.text) {
			return len(a.text) - len(b.text)
		}
		return strings.Compare(a.text, b.text)
	})
	out := make([]string, 0, min(most, len(list)))
	for _, s := range list[:min(most, len(list))] {
		out = append(out, s.text)
	}
	return out
}

func score(text, typed string) int {
	base := text[strings.LastIndexByte(strings.TrimSuffix(text, "/"), '/')+1:]
	switch {
	case typed == "":
		return strings.Count(text, "/")
	case strings.HasPrefix(text, typed):
		return 0
	case strings.HasPrefix(base, typed):
		return 1
	case strings.Contains(text, typed):
		return 2
	}
	rest := text
	for _, r := range typed {
		i := strings.IndexRune(rest, r)
		if i < 0 {
			return -1
		}
		rest = rest[i+1:]
	}
	return 3
}
