package stall

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rules tell a prompt from progress. Make them with [New]; they may be used by
// several goroutines.
type Rules struct {
	patterns []*regexp.Regexp  // the seven that are known to users
	surest   []*regexp.Regexp  // an open line that asks, however often it was written
	certain  []*regexp.Regexp  // an open line that asks, whatever else it looks like
	progress []*regexp.Regexp  // an open line that tells how far something is
	prompts  []*regexp.Regexp  // an open line that asks
	orders   []*regexp.Regexp  // a closed line that says what to type
	quotes   []*regexp.Regexp  // a whole line that tells of a question, and asks none
	logs     []*regexp.Regexp  // a line of a log, which asks nothing
	items    []*regexp.Regexp  // a line of a menu, and one that is pointed at
	menus    []*regexp.Regexp  // the line above a menu
	measures []*regexp.Regexp  // a line of a screen that shows how far something is
	words    *strings.Replacer // words of other languages become English ones
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

// longest is the number of characters beyond which an open line is no question
// of a program but text that was cut.
const longest = 200

// Waiting reports whether the output that ends so ends with a question, and the
// line that asks. tail is the raw end of the output; of a longer one the last
// [TailBytes] count.
func (r *Rules) Waiting(tail []byte) (line string, waiting bool) {
	s := look(tail)
	switch {
	case s.edits && !matches(r.measures, r.plain(s.line)):
		return r.said(s), true
	case s.full && !s.idle && r.prompt(s.line):
		return strings.TrimSpace(s.line), true
	case s.full && (s.idle || len(s.rows) == 0 || slices.ContainsFunc(s.fresh, r.measure)):
		return "", false
	case s.full:
		return r.said(s), true
	case strings.TrimSpace(s.line) == "":
		return r.closed(s)
	}
	return r.open(s)
}

// open judges a line that no line break ends: the cursor stands in it.
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

// nothing stands for a prompt that is empty.
const nothing = "(an empty line)"

// said is the line that tells best what is asked: of a screen a question, or else
// where the cursor is.
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

// prompt reports whether the line, in which the cursor stands, asks by itself.
func (r *Rules) prompt(line string) bool {
	line = r.plain(line)
	return (matches(r.certain, line) || matches(r.prompts, line)) && !matches(r.progress, line)
}

// plain writes a line as the rules know it: in small letters, with those of every
// language as letters and with English words for what prompts say in others, and
// signs of any width and typography are the plain ones.
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

// longestMenu is how many items a menu shows at once.
const longestMenu = 15

// menu reports whether the output ends with a list from which something is to be
// chosen, and the question above it.
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

// headed reports whether the last of the lines is a request below a heading in
// brackets: that of Ansible's pauses, and of others.
func headed(lines []string) bool {
	if len(lines) < 2 {
		return false
	}
	head, request := strings.TrimSpace(lines[len(lines)-2]), strings.TrimSpace(lines[len(lines)-1])
	return strings.HasPrefix(head, "[") && strings.Index(head, "]") == len(head)-1 && strings.HasSuffix(request, ":")
}

// framed reports whether the lines end with a question in a frame that is open to its
// left: what was answered is marked otherwise, and what is at work has no lower edge.
// One of several to choose from, without a cursor, is such a question without a frame.
func framed(s screen) bool {
	has := func(marks string) bool {
		shown := s.rows[max(0, len(s.rows)-longestMenu):]
		return slices.ContainsFunc(shown, func(row string) bool { return strings.ContainsAny(row, marks) })
	}
	return strings.TrimSpace(s.last) == "└" && has("◆▲●◻◼") || s.hidden && has("●") && has("○")
}

// tested reports whether the line is what a test of Go has printed, which has begun
// in the line above it.
func tested(lines []string) bool {
	return len(lines) > 1 && strings.HasPrefix(lines[len(lines)-2], "=== RUN ")
}
