package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// gitCall is a command line of git, split.
type gitCall struct {
	sub  string
	rest []word
	dirs []string // where it runs, after -C
	why  string   // what speaks against the options of git itself
	info bool     // it only prints a version
}

// gitSplit splits the options of git itself from the command.
func (j *judge) gitSplit(args []word, s scope) gitCall {
	c := gitCall{dirs: s.dirs}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.known || !a.plain || a.glob:
			c.why = "a word of git that is known only when it runs"
			return c
		case slices.Contains([]string{"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--glob-pathspecs",
			"--noglob-pathspecs", "--icase-pathspecs", "--no-replace-objects", "--no-lazy-fetch", "--no-advice"}, a.text):
		case a.text == "-C" && i+1 < len(args):
			i++
			c.dirs = j.gitEnter(args[i], c.dirs)
			if c.dirs == nil {
				c.why = "git would run in a folder outside the working directories"
				return c
			}
		case a.text == "-c" && i+1 < len(args):
			i++
			key, value, _ := strings.Cut(args[i].text, "=")
			if !args[i].known || args[i].glob || !j.g.memory.gitSettable(strings.ToLower(key), value) {
				c.why = "git with a setting that is not known to be harmless"
				return c
			}
		case a.text == "--version" || a.text == "-v":
			c.info = true
			return c
		case strings.HasPrefix(a.text, "-"):
			c.why = "an option of git that is not known to be harmless: " + a.text
			return c
		default:
			c.sub, c.rest = a.text, args[i+1:]
			return c
		}
	}
	c.info = len(args) == 0
	if !c.info {
		c.why = "git without a command"
	}
	return c
}

// gitSettable reports settings that a line may make for one command.
func (m *Memory) gitSettable(key, value string) bool {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case key == "core.pager":
		return value == "cat" || value == ""
	case key == "core.fsmonitor":
		return value == "false"
	case key == "core.editor", section == "alias", section == "pager", section == "sequence", section == "commit":
		return false
	}
	return m.gitHarmless(key, value)
}

func (j *judge) gitEnter(w word, dirs []string) []string {
	if !w.known || !w.plain || w.glob || strange(w.text) != "" {
		return nil
	}
	var out []string
	for _, dir := range dirs {
		real, err := resolve(j.g.expand(w.text, dir))
		if err != nil || !j.g.inside(real) {
			return nil
		}
		out = append(out, real)
	}
	return out
}

// gitPlaces says why git could run a program that a repository, and not the
// user, has chosen.
func (j *judge) gitPlaces(ws []word, s scope) string {
	c := j.gitSplit(ws[1:], s)
	if c.why != "" {
		return c.why
	}
	if c.info {
		return ""
	}
	top := ""
	for i, dir := range c.dirs {
		r := j.g.scan(dir)
		if r.why != "" {
			return r.why
		}
		if i > 0 && r.top != top {
			return "git after cd would read the configuration of another repository"
		}
		top = r.top
		// Which commands git itself has, and no alias hides, depends on its version.
		if slices.ContainsFunc(
			r.aliases,
			func(a string) bool { return strings.EqualFold(a, c.sub) || strings.EqualFold(a, c.sub+".command") },
		) {
			return "the git repository has an alias " + c.sub
		}
	}
	return ""
}

// gitNormal is the command line without the harmless options of git itself, as
// rules are written.
func (j *judge) gitNormal(ws []word, s scope) ([]word, bool) {
	c := j.gitSplit(ws[1:], s)
	if c.why != "" || c.info || c.sub == "" || len(c.rest)+2 == len(ws) {
		return nil, false
	}
	return append([]word{ws[0], literal(c.sub)}, c.rest...), true
}

// gitFacts looks at a command of git.
func (j *judge) gitFacts(args []word, s scope) facts {
	c := j.gitSplit(args, s)
	if c.why != "" {
		return danger(runs, c.why)
	}
	if c.info {
		return facts{listed: true}
	}
	s.dirs = c.dirs
	p, rest := j.g.memory.git().program(c.sub), c.rest
	if len(rest) > 0 {
		if two := j.g.memory.git().program(c.sub + " " + rest[0].text); two != nil {
			p, rest = two, rest[1:]
		}
	}
	if p == nil || p.operands == "never" {
		if why := gitDanger(c.sub, c.rest); why != "" {
			return danger(runs, why)
		}
		return facts{}
	}
	d := p.parse(rest)
	f := facts{listed: true, risk: d.risk, why: d.why, unknown: d.unknown}
	if f.risk != reads || f.unknown != "" {
		return f
	}
	for _, w := range d.values {
		if w.glob {
			return danger(runs, "names of files that could be taken for options")
		}
		if signed(w.text) || strings.Contains(w.text, "signature") {
			return danger(runs, "a format that checks signatures")
		}
	}
	if why := gitOperands(p, d); why != "" {
		return danger(writes, why)
	}
	if f.outside = j.gitFiles(p, d, s); f.outside == "" && (d.deep || p.deep && !d.shallow) {
		f.outside = j.gitContent(d, s)
	}
	return f
}

