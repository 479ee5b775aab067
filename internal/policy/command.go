package policy

import (
	"path/filepath"
	"slices"
	"strings"
)

// command judges the words of one simple command, and tells what holds after it.
func (j *judge) command(ws []word, s scope) (good, bad scope) {
	if len(ws) == 0 {
		return s, s
	}
	if !named(ws[0]) {
		j.doubt("the name of a program is written in an unusual way, or known only when it runs")
		return s, s
	}
	wrapped := false
	for len(ws) > 0 && named(ws[0]) {
		if j.ruled(ws, s) {
			return s, s
		}
		if ws[0].text == "git" {
			if normal, ok := j.gitNormal(ws, s); ok && j.ruled(normal, s) && j.gitPlaces(ws, s) == "" {
				return s, s
			}
		}
		rest, ok := j.unwrap(ws)
		if !ok {
			break
		}
		wrapped = wrapped || ws[0].text != "command"
		ws = rest
	}
	if len(ws) == 0 || !named(ws[0]) {
		j.doubt("the name of a program is known only when it runs")
		return s, s
	}
	if !wrapped {
		if good, bad, ok := j.builtin(ws, s); ok {
			return good, bad
		}
	}
	if j.reading(ws, s); j.candidate == "" && (j.firm != "" || j.why != "") {
		if normal, ok := j.gitNormal(ws, s); ok && ws[0].text == "git" {
			ws = normal
		}
		j.candidate = commandRule(ws)
	}
	return s, s
}

// named reports a word that names a program beyond doubt.
func named(w word) bool { return w.known && w.plain && !w.glob && !w.made && w.text != "" }

// unwrap takes off a program that does nothing but run another, by its own
// options.
func (j *judge) unwrap(ws []word) ([]word, bool) {
	name := ws[0].text
	if name == "command" && len(ws) > 1 && !strings.HasPrefix(ws[1].text, "-") {
		return ws[1:], true
	}
	p := j.g.memory.known().program(name)
	if p == nil || p.operands != "wrap" || !j.identified(name, scope{dirs: []string{j.g.shellDir()}}) {
		return nil, false
	}
	for _, w := range ws {
		if !w.known || !w.plain {
			return nil, false
		}
		if w.text == "--version" || w.text == "--help" {
			break
		}
	}
	d := p.parse(ws[1:])
	if d.unknown != "" || d.risk != reads || slices.ContainsFunc(d.values, func(w word) bool { return w.glob }) {
		return nil, false
	}
	rest := d.operands
	if name == "timeout" {
		if len(rest) == 0 || strings.Trim(rest[0].text, "0123456789.smhd") != "" {
			return nil, false
		}
		rest = rest[1:]
	}
	return rest, len(rest) > 0
}

// builtin judges what only the shell itself can do. Reading by it needs no rule.
func (j *judge) builtin(ws []word, s scope) (good, bad scope, ok bool) {
	if (!j.g.rules.ReadOnlyAuto || j.set) && ws[0].text != "cd" {
		return s, s, false
	}
	args := ws[1:]
	switch ws[0].text {
	case "cd":
		return j.cd(args, s)
	case "set":
		for _, w := range args {
			if !w.known ||
				!slices.Contains([]string{"-e", "-u", "-x", "-eu", "-ex", "-eux", "-euo", "-euxo", "-eo", "-o", "+e", "+u", "+x",
					"pipefail", "errexit", "nounset", "xtrace"}, w.text) {
				return s, s, false
			}
		}
		return s, s, len(args) > 0
	}
	return s, s, false
}

// cd follows a literal change of the folder inside the roots.
func (j *judge) cd(args []word, s scope) (good, bad scope, ok bool) {
	if len(args) > 1 && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) != 1 || !args[0].known || !args[0].plain || args[0].glob || args[0].text == "" ||
		strings.HasPrefix(args[0].text, "-") {
		j.doubt("cd to a folder that is known only when it runs")
		return s, s, true
	}
	good = scope{}
	for _, dir := range s.dirs {
		real, err := resolve(j.g.expand(args[0].text, dir))
		if err != nil || !j.g.inside(real) || strange(args[0].text) != "" {
			j.doubt("the command leaves the working directories")
			return s, s, true
		}
		if !slices.Contains(good.dirs, real) {
			good.dirs = append(good.dirs, real)
		}
	}
	if len(good.dirs)+len(s.dirs) > maxDirs {
		j.doubt("it may run in too many folders")
	}
	return good, s, true
}

