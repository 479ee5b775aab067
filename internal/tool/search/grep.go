package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// The words of output_mode.
const (
	content = "content"
	files   = "files_with_matches"
	counts  = "count"
)

type grepInput struct {
	Pattern   string `json:"pattern" input:"filled"`
	Path      string `json:"path,omitempty"`
	Glob      string `json:"glob,omitempty"`
	Mode      string `json:"output_mode,omitempty" input:"enum=content|files_with_matches|count,default=files_with_matches"`
	NoCase    bool   `json:"-i,omitempty" jsonschema:"Ignore case"`
	Numbers   *bool  `json:"-n,omitempty" input:"default=true"`
	After     int    `json:"-A,omitempty" input:"minimum=0,maximum=100"`
	Before    int    `json:"-B,omitempty" input:"minimum=0,maximum=100"`
	Around    *int   `json:"-C,omitempty" input:"minimum=0,maximum=100"`
	HeadLimit *int   `json:"head_limit,omitempty" input:"minimum=1,maximum=10000,default=250"`
	Multiline bool   `json:"multiline,omitempty" jsonschema:"Matches may span lines"`
}

// query is a search with all defaults filled in.
type query struct {
	pattern, glob, mode          string
	noCase, numbers, multiline   bool
	before, after, most, hitsPer int // hitsPer: matches per file that matter, 0 for all
}

func (in grepInput) query() (query, error) {
	q := query{
		pattern: in.Pattern, glob: in.Glob, mode: cmp.Or(in.Mode, files), noCase: in.NoCase,
		numbers: in.Numbers == nil || *in.Numbers, multiline: in.Multiline,
		before: in.Before, after: in.After, most: DefaultLines,
	}
	if in.Around != nil {
		q.before, q.after = *in.Around, *in.Around
	}
	if in.HeadLimit != nil {
		q.most = *in.HeadLimit
	}
	switch {
	case !doublestar.ValidatePattern(strings.TrimPrefix(q.glob, "!")):
		return q, errors.New(`field "glob" is not a glob: a bracket or brace is not closed`)
	case strings.ContainsRune(q.pattern+q.glob, 0):
		return q, errors.New("the pattern contains a NUL character")
	}
	if q.mode != content {
		q.before, q.after = 0, 0
	}
	if q.mode == files {
		q.hitsPer = 1
	}
	return q, nil
}

// GrepResult is the structured result of Grep.
type GrepResult struct {
	Mode      string `json:"mode"`
	NumFiles  int    `json:"numFiles"` // with a match, as far as shown
	NumLines  int    `json:"numLines"` // of the answer
	Truncated bool   `json:"truncated"`
}

func (f finder) grep(ctx context.Context, _ agent.Call, in grepInput) (agent.Output, error) {
	q, err := in.query()
	if err != nil {
		return agent.Output{}, toolkit.Refuse(err)
	}
	at := cmp.Or(in.Path, ".")
	place, err := f.area.Find("Grep", at)
	if err != nil {
		return refuse(ctx, at, err)
	}
	a := &answer{query: q, short: f.short, may: f.area.Reads}
	if rg := f.ripgrep(); rg != "" {
		err = ask(ctx, rg, place, q, a.take)
	} else {
		err = scan(ctx, place, q, a.take)
	}
	if err != nil || ctx.Err() != nil {
		return refuse(ctx, at, cmp.Or(err, ctx.Err()))
	}
	return a.output(), nil
}

// line is a line of a file that matched, or one near it.
type line struct {
	path  string // absolute
	n     int    // from 1
	text  string // without its end
	match bool
}

// answer makes text of lines as they are found, until there are enough.
type answer struct {
	query
	short func(string) string
	may   func(path string) bool

	b        strings.Builder
	lines    int
	filesHit int
	last     line
	count    int // matching lines of the file of last
	full     bool
	denied   string // the last file that may not be read
}

// take is given lines in order, file by file, and reports whether it wants more.
func (a *answer) take(l line) bool {
	newFile := l.path != a.last.path
	if newFile {
		if l.path == a.denied || !a.may(l.path) {
			a.denied = l.path
			return true
		}
		a.endFile()
		a.count = 0
	}
	if l.match {
		if a.count++; a.count == 1 {
			a.filesHit++
		}
	}
	if a.mode == content {
		if gap := newFile || l.n > a.last.n+1; gap && a.last.path != "" && a.before+a.after > 0 {
			a.put("--")
		}
		a.put(a.render(l))
	}
	a.last = l
	return !a.full
}

// endFile writes the results that need all lines of a file.
func (a *answer) endFile() {
	switch {
	case a.count == 0:
	case a.mode == files:
		a.put(a.short(a.last.path))
	case a.mode == counts:
		a.put(fmt.Sprintf("%s:%d", a.short(a.last.path), a.count))
	}
}

func (a *answer) put(s string) {
	if a.full = a.full || a.lines >= a.most || a.b.Len()+len(s) > maxText; !a.full {
		a.b.WriteString(s + "\n")
		a.lines++
	}
}

func (a *answer) render(l line) string {
	mark := ":"
	if !l.match {
		mark = "-"
	}
	text := l.text
	if n := utf8.RuneCountInString(text); n > maxLine {
		text = fmt.Sprintf("%s… (%d more characters)", string([]rune(text)[:maxLine]), n-maxLine)
	}
	text = strings.ReplaceAll(excerpt.Visible(text), "\n", "<U+000A>")
	if a.numbers {
		return fmt.Sprintf("%s%s%d%s%s", a.short(l.path), mark, l.n, mark, text)
	}
	return a.short(l.path) + mark + text
}

func (a *answer) output() agent.Output {
	if !a.full {
		a.endFile()
	}
	switch {
	case a.full:
		fmt.Fprintf(&a.b, "(only the first %d lines of the answer; narrow the search, or raise head_limit)\n",
			a.lines)
	case a.lines == 0:
		a.b.WriteString("No matches. Binary files and files that git ignores are not searched.\n")
	}
	if a.denied != "" {
		a.b.WriteString(leftOut)
	}
	return agent.Output{
		Text:       a.b.String(),
		Structured: GrepResult{Mode: a.mode, NumFiles: a.filesHit, NumLines: a.lines, Truncated: a.full},
	}
}

// wanted reports whether the glob lets a file through. A glob without a slash
// is about the last part of the name.
func (q query) wanted(name string) bool {
	glob, not := strings.CutPrefix(q.glob, "!")
	if glob == "" {
		return true
	}
	if !strings.Contains(glob, "/") {
		name = filepath.Base(name)
	}
	return doublestar.MatchUnvalidated(strings.TrimPrefix(glob, "/"), name) != not
}
