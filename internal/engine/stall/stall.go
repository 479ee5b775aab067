package stall

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rules distinguish a prompt from progress. Create them with [New]; they may be used by several
// goroutines.
type Rules struct {
	patterns []*regexp.Regexp  // the seven documented ones
	surest   []*regexp.Regexp  // an open line that is a prompt, however often it was overwritten
	certain  []*regexp.Regexp  // an open line that is a prompt, whatever else it matches
	progress []*regexp.Regexp  // an open line that shows progress
	prompts  []*regexp.Regexp  // an open line that is a prompt
	orders   []*regexp.Regexp  // a closed line that says what to type
	quotes   []*regexp.Regexp  // a complete line about a question, which is not a prompt
	logs     []*regexp.Regexp  // a line of a log, which is not a prompt
	items    []*regexp.Regexp  // a line of a menu, and the selected one
	menus    []*regexp.Regexp  // the line above a menu
	measures []*regexp.Regexp  // a line of a screen that shows progress
	words    *strings.Replacer // maps words of other languages to English ones
}

// New makes the rules.
func New() *Rules {
	return &Rules{
		patterns: compile(known()), surest: compile(surest()), certain: compile(sure()), progress: compile(tells()),
		prompts: compile(asks()), orders: compile(commands()), quotes: compile(tellsOf()), logs: compile(logLines()),
		items: compile(itemShapes()), menus: compile(menuHeads()), measures: compile(gauges()),
		words: strings.NewReplacer(words()...),
	}
}

func compile(all []string) []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(all))
	for i, p := range all {
		out[i] = regexp.MustCompile(`(?i)` + p)
	}
	return out
}

// longest is the length beyond which an open line is not a prompt but truncated text.
const longest = 200

// Waiting reports whether the output ends with a question, and returns the line with it. tail
// is the raw end of the output; of a longer one the last [TailBytes] count.
func (r *Rules) Waiting(tail []byte) (line string, waiting bool) {
	s := look(tail)
	switch {
	case s.edits && !matches(r.measures, r.plain(s.line)):
		return r.said(s), true
	case s.full && !s.idle && r.prompt(s.line):
		return strings.TrimSpace(s.line), true
	case s.full && (s.idle || len(s.rows) == 0 || slices.ContainsFunc(s.near, r.measure)):
		return "", false
	case s.full:
		return r.said(s), true
	case strings.TrimSpace(s.line) == "":
		return r.closed(s)
	}
	return r.open(s)
}

// open judges a line without a line break: the cursor is in it.
func (r *Rules) open(s screen) (line string, waiting bool) {
	line = r.plain(s.line)
	log := matches(r.logs, line)
	switch {
	case tested(s.rows):
		return "", false
	case !log && (matches(r.surest, line) && !matches(r.measures, line) || !s.busy && matches(r.certain, line)):
		return s.last, true
	case s.bar && !matches(r.measures, line):
		return s.last, true
	case s.busy || log || matches(r.progress, line):
		return "", false
	case matches(r.patterns, line):
		return s.last, true
	}
	if head, ok := r.menu(s.rows); ok {
		return head, true
	}
	if utf8.RuneCountInString(line) <= longest && matches(r.prompts, line) {
		return s.last, true
	}
	return "", false
}

// closed judges the last line of an output that ends with a line break.
func (r *Rules) closed(s screen) (line string, waiting bool) {
	line = r.plain(s.last)
	asks := matches(r.patterns, line) || matches(r.orders, line) || headed(s.rows) || framed(s)
	if asks && !matches(r.quotes, line) && !matches(r.logs, line) {
		return s.last, true
	}
	return r.menu(s.rows)
}

// nothing is shown for an empty prompt.
const nothing = "(an empty line)"

// said returns the line that best shows the question: a question on the screen, or else the
// line of the cursor.
func (r *Rules) said(s screen) string {
	if s.full {
		for _, row := range slices.Backward(s.above) {
			if row = trim(row); strings.HasSuffix(row, "?") || matches(r.patterns, r.plain(row)) {
				return row
			}
		}
	}
	for _, row := range slices.Backward(append(slices.Clone(s.rows), s.last)) {
		if row = trim(row); row != "" {
			return row
		}
	}
	return nothing
}

func (r *Rules) measure(row string) bool { return matches(r.measures, r.plain(row)) }

// prompt reports whether the line of the cursor is a prompt by itself.
func (r *Rules) prompt(line string) bool {
	line = r.plain(line)
	return (matches(r.certain, line) || matches(r.prompts, line)) && !matches(r.progress, line)
}

// plain normalizes a line for the rules: lower case, plain signs for those of any width and
// typography, and English words for prompts in other languages.
func (r *Rules) plain(line string) string {
	var b strings.Builder
	for _, r := range r.words.Replace(strings.ToLower(line)) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case unicode.IsLetter(r) || unicode.IsMark(r):
			b.WriteByte('x')
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case strings.ContainsRune("‘’‚‹", r):
			b.WriteByte('\'')
		case strings.ContainsRune("“”„«", r):
			b.WriteByte('"')
		case r == '：':
			b.WriteString(": ")
		case r >= '！' && r <= '～': // the full-width forms of ASCII
			b.WriteRune(r - '！' + '!')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// longestMenu is the maximum number of visible items of a menu.
const longestMenu = 15

// menu reports whether the output ends with a list to choose from, and returns the question
// above it.
func (r *Rules) menu(lines []string) (head string, ok bool) {
	pointed := false
	for n := len(lines) - 1; n >= 0 && len(lines)-n <= longestMenu; n-- {
		if pointed && matches(r.menus, r.plain(lines[n])) {
			return strings.TrimSpace(lines[n]), true
		}
		if !r.items[0].MatchString(lines[n]) {
			return "", false
		}
		pointed = pointed || r.items[1].MatchString(lines[n])
	}
	return "", false
}

func matches(of []*regexp.Regexp, line string) bool {
	for _, p := range of {
		if p.MatchString(line) {
			return true
		}
	}
	return false
}

// headed reports whether the last line is a request below a heading in brackets, as a pause of
// Ansible.
func headed(lines []string) bool {
	if len(lines) < 2 {
		return false
	}
	head, request := strings.TrimSpace(lines[len(lines)-2]), strings.TrimSpace(lines[len(lines)-1])
	return strings.HasPrefix(head, "[") && strings.Index(head, "]") == len(head)-1 && strings.HasSuffix(request, ":")
}

// framed reports whether the lines end with a question in a frame that is open at its left.
// Answered questions are marked otherwise, and progress has no lower edge. A choice without a
// cursor is such a question without a frame.
func framed(s screen) bool {
	has := func(marks string) bool {
		shown := s.rows[max(0, len(s.rows)-longestMenu):]
		return slices.ContainsFunc(shown, func(row string) bool { return strings.ContainsAny(row, marks) })
	}
	return strings.TrimSpace(s.last) == "└" && has("◆▲●◻◼") || s.hidden && has("●") && has("○")
}

// tested reports whether the line is output of a Go test whose start is in the line above it.
func tested(lines []string) bool {
	return len(lines) > 1 && strings.HasPrefix(lines[len(lines)-2], "=== RUN ")
}