// identified reports whether the name is a program that nobody can change from
// within the roots; if not, that is a doubt.
func (j *judge) identified(name string, s scope) bool {
	for _, dir := range s.dirs {
		if j.g.identify(name, dir).inside {
			j.doubt("the program " + name + " would be one in the working directories")
			return false
		}
	}
	return true
}

// ruled reports whether an allow rule covers the command, and keeps what speaks
// against those that do not.
func (j *judge) ruled(ws []word, s scope) bool {
	if j.g.rules.Mode == Plan {
		return false
	}
	for _, r := range j.g.allow {
		if !r.covers("Bash") {
			continue
		}
		rest, ok := allows(r, ws)
		if !ok {
			continue
		}
		if why, firm := j.risk(r, ws, rest, s); why != "" {
			if firm {
				j.doubt(why)
			}
			j.unknown(why)
			continue
		}
		j.rule = r.text
		return true
	}
	return false
}

// allows compares the words of a command with an allow rule, letter by letter,
// and returns those that the rule leaves open.
func allows(r rule, ws []word) ([]word, bool) {
	if len(ws) < len(r.words) || !r.prefix && len(ws) != len(r.words) {
		return nil, false
	}
	for i, want := range r.words {
		if ws[i].text != want || !ws[i].known {
			return nil, false
		}
	}
	return ws[len(r.words):], len(r.words) > 0
}

// risk says why a rule, though it matches, does not cover the command: a rule
// with open words covers what a program is for, not every way to run another
// program or to write a file with it. A firm risk is a dangerous shape.
func (j *judge) risk(r rule, ws, open []word, s scope) (why string, firm bool) {
	name := ws[0].text
	if !strings.Contains(name, "/") && !j.identified(name, s) {
		return "", false // said already
	}
	if name == "git" {
		if why := j.gitPlaces(ws, s); why != "" {
			return why, true
		}
	}
	if !r.prefix {
		return "", false
	}
	f := j.facts(ws, s)
	// A rule for a program of which nothing is known covers it with any words.
	free := !f.listed && name != "git" && !j.opaque(ws)
	for _, w := range open {
		if !w.known && (w.secret || !free) && !j.tolerant(name, ws) {
			return "a word is known only when the command runs", true
		}
	}
	if why := j.spoken(open, s); why != "" {
		return why, true
	}
	return j.covered(r, f, ws, open)
}

// spoken says that a word may become a file of which a rule speaks. Words that
// stand there as they are have been looked at with the bans.
func (j *judge) spoken(ws []word, s scope) string {
	if !j.g.paths {
		return ""
	}
	for _, w := range ws {
		var names []string
		switch {
		case !w.known:
			return "a word may become a file of which a rule speaks"
		case w.glob:
			found, ok := j.g.names(w, s.dirs)
			if !ok {
				return "it stands for too many files"
			}
			names = found
		case w.made || !w.plain:
			names = spellings(w.text)
		}
		for _, name := range names {
			for _, dir := range s.dirs {
				if j.g.ruled(name, dir) {
					return "it would use " + name + ", of which a rule speaks"
				}
			}
		}
	}
	return ""
}

// tolerant commands do not care what their words are.
func (j *judge) tolerant(name string, ws []word) bool {
	switch name {
	case "echo", "true", ":":
		return true
	case "printf":
		return len(ws) > 1 && printfFacts(ws[1:]).risk == reads && ws[1].known && !strings.HasPrefix(ws[1].text, "-")
	}
	return false
}

// covered judges the options of a program that a rule names.
func (j *judge) covered(r rule, f facts, ws, open []word) (why string, firm bool) {
	name := ws[0].text
	switch {
	case name == "tar" && tarOrdinary(ws[1:]):
		return "", false
	case !f.listed:
		// Of other programs a rule covers what it says, but for those that run
		// others; of git, which is known, what only reads.
		if name == "git" && len(r.words) < 2 {
			return "git " + open[0].text + " is not known to read only, and the rule does not name it", false
		}
		if j.opaque(ws) && len(r.words) < 2 && !interpreter(name) {
			return name + " runs other programs, and the rule does not say which", true
		}
		return "", false
	case f.risk != reads:
		return "options of " + name + " that could write or run something: " + f.why, true
	case f.unknown != "":
		return "the option " + f.unknown + " of " + name + " is not known to be harmless", true
	case f.outside != "":
		return f.outside, false
	}
	return "", false
}