// signed reports a format that has git check signatures, by another program.
func signed(format string) bool {
	return strings.Contains(strings.NewReplacer("%+", "%", "%-", "%", "% ", "%").Replace(format), "%G")
}

// gitOperands says why operands would not only be read.
func gitOperands(p *program, d parsed) string {
	for i, w := range d.operands {
		if w.glob && (d.late < 0 || i < d.late) && (w.pattern[0] < ' ' || w.pattern[0] == '-' || p.operands != "revs") {
			return "names of files that could be taken for options"
		}
	}
	n := len(d.operands)
	switch {
	case p.operands == "none" && n > 0, p.operands == "one" && n > 1:
		return "an operand too many"
	case p.operands == "list" && n > 0 && !d.lists:
		return "an operand that would be made"
	case p.operands == "config" && n == 1 && d.operands[0].text == "edit":
		return "it opens an editor"
	case p.operands == "config" && !d.lists && n > 1 && d.operands[0].text != "get" && d.operands[0].text != "list":
		return "a value that would be set"
	}
	return ""
}

// gitFiles says why a file that is named may not be read. A revision with a
// path is judged by that path.
func (j *judge) gitFiles(p *program, d parsed, s scope) string {
	for _, w := range append(slices.Clone(d.operands), d.files...) {
		texts := []string{w.text}
		if _, path, ok := strings.Cut(w.text, ":"); ok {
			texts = append(texts, path)
		}
		for _, text := range texts {
			if text == "" || strings.Contains(text, "://") || strings.HasPrefix(text, "(") {
				continue
			}
			for _, dir := range s.dirs {
				full := filepath.Clean(j.g.expand(text, dir))
				real, err := resolve(full)
				if err != nil ||
					!j.g.inside(real) && full != "/dev/null" && j.g.approvePath("Read", full, false).Decision != Allow {
					return "git would read " + text + ", which is outside the working directories"
				}
			}
		}
		if why := j.globbed(w, s); why != "" {
			return why
		}
	}
	return ""
}

func (j *judge) globbed(w word, s scope) string {
	if !w.glob {
		return ""
	}
	return j.operand("git", w, s)
}

// gitContent says why content may not be shown: a rule may speak of a file that
// is not named.
func (j *judge) gitContent(d parsed, s scope) string {
	if !j.g.bansReading() {
		return ""
	}
	if d.late < 0 || d.late == len(d.operands) {
		return "git would show a file of which a rule may speak; name the files after --"
	}
	for _, w := range d.operands[d.late:] {
		if strings.HasPrefix(w.text, ":") || strings.ContainsAny(w.text, "*?[\\") {
			return "git would show files by a pattern, and a rule may speak of one"
		}
	}
	return j.below(d.operands[d.late:], s)
}

// gitDanger says what speaks against the options of a command of git that does
// more than read, when a rule names that command.
func gitDanger(sub string, rest []word) string {
	first := ""
	if len(rest) > 0 {
		first = rest[0].text
	}
	switch sub {
	case "filter-branch", "difftool", "mergetool", "instaweb", "daemon", "shell", "remote-ext",
		"upload-pack", "receive-pack", "credential", "send-email", "imap-send", "web--browse", "help":
		return "git " + sub + " runs other programs"
	case "submodule":
		if first == "foreach" {
			return "git submodule foreach runs its words"
		}
	case "bisect":
		if first == "run" || first == "visualize" || first == "view" {
			return "git bisect " + first + " runs another program"
		}
	}
	for _, w := range rest {
		a := w.text
		if a == "--" {
			break
		}
		if strings.HasPrefix(a, "ext::") || strings.Contains(a, "::") {
			return "a transport that runs a program"
		}
		if long, ok := strings.CutPrefix(a, "--"); ok {
			long, _, _ = strings.Cut(long, "=")
			for _, bad := range []string{"output", "ext-diff", "textconv", "show-signature", "open-files-in-pager",
				"upload-pack",
				"receive-pack", "exec", "config",
				"config-env", "template", "reference", "no-index", "output-directory", "separate-git-dir", "extcmd", "strategy",
				"edit-description"} {
				// git takes any beginning of a long option that is unique.
				if len(long) > 1 && strings.HasPrefix(bad, long) {
					return a
				}
			}
			continue
		}
		if !strings.HasPrefix(a, "-") {
			continue
		}
		switch sub {
		case "clone", "fetch", "pull", "push", "ls-remote":
			if strings.ContainsAny(a, "uc") && sub != "push" {
				return a
			}
		case "rebase":
			if strings.ContainsAny(a, "xs") {
				return a
			}
		case "format-patch", "archive", "config":
			if strings.ContainsAny(a, "of") {
				return a
			}
		}
	}
	return ""
}
