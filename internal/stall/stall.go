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
}

// New makes the rules.
func New() *Rules {
	return &Rules{patterns: compile(known()), certain: compile(sure()), progress: compile(tells()), prompts: compile(asks())}
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
	if open && !s.busy && matches(r.certain, s.line) {
		return s.last, true
	}
	if open && (s.busy || matches(r.progress, s.line)) {
		return "", false
	}
	if matches(r.patterns, s.last) {
		return s.last, true
	}
	if open && utf8.RuneCountInString(s.line) <= longest && matches(r.prompts, s.line) {
		return s.last, true
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

// sure are open lines that can be nothing else.
func sure() []string {
	return []string{
		`(?:password|passphrase|pass phrase|passcode|pin|otp|token|secret|api key|username|user name|login)\b.{0,80}: *$`,
		`^--more--`, `^\(end\)$`, `^lines \d+-\d+`, `^:$`, `^\*$`, // pagers, ed
		`^(?:>>>|\.\.\.|>|\|) $`, // a further line is wanted
		`^\? \S`,                 // as many programs for setting up begin a question
	}
}

// tells are open lines that look like questions and are none.
func tells() []string {
	return []string{
		`^\s*(?:\S+ )?\w+ing\b[^?>\[]*: *$`,           // Doing this or that:
		`\b\d+(?:\.\d+)? ?%(?:[^)]|$)`,                // 12 % of it, but not --More--(12%)
		`\b\d+(?:\.\d+)? ?(?:[kmgt]i?b?|bytes)/s\b`,   // at some speed
		`\b(?:eta|elapsed|remaining|its?/s)\b[^?]*$`,  // for some time
		`[^.?]\.{3,} *$`,                              // and so on ...
		`^[.+*FEsx]{2,}$`,                             // one sign for each thing done
		`^\s*[\d.,/: ]+$`,                             // numbers alone
		`^\S*(?:/\S+){2,}$`,                           // a path that was cut
		`^\s*\[?(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d)\b`, // a line of a log
		`^\s*\[?(?:info|warn|warning|debug|trace|error|note|notice|fatal)\]?\b[^?]*$`,
	}
}

// asks are open lines that ask.
func asks() []string {
	return []string{
		`\?["')\]]* *$`,                   // any question
		`\? *\.\.\.$`,                     // xargs -p
		`\? *[(\[][^()\[\]]*[)\]] *:? *$`, // name? (x)
		`^\s*(?:enter|type|choose|select|input|provide|specify|confirm|please)\b.*[:>] *$`,
		`^(?:[^:]{0,60} )?(?:hit|press|type|push) (?:any key|enter|return|space|<?\w+>? to\b).*$`,
		`\[[^\[\]]{0,60}\] *[:?] *$`,              // name [default]:
		`\([^()]{0,60}\) *: *$`,                   // name (default):
		`: *\([^()]{0,60}\) $`,                    // name: (default)
		`\[[^\[\]]{0,60}\] $`,                     // [yes]
		`\[[^\[\]]{1,60}/\?\](?: \([a-z]+\))? *$`, // [N/y/?] (NEW)
		`^\w+ \[[^\[\]]{0,40}\]> $`,
		`\((?:type|enter|default|y|yes|n|no)\b[^()]{0,60}\) *$`,
		`^\s*[a-z][\w'/.-]*(?: [\w'/().-]+){0,6}: $`, // Real name:
		`\([a-z]\)[a-z]+.*: *$`,                      // (Q)uit:
		`\[[a-z]\][a-z]+.*: *$`,                      // [Q]uit:
		`^[^?]{0,60} [»❯➜] $`,
		`^\s*[\w.@:~/+()\[\]-]{0,60}(?:\([\w ./~-]{1,40}\) ?)?[>$#%»❯➜] ?$`,
		`^\([\w -]{1,30}\) $`, // (gdb)
		`^(?:in \[\d+\]|irb\([^()]*\)[\d:*> ]*|[\w-]+\[\d+\][:>]?)[:>]? $`,
		`^\s*[\w.@ -]{1,40}[=-][#>*'"(] $`, // psql
	}
}
