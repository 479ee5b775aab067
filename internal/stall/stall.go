package stall

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Rules tell a prompt from progress. Make them with [New]; they may be used by
// several goroutines.
type Rules struct {
	patterns []*regexp.Regexp // the seven that are known to users
	certain  []*regexp.Regexp // an open line that asks, whatever else it looks like
	progress []*regexp.Regexp // an open line that tells how far something is
	prompts  []*regexp.Regexp // an open line that asks
	quotes   []*regexp.Regexp // a whole line that tells of a question, and asks none
	logs     []*regexp.Regexp // a line of a log, which asks nothing
	items    []*regexp.Regexp // a line of a menu, and one that is pointed at
	menus    []*regexp.Regexp // the line above a menu
}

// New makes the rules.
func New() *Rules {
	return &Rules{patterns: compile(known()), certain: compile(sure()), progress: compile(tells()), prompts: compile(asks()),
		quotes: compile(tellsOf()), logs: compile(logLines()), items: compile(itemShapes()), menus: compile(menuHeads())}
}

func compile(all []string) []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(all))
	for i, p := range all {
		out[i] = regexp.MustCompile(`(?i)` + p)
	}
	return out
}

// known are the seven patterns of prompts, by which a line asks even if a line
// break follows.
func known() []string {
	return []string{
		`\(y/n\)`,
		`\[y/n\]`,
		`\(yes/no\)`,
		`\b(?:do you|would you|shall i|are you sure)\b.*\? *$`,
		`press (?:any key|enter)`,
		`continue\?`,
		`overwrite\?`,
	}
}

// longest is the number of characters beyond which an open line is no question
// of a program but text that was cut.
const longest = 200

// Waiting reports whether the output that ends so ends with a question, and the
// line that asks. tail is the raw end of the output; of a longer one the last
// [TailBytes] count.
func (r *Rules) Waiting(tail []byte) (line string, waiting bool) {
	s := look(tail)
	open := strings.TrimSpace(s.line) != ""
	if open && !s.busy && matches(r.certain, s.line) && !matches(r.logs, s.line) {
		return s.last, true
	}
	if open && (s.busy || matches(r.progress, s.line) || matches(r.logs, s.line)) {
		return "", false
	}
	if matches(r.patterns, s.last) && (open || !matches(r.quotes, s.last) && !matches(r.logs, s.last)) {
		return s.last, true
	}
	if head, ok := r.menu(s.tail); ok {
		return head, true
	}
	if open && utf8.RuneCountInString(s.line) <= longest && matches(r.prompts, s.line) {
		return s.last, true
	}
	return "", false
}

// longestMenu is how many items a menu shows at once.
const longestMenu = 15

// menu reports whether the output ends with a list from which something is to be
// chosen, and the question above it.
func (r *Rules) menu(lines []string) (head string, ok bool) {
	pointed := false
	for n := len(lines) - 1; n >= 0 && len(lines)-n <= longestMenu; n-- {
		if pointed && matches(r.menus, lines[n]) {
			return strings.TrimSpace(lines[n]), true
		}
		if !r.items[0].MatchString(lines[n]) {
			return "", false
		}
		pointed = pointed || r.items[1].MatchString(lines[n])
	}
	return "", false
}

// itemShapes are that of every item of a menu, and that of the one which a press of
// Enter would take.
func itemShapes() []string {
	return []string{`^(?: {0,6}[❯›»▸▶→>◯◉○●] {0,4}| {1,6})\S.{0,78}$`, `^ {0,6}[❯›»▸▶→>] {0,4}\S`}
}

// menuHeads are lines above a menu.
func menuHeads() []string {
	return []string{`^\? \S`, `\barrow[- ]?keys\b|\barrows to move\b|<space> to select`, `[\w"')\]] ?\? *(?:\([^()]*\))? *$`}
}

// tellsOf are lines in which a question is quoted, or is the name of a test or a
// remark on a place in a file.
func tellsOf() []string {
	return []string{`^\s*(?:=== |--- |# subtest\b|(?:not )?ok \d)`, `^\s*\S+\.\w+:\d+(?::\d+)?: `, "[\"'`][^\"'`]*\\?(?: [\\[(][^\\])]*[\\])])? ?[\"'`](?: \\S|[,}\\]])"}
}

// logLines begin with a time or an address.
func logLines() []string {
	const level = `(?:info|warn|warning|debug|trace|error|note|notice|fatal)`
	return []string{
		`^\s*[\[(]?(?:` + level + `\W{1,3})?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d)\b`,
		`^(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) [ \d]\d \d\d:\d\d:\d\d `,
		`^\d{1,3}(?:\.\d{1,3}){3} `,
	}
}

func matches(of []*regexp.Regexp, line string) bool {
	for _, p := range of {
		if p.MatchString(line) {
			return true
		}
	}
	return false
}