// reading approves a command that surely only reads, inside the roots.
func (j *judge) reading(ws []word, s scope) {
	name := ws[0].text
	if dir, base := filepath.Split(name); base != "" && (dir == "/bin/" || dir == "/usr/bin/") {
		// Only administrators write there, unless it is a folder to work in.
		if real, err := resolve(name); err == nil && !j.g.inside(real) {
			name = base
			ws = append([]word{literal(base)}, ws[1:]...)
		}
	}
	if strings.Contains(name, "/") {
		j.doubt("a program that is named by its path: " + name)
		return
	}
	if !j.g.rules.ReadOnlyAuto {
		j.unknown("no rule allows " + name)
		return
	}
	if !j.identified(name, s) {
		return
	}
	if j.set {
		j.doubt("it sets a variable that may change what runs, and no rule allows " + name)
		return
	}
	ws = j.withValues(ws)
	for _, w := range ws[1:] {
		if !w.known && !j.tolerant(name, ws) {
			j.doubt("a word is known only when the command runs")
			return
		}
		if w.secret {
			j.unknown("it may show what stands in the environment")
			return
		}
	}
	if versionOnly(ws) {
		return
	}
	if name == "git" {
		if why := j.gitPlaces(ws, s); why != "" {
			j.doubt(why)
			return
		}
	}
	f := j.facts(ws, s)
	switch {
	case !f.listed || f.rule:
		if j.opaque(ws) {
			j.doubt(name + " can run anything, and no rule names it")
		}
		j.unknown("no rule allows " + name)
	case f.risk != reads:
		j.doubt("options of " + name + " that could write or run something: " + f.why)
	case f.unknown != "":
		j.unknown("the option " + f.unknown + " of " + name + " is not known to be harmless")
	case f.outside != "":
		j.unknown(f.outside)
	}
}

// withValues puts the values of $PWD and $HOME into the words of a command. They are what they were when the
// line began, unless a command that a rule allows may have set them.
func (j *judge) withValues(ws []word) []word {
	if j.rule != "" || j.exported {
		return ws
	}
	out := slices.Clone(ws)
	for i, w := range out {
		if !w.known && w.valued != "" {
			out[i] = literal(w.valued)
		}
	}
	return out
}

// versionOnly reports a call that prints nothing but a version or a help text.
func versionOnly(ws []word) bool {
	if len(ws) != 2 || !ws[1].known || !ws[1].plain {
		return false
	}
	switch ws[0].text {
	case "node", "npm", "python", "python3", "pip", "pip3", "ruby", "perl", "php", "java", "javac", "gcc",
		"g++", "cc", "c++", "clang", "clang++", "ninja", "pkg-config",
		"make", "cmake", "docker", "curl", "wget", "bash", "sh", "zsh", "env",
		"xargs", "tar", "find", "git", "lua", "deno", "bun", "kubectl", "gh",
		"ssh", "openssl", "sqlite3", "psql", "redis-cli", "jq", "rsync", "sudo", "strace", "gdb", "vim",
		"tee", "dd", "zip", "mkdir", "touch", "cp", "mv", "rm", "ln", "chmod", "split", "truncate":
	default:
		return false
	}
	switch name := ws[0].text; ws[1].text {
	case "--version":
		return name != "sh"
	case "--help":
		return name != "git" && name != "npm"
	case "-v":
		return slices.Contains([]string{"node", "npm", "perl", "php", "ruby", "lua"}, name)
	case "-version":
		return name == "java" || name == "javac"
	case "-V":
		return strings.HasPrefix(name, "python") || name == "ssh" || name == "curl"
	}
	return false
}

// interpreter reports programs that a person who names them wants to run code.
func interpreter(name string) bool {
	for _, family := range []string{"python", "perl", "ruby", "node", "lua", "php", "tclsh", "deno", "bun"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// opaque commands run what their words, their input or a file say, or change
// what later commands mean: a rule for everything does not cover them.
func (j *judge) opaque(ws []word) bool {
	name := filepath.Base(ws[0].text)
	if feeds(name) || interpreter(name) {
		return true
	}
	switch name {
	case "env", "sudo", "doas", "su", "runuser", "setsid", "watch", "nohup", "stdbuf", "nice", "timeout",
		"ionice", "chrt", "taskset", "chroot", "unshare", "nsenter", "flock", "script", "strace",
		"ltrace", "gdb", "expect", "entr", "parallel", "setarch", "linux32", "linux64", "prlimit",
		"systemd-run", "exec", "command", "builtin", "alias", "unalias", "enable", "hash", "bind",
		"shopt", "set", "unset", "complete", "compgen", "coproc", "read", "readarray", "mapfile", "let",
		"fc", "history", "pushd", "popd", "dirs", "ulimit", "umask", "getopts", "export", "declare",
		"typeset", "local", "readonly", "nameref":
		return true
	}
	return false
}
