package files

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
)

type editInput struct {
	FilePath   string `json:"file_path" input:"filled"`
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
}

func (s *set) editFile(_ context.Context, _ agent.Call, in editInput) (agent.Output, error) {
	place, err := s.write.Find("Edit", in.FilePath)
	if err != nil {
		return refuse(in.FilePath, err)
	}
	was, info, err := load(place)
	if err == nil {
		err = s.current(place.Path(), was)
	}
	if err != nil {
		return refuse(in.FilePath, err)
	}
	is, first, count, err := replace(string(was), in)
	if err == nil {
		err = store(place, []byte(is), info)
	}
	if err != nil {
		return refuse(in.FilePath, err)
	}
	s.remember(place.Path(), []byte(is))
	times := "1 replacement"
	if count > 1 {
		times = fmt.Sprintf("%d replacements, the first", count)
	}
	return agent.Output{
		Text: fmt.Sprintf("Edited %s: %s at line %d\n%s",
			place.Path(), times, first, around(is, first, in.NewString)),
		Structured: WriteResult{Type: "update", FilePath: place.Path(), Diff: diff(place.Path(), string(was), is)},
	}, nil
}

// replace makes the new text and says at which line it begins to differ, and
// how many places were changed.
func replace(text string, in editInput) (out string, line, count int, err error) {
	from, to := in.OldString, in.NewString
	if ends := strings.Count(text, "\r\n"); ends > 0 && ends == strings.Count(text, "\n") {
		// Read shows lines without their ends, so the model cannot know.
		from, to = crlf(from), crlf(to)
	}
	switch {
	case from == "":
		return "", 0, 0, errors.New(`field "old_string" is empty; use Write to make a file`)
	case from == to:
		return "", 0, 0, errors.New(`fields "old_string" and "new_string" are the same`)
	}
	at := strings.Index(text, from)
	if at < 0 {
		hint := ""
		if strings.Contains(from, "<U+") {
			hint = "; characters that Read shows as <U+…> must be given as themselves"
		}
		return "", 0, 0, errors.New("old_string is not in the file" + hint)
	}
	count = strings.Count(text, from)
	if count == 1 && strings.Contains(text[at+1:], from) {
		count = 2 // the places overlap, which Count does not see
	}
	if count > 1 && !in.ReplaceAll {
		return "", 0, 0, fmt.Errorf("old_string is in the file %d times; "+
			"give more lines around it, or set replace_all", count)
	}
	return strings.ReplaceAll(text, from, to), 1 + strings.Count(text[:at], "\n"), strings.Count(text, from), nil
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// around shows the new lines with a few before and after, so that the model
// need not read the file again.
func around(text string, line int, inserted string) string {
	const margin, most = 3, 40
	from := max(1, line-margin)
	count := min(most, line-from+strings.Count(inserted, "\n")+1+margin)
	shown, _, err := number([]byte(text), from, count)
	if err != nil {
		return "" // the rest of the file is shorter
	}
	shown, _, _ = strings.Cut(shown, "\n(lines ")
	return strings.TrimRight(shown, "\n")
}