// sure are open lines that can be nothing else.
func sure() []string {
	return []string{
		`(?:password|passphrase|pass phrase|passcode|pin|otp|token|secret|api key|username|user name|login|(?:verification|security|authorization|one-time) code)\b.{0,80}: *$`,
		`^--more--`, `^(?:\S{1,80} )?\(end\)$`, `^lines \d+-\d+`, `^:$`, `^\*$`, // pagers, ed
		`^-{2,3}.*\b(?:more|continue|quit)\b.*-{2,3}$`, `\(press h for help or q to quit\)$`,
		`^(?:[^:]{0,60}\b)?(?:press|hit|push) \W?(?:any key|enter|return|space)\b`,
		`^(?:>>>|\.\.\.|>|\|) $`, // a further line is wanted
		`^\? \S`,                 // as many programs for setting up begin a question
	}
}

// tells are open lines that look like questions and are none.
func tells() []string {
	return []string{
		`^\s*(?:\S+ )?\w+ing\b[^?>\[]*: *$`,          // Doing this or that:
		`\b\d+(?:\.\d+)? ?%(?:[^)]|$)`,               // 12 % of it, but not --More--(12%)
		`\b\d+(?:\.\d+)? ?(?:[kmgt]i?b?|bytes)/s\b`,  // at some speed
		`\b(?:eta|elapsed|remaining|its?/s)\b[^?]*$`, // for some time
		`[^.?]\.{3,} *$`,                             // and so on ...
		`^[.+*FEsx]{2,}$`,                            // one sign for each thing done
		`^\s*[\d.,/: ]+$`,                            // numbers alone
		`^\S*(?:/\S+){2,}$`,                          // a path that was cut
		`^\s*\[?(?:info|warn|warning|debug|trace|error|note|notice|fatal)\]?(?:$|[^\w>][^?]*$)`,
	}
}

// asks are open lines that ask.
func asks() []string {
	return []string{
		`[\w"')\]>.…#] ?\?["')\]]* *$`, // any question
		`\? *y/n\b *:? *$`, `\b(?:enter|return) to \w+`,
		`^\s*(?:\w+ )?[=-]?>{1,3} $`, `^\s*\w+<\d+>+ $`, // php >, perl
		`^\s*(?:[\w.@:~/+()\[\]\\-]+ ){0,3}[\w.@:~/+()\[\]\\-]*[>$#%»❯➜] ?$`,
		`\? *\.\.\.$`,                     // xargs -p
		`\? *[(\[][^()\[\]]*[)\]] *:? *$`, // name? (x)
		`^\s*(?:enter|type|choose|select|input|provide|specify|confirm|please)\b.*[:>] *$`,
		`^(?:[^:]{0,60} )?(?:hit|press|type|push) (?:any key|enter|return|space|<?\w+>? to\b).*$`,
		`\[[^\[\]]{0,60}\] *[:?] *$`,              // name [default]:
		`\([^()]{0,60}\) *: *$`,                   // name (default):
		`: *\([^()]{0,60}\) $`,                    // name: (default)
		`(?:^|[\s:?])\[[^\[\]]{0,60}\] $`,         // [yes]
		`\[[^\[\]]{1,60}/\?\](?: \([a-z]+\))? *$`, // [N/y/?] (NEW)
		`^\w+ \[[^\[\]]{0,40}\]> $`,
		`\((?:type|enter|default|y|yes|n|no)\b[^()]{0,60}\) *$`,
		`^\s*(?:\([^()]{1,60}\) )?\d?[a-z][\w'/.-]*(?: [\w'/().-]+){0,6}: $`, // Real name:
		`\b(?:enter|type|input|choose|select|provide|specify|paste)\b [^:]{0,80}: $`,
		`\([a-z]\)[a-z]+.*: *$`,                                 // (Q)uit:
		`\[[a-z]\][a-z]+.*: *$`,                                 // [Q]uit:
		`\[[a-z]\][a-z]+(?:[ ,/|]+(?:or )?\[[a-z]\][a-z]+)+ *$`, // [Y]es/[N]o
		`^[^?]{0,60} [»❯➜] $`,
		`^\s*[\w.@:~/+()\[\]-]{0,60}(?:\([\w ./~-]{1,40}\) ?)?[>$#%»❯➜] ?$`,
		`^\(%?[\w:+. -]{1,30}\) $`,                                            // (gdb)
		`^\s*(?:[\w.@:~/+()\[\]-]+ ){0,3}[\w.@:~/+()\[\]-]*[\w)\]/~]>{1,3} $`, // What now>
		`^(?:in \[\d+\]|irb\([^()]*\)[\d:*> ]*|[\w-]+\[\d+\][:>]?)[:>]? $`,
		`^\s*[\w.@ -]{1,40}[=-][#>*'"(] $`, // psql
	}
}
