package home

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// reports is the directory of the reports of agents to the user.
const reports = "reports"

// Reports is the directory of reports. It is there only if there are some.
func (s Session) Reports() string { return filepath.Join(s.dir, reports) }

// NewReport makes the folder of reports, and returns the path of a new file in it for a
// report with a title. It does not make the file. The caller makes one at a time.
func (s Session) NewReport(title string) (path string, err error) {
	mine, err := s.Below().Folder(s.dir)
	if err != nil {
		return "", fmt.Errorf("make a folder for reports: %w", err)
	}
	defer mine.Close()
	dir, err := ensure(mine, reports)
	if err != nil {
		return "", fmt.Errorf("make a folder for reports: %w", err)
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return "", fmt.Errorf("look at the reports: %w", err)
	}
	name := slug(title) + ".md"
	for n := 2; slices.Contains(names, name); n++ {
		name = fmt.Sprintf("%s-%d.md", slug(title), n)
	}
	return filepath.Join(s.Reports(), name), nil
}

// slug is a title as the name of a file.
func slug(title string) string {
	const most = 48
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	out := ""
	for _, w := range words {
		if len(out)+len(w)+1 > most {
			break
		}
		out = strings.TrimPrefix(out+"-"+w, "-")
	}
	if out == "" {
		return "report"
	}
	return out
}
