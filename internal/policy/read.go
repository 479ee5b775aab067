package policy

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/syntax"
)

// reader is a program that reads and prints, unless it has an option of not.
type reader struct {
	not   string // options, also joined and abbreviated, that write a file, run a program or name files in a file
	most  int    // operands; 0: any number
	globs bool   // it prints no content: patterns of file names are harmless
	first bool   // its first operand is a pattern or a script
	words bool   // its operands are no files
	exact bool   // its options are not joined
	takes string // options that take the next word
}

// readerOf are the programs that need no rule outside of a sandbox, where their words are plain.
func readerOf(name string) (reader, bool) {
	switch name {
	case "ls", "dir", "vdir", "stat", "df":
		return reader{globs: true}, true
	case "echo":
		return reader{globs: true, words: true}, true
	case "cat", "head", "tail", "nl", "tac", "rev", "cut", "paste", "cmp", "comm", "join", "fold", "fmt", "expand",
		"unexpand", "basename", "dirname", "realpath", "readlink", "md5", "base64", "base32", "od", "column", "sum":
		return reader{}, true
	case "true", "false", ":", "pwd", "whoami", "id", "groups", "uname", "nproc", "uptime", "arch", "sleep", "seq", "tr",
		"expr", "factor", "free", "lscpu", "which", "type", "yes", "test", "[", "printf", "tty", "locale":
		return reader{words: true}, true
	case "hostname":
		return reader{most: -1, not: "-F -b --file --boot"}, true
	case "wc", "du":
		return reader{not: "--files0-from -L --dereference -X --exclude-from"}, true
	case "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum":
		return reader{not: "-c --check"}, true
	case "strings":
		return reader{not: "@"}, true
	case "hexdump", "hd":
		return reader{not: "-f --format-file"}, true
	case "xxd":
		return reader{not: "-r", most: 1, takes: "-c -l -s -g -o"}, true
	case "uniq":
		return reader{most: 1}, true
	case "sort":
		return reader{not: "-o -T --output --temporary-directory --compress-program --files0-from --random-source"}, true
	case "shuf":
		return reader{not: "-o --output --random-source"}, true
	case "diff":
		return reader{not: "-l --paginate --from-file --to-file -r --recursive"}, true
	case "file":
		return reader{not: "-C -m -f -z -Z -s -p --preserve-date --compile --magic-file --files-from --uncompress"}, true
	case "tree":
		return reader{not: "-o -R -H --fromfile --output"}, true
	case "date":
		return reader{not: "-s -f -r --set --file --reference", words: true}, true
	case "ps":
		return reader{words: true}, true
	case "grep", "egrep", "fgrep":
		return reader{not: "-R --dereference-recursive", first: true}, true
	case "rg":
		return reader{not: "--pre --hostname-bin -z --search-zip -L --follow --ignore-file -f --file", first: true,
			takes: "-e -g -A -B -C -t"}, true
	case "fd", "fdfind":
		return reader{not: "-x -X -L --exec --exec-batch --follow --ignore-file --search-path --base-directory",
			first: true}, true
	case "find":
		return reader{not: "-- -exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -L -H -follow -files0-from",
			exact: true,
			takes: "-name -iname -path -ipath -wholename -regex -iregex -newer -type -maxdepth -mindepth -size -mtime -mmin -printf"}, true
	case "jq":
		return reader{not: "-f -L --from-file --rawfile --slurpfile --argfile", first: true}, true
	case "sed":
		return reader{not: "-i -f -s --in-place --file --follow-symlinks --expression", first: true}, true
	case "awk", "gawk", "mawk", "nawk":
		return reader{not: "-f -i -l -d -p -o -e -E --file --include --load --exec --profile --dump-variables --pretty-print --source", first: true}, true
	case "less":
		return reader{not: "-o -O -k -T -t + --log-file --LOG-FILE --lesskey-file --tag-file"}, true
	}
	return reader{}, false
}

// refused is the option of a command that is not for reading, or nothing.
func (p reader) refused(ws []word) string {
	takes := strings.Fields(p.takes)
	for i := 0; i < len(ws); i++ {
		a, _, _ := strings.Cut(ws[i].text, "=")
		for bad := range strings.FieldsSeq(p.not) {
			joined := !p.exact && len(bad) == 2 && bad[0] == '-' && strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--")
			short := strings.HasPrefix(bad, "--") && len(a) > 2 && strings.HasPrefix(a, "--") && strings.HasPrefix(bad, a)
			if a == bad || short || joined && strings.Contains(a, bad[1:]) || len(bad) == 1 && strings.HasPrefix(a, bad) {
				return ws[i].text
			}
		}
		if slices.Contains(takes, a) {
			i++
		}
	}
	return ""
}

// judge is what speaks against a line: the first shape that nothing but an answer of the user lifts, and what is only
// not known to be allowed.
type judge struct {
	g         *Gate
	line      line
	rule      string // the last rule that was needed
	firm, why string
	exported  bool   // commands see a variable that the line sets
	candidate string // a rule for the first command that none covers
}

func (j *judge) doubt(why string)   { j.firm = cmp.Or(j.firm, why) }
func (j *judge) unknown(why string) { j.why = cmp.Or(j.why, why) }

// approveShell approves a line if every command in it is approved and every redirection harmless.
func (g *Gate) approveShell(l line, boxed bool) Verdict {
	why := legible(l.text)
	switch {
	case why != "":
	case l.unread != "":
		why = l.unread
	case l.empty:
		why = "there is no command"
	}
	if why != "" {
		return Verdict{Decision: Ask, Reason: why, UserOnly: true}
	}
	if g.rules.Mode != Plan {
		for _, r := range g.allow {
			if r.covers("Bash") && (r.all || len(r.words) == 0 && r.literal != "" && r.literal == strings.TrimSpace(l.text)) {
				return Verdict{Decision: Allow, Reason: "allowed by the rule " + r.text, Rule: r.text}
			}
		}
	}
	if boxed {
		why := "the sandbox bounds it"
		if g.rules.Bounds.Hides && slices.ContainsFunc(g.deny, func(r rule) bool { return r.covers("Read") }) {
			why += " and hides the files that deny rules of Read name"
		}
		return Verdict{Decision: Allow, Reason: why}
	}
	j := judge{g: g, line: l, firm: l.shape}
	for _, c := range l.commands {
		if !c.nested {
			j.command(c)
		}
	}
	for _, t := range l.targets {
		if !t.nested {
			j.redirect(t)
		}
	}
	switch {
	case j.firm != "":
		return Verdict{Decision: Ask, Reason: j.firm, UserOnly: true, candidate: j.candidate}
	case j.why != "":
		return Verdict{Decision: Ask, Reason: j.why, candidate: j.candidate}
	case j.rule != "":
		return Verdict{Decision: Allow, Reason: "allowed by the rule " + j.rule, Rule: j.rule}
	}
	return Verdict{Decision: Allow, Reason: "a command that only reads"}
}

func (j *judge) redirect(t target) {
	switch {
	case t.fd != "" && t.fd != "0" && t.fd != "1" && t.fd != "2":
		j.doubt("it redirects an unusual descriptor")
	case t.body():
		if t.word.secret {
			j.unknown(showsEnvironment)
		}
	case !t.word.plain():
		j.doubt("a redirection depends on something that is expanded")
	case t.op == syntax.DplOut || t.op == syntax.DplIn:
		if strings.Trim(t.word.text, "012") != "" || len(t.word.text) != 1 {
			j.doubt("it redirects to something that is no usual descriptor")
		}
	case t.op == syntax.RdrIn:
		j.file(t.word.text, false)
	case t.op == syntax.RdrOut, t.op == syntax.AppOut, t.op == syntax.RdrClob, t.op == syntax.RdrAll,
		t.op == syntax.AppAll:
		j.file(t.word.text, true)
	default:
		j.doubt("a redirection that is not known")
	}
}

// file judges a file that is opened by a redirection.
func (j *judge) file(path string, write bool) {
	if path == "/dev/null" {
		return
	}
	if strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/") {
		j.doubt("a redirection to the network")
		return
	}
	tool, what := "Read", "it reads a file: "
	if write {
		tool, what = "Write", "it writes a file: "
		if j.g.rules.Mode == Plan {
			j.doubt("it writes files")
			return
		}
	}
	for _, dir := range j.line.dirs {
		v := j.g.approvePath(tool, j.g.expand(path, dir), write)
		switch {
		case v.Decision == Allow:
		case v.UserOnly || write || !v.outside:
			j.doubt(what + v.Reason)
		default:
			j.unknown(what + v.Reason)
		}
		if !write && !j.g.MayRead(j.g.expand(path, dir)) {
			j.doubt(what + "a rule speaks of it")
		}
	}
}

// command judges a simple command.
func (j *judge) command(c command) {
	j.assign(c.assigns, len(c.words) > 0)
	ws := c.words
	if len(ws) == 0 || c.data && j.identified("cat") {
		return
	}
	set, wrapped := len(c.assigns) > 0 && !harmless(c.assigns) || j.exported, false
	for {
		if len(ws) == 0 || !ws[0].plain() || ws[0].text == "" {
			j.doubt("the name of a program is written in an unusual way, or known only when it runs")
			return
		}
		if j.ruled(ws) {
			return
		}
		rest, ok := unwrap(ws)
		if !ok || !j.identified(ws[0].text) {
			break
		}
		wrapped, ws = wrapped || ws[0].text != "command", rest
	}
	if !wrapped && (ws[0].text == "cd" || ws[0].text == "set") {
		j.builtin(ws, set)
		return
	}
	if j.reading(ws, set); j.candidate == "" && (j.firm != "" || j.why != "") {
		if own := gitCommand(ws); own > 1 && plain(ws[1:own]) {
			ws = append([]word{ws[0]}, ws[own:]...)
		}
		j.candidate = commandRule(ws)
	}
}

// unwrap takes off a program that does nothing but run another, in its simplest form.
func unwrap(ws []word) ([]word, bool) {
	const span = `[0-9.]+[smhd]? `
	own := regexp.MustCompile(`^(command |nohup |nice (-n )?(-?[0-9]+ |-n[0-9]+ )?|stdbuf -[ioe][0L] |timeout (-k ` + span + `)?` + span + `)`).
		FindString(text(ws) + " ")
	n := len(strings.Fields(own))
	if n == 0 || n >= len(ws) || !plain(ws[:n]) || text(ws[:n])+" " != own || strings.HasPrefix(ws[n].text, "-") {
		return nil, false
	}
	return ws[n:], true
}

func plain(ws []word) bool { return !slices.ContainsFunc(ws, func(w word) bool { return !w.plain() }) }

// builtin judges cd and set.
func (j *judge) builtin(ws []word, set bool) {
	args := ws[1:]
	if ws[0].text == "set" {
		if set || !plain(args) ||
			!regexp.MustCompile(`^([-+][eux]*o? ?|pipefail ?|errexit ?|nounset ?|xtrace ?)+$`).MatchString(text(args)) {
			j.doubt("it sets or shows variables")
		}
		return
	}
	if len(args) > 1 && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) != 1 || !args[0].plain() || args[0].text == "" || args[0].text[0] == '-' {
		j.doubt("cd to a folder that is known only when it runs")
		return
	}
	for _, dir := range j.line.dirs {
		if real, err := resolve(dir); err != nil || !j.g.inside(real) || strange(args[0].text) != "" {
			j.doubt("the command leaves the working directories")
		}
	}
}

// identified reports whether the name is a program that nobody can change from within the roots; if not, that is a
// doubt.
func (j *judge) identified(name string) bool {
	for _, dir := range j.line.dirs {
		for _, entry := range filepath.SplitList(j.g.rules.Path) {
			if !filepath.IsAbs(entry) {
				entry = filepath.Join(dir, entry)
			}
			full := filepath.Join(entry, name)
			if _, err := os.Lstat(full); err != nil {
				continue
			}
			here, err := resolve(entry)
			real, err2 := resolve(full)
			if err != nil || err2 != nil || j.g.inside(here) || j.g.inside(real) {
				j.doubt("the program " + name + " would be one in the working directories")
				return false
			}
			if info, err := os.Stat(full); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				break
			}
		}
	}
	return true
}

// ruled reports whether an allow rule covers the command, and keeps what speaks against those that do not.
func (j *judge) ruled(ws []word) bool {
	if j.g.rules.Mode == Plan {
		return false
	}
	normal := ws
	if own := gitCommand(ws); own > 1 {
		normal = append([]word{ws[0]}, ws[own:]...)
	}
	for _, r := range j.g.allow {
		if !r.covers("Bash") || len(r.words) == 0 || !names(r, ws) && !names(r, normal) {
			continue
		}
		why, firm := j.risk(r, ws)
		if why == "" {
			j.rule = r.text
			return true
		}
		if firm {
			j.doubt(why)
		}
		j.unknown(why)
	}
	return false
}

// names compares the words of a command with an allow rule, letter by letter.
func names(r rule, ws []word) bool {
	if len(ws) < len(r.words) || !r.prefix && len(ws) != len(r.words) {
		return false
	}
	for i, want := range r.words {
		if ws[i].text != want || ws[i].open {
			return false
		}
	}
	return true
}

// risk says why a rule, though it matches, does not cover the command: a rule with open words covers what a program
// is for, not every way to run another program or to write a file with it. A firm risk is a dangerous shape.
func (j *judge) risk(r rule, ws []word) (why string, firm bool) {
	name := ws[0].text
	if !strings.Contains(name, "/") && !j.identified(name) {
		return "the program " + name + " would be one in the working directories", true
	}
	if name == "git" {
		if why := j.g.gitPlace(ws, j.line.dirs); why != "" {
			return why, true
		}
	}
	if !r.prefix {
		return "", false
	}
	_, known := readerOf(name)
	if name == "git" || known {
		if len(r.words) < 2 || name != "git" {
			if why, firm = j.reads(ws); why == showsEnvironment {
				why = "" // a rule for the program covers the text that it prints
			}
			return why, firm
		}
		at := gitCommand(ws)
		if why := gitUnsafe(ws[at:]); why != "" {
			return why, true
		}
		if slices.Contains([]string{"diff", "log", "show", "grep", "blame", "cat-file"}, ws[at].text) {
			if why := j.gitFiles(ws[at+1:]); why != "" {
				return why, false
			}
		}
	}
	if launches(name) && len(r.words) < 2 {
		return name + " runs other programs, and the rule does not say which", true
	}
	for _, w := range ws[len(r.words):] {
		if w.open || w.odd && len(ws) > 1 && strings.Contains(w.text, "-") && unsafeFor(name) != "" {
			return "a word is known only when the command runs", true
		}
		if w.glob {
			return "names of files that are known only when the command runs", false
		}
	}
	if bad := (reader{not: unsafeFor(name), exact: name == "go"}).refused(ws[1:]); bad != "" {
		return "options of " + name + " that could write or run something: " + bad, true
	}
	for _, w := range ws[1:] {
		if (name == "make" || name == "gmake") && (strings.ContainsAny(w.text, "$`") || strings.HasPrefix(w.text, "SHELL=") ||
			strings.HasPrefix(w.text, "MAKE")) {
			return "options of make that could write or run something: " + w.text, true
		}
		if name == "tar" && strings.Contains(w.text, ":") {
			return "an archive on another machine", true
		}
	}
	return "", false
}

// unsafeFor are options of programs that need a rule, by which they run another program or write where they say.
func unsafeFor(name string) string {
	switch name {
	case "go":
		return "-exec -toolexec -vettool -o -c -C -ldflags -gcflags -asmflags -gccgoflags -overlay -modfile -mod -outputdir -trace " +
			"-coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -args -pkgdir -work --exec --toolexec --vettool"
	case "npm", "pnpm", "yarn", "npx", "bun":
		return "--script-shell --node-options --prefix --userconfig --globalconfig --init-module -C"
	case "make", "gmake":
		return "--eval -p --print-data-base"
	case "tar":
		return "-I -P -F --to-command --use-compress-program --checkpoint-action --rsh-command --info-script --new-volume-script " +
			"--absolute-names --transform --files-from -T"
	case "curl", "wget":
		return "-o -O -K -J --output --remote-name --config --output-dir --output-document --use-askpass --dump-header -D -c --cookie-jar"
	}
	return ""
}

// assign judges settings of variables: harmless ones for the rest of the line, and for one command also those that a
// rule for it covers.
func (j *judge) assign(assigns []*syntax.Assign, command bool) {
	for _, a := range assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil || !ordinary(a) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		if !command && !harmless([]*syntax.Assign{a}) {
			j.exported = true
		}
	}
}

// ordinary reports variables, and values of them, that programs take neither for a place to load or write nor for a
// program or options.
func ordinary(a *syntax.Assign) bool {
	value := literal("")
	if a.Value != nil {
		value = evaluate(a.Value)[0]
	}
	pattern := `^([A-Za-z0-9_.,@%+][A-Za-z0-9_.:,@%+-]*)?$`
	if a.Name.Value == "TZ" {
		pattern = `^([A-Za-z0-9][A-Za-z0-9_+/-]*)?$`
	}
	if !value.plain() || strings.Contains(value.text, "..") || !regexp.MustCompile(pattern).MatchString(value.text) {
		return false
	}
	switch a.Name.Value {
	case "NODE_ENV", "RUST_LOG", "RUST_BACKTRACE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "CGO_ENABLED", "GOOS",
		"GOARCH", "GOMAXPROCS", "RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV", "CARGO_TERM_COLOR", "DEBUG", "VERBOSE",
		"PORT", "FOO":
		return true
	}
	return harmless([]*syntax.Assign{a})
}

// harmless reports variables that change no more than how the output of programs looks.
func harmless(assigns []*syntax.Assign) bool {
	looks := regexp.MustCompile(`^(LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|CI|COLORTERM)$`)
	return !slices.ContainsFunc(assigns, func(a *syntax.Assign) bool { return !looks.MatchString(a.Name.Value) })
}

// reading approves a command that surely only reads, inside the roots.
func (j *judge) reading(ws []word, set bool) {
	name := ws[0].text
	if dir, base := filepath.Split(name); base != "" && (dir == "/bin/" || dir == "/usr/bin/") {
		// Only administrators write there, unless it is a folder to work in.
		if real, err := resolve(name); err == nil && !j.g.inside(real) {
			name = base
			ws = append([]word{literal(base)}, ws[1:]...)
		}
	}
	switch {
	case strings.Contains(name, "/"):
		j.doubt("a program that is named by its path: " + name)
	case !j.g.rules.ReadOnlyAuto:
		j.unknown("no rule allows " + name)
	case !j.identified(name):
	case set:
		j.doubt("it sets a variable that may change what runs, and no rule allows " + name)
	case versionOnly(ws):
	default:
		if why, firm := j.reads(ws); firm {
			j.doubt(why)
		} else if why != "" {
			j.unknown(why)
		}
	}
}

// showsEnvironment is a reason to ask about a command that no rule allows.
const showsEnvironment = "it may show what stands in the environment"

// reads says why a command may do more than read what may be read. A firm reason is a dangerous shape.
func (j *judge) reads(ws []word) (why string, firm bool) {
	name := ws[0].text
	p, known := readerOf(name)
	for _, w := range ws[1:] {
		switch {
		case name == "echo" || name == "printf" && len(ws) > 1 && ws[1].plain():
			if w.secret {
				return showsEnvironment, false
			}
		case w.open || w.glob && !p.globs:
			return "a word is known only when the command runs", true
		case w.odd && !p.globs:
			return "a word that is written in an unusual way", true
		}
	}
	if name == "git" {
		return j.gitReads(ws)
	}
	if name == "command" && len(ws) > 2 && (ws[1].text == "-v" || ws[1].text == "-V") {
		return "", false
	}
	if name == "printenv" && len(ws) == 2 && shown(ws[1].text) {
		return "", false
	}
	if !known {
		if launches(name) || interpreter(name) {
			return name + " can run anything, and no rule names it", true
		}
		return "no rule allows " + name, false
	}
	if bad := p.refused(ws[1:]); bad != "" {
		return "options of " + name + " that could write or run something: " + bad, true
	}
	if bad := odd(name, ws[1:]); bad != "" {
		return bad, true
	}
	operands, takes := 0, strings.Fields(p.takes)
	for i := 1; i < len(ws); i++ {
		a := ws[i].text
		option := strings.HasPrefix(a, "-") && a != "-"
		if !option || operands > 0 && p.most > 0 {
			operands++
		}
		switch {
		case p.most != 0 && operands > max(p.most, 0):
			return "an operand too many", true
		case !option && p.first && operands == 1 && !exists(j.g, a, j.line.dirs), p.words && name != "test" && name != "[",
			a == "/" && (name == "cut" || name == "paste"):
			continue
		}
		if why := j.readable(a, option); why != "" {
			return name + " would read " + a + ": " + why, false
		}
		if p.most > 0 && slices.Contains(takes, a) {
			i++
		}
	}
	return "", false
}

// exists reports whether a word names a file.
func exists(g *Gate, text string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(g.expand(text, dir))
		return err == nil
	})
}

// readable says why a file that a word may name may not be read.
func (j *judge) readable(text string, option bool) string {
	forms := []string{text}
	if option {
		forms = spellings(text)[1:]
	}
	for _, form := range forms {
		if form == "-" || form == "/dev/null" || form == "/dev/stdin" || form == "" {
			continue
		}
		for _, dir := range j.line.dirs {
			full := j.g.expand(form, dir)
			real, err := resolve(full)
			if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
				continue // nothing has this name
			}
			if err != nil || !j.g.inside(real) && !systemFile(real) {
				return "the path is outside the working directories, to which --add-dir adds a folder"
			}
			if v := j.g.special(real, false, Verdict{Decision: Allow}); v.Decision != Allow && j.g.inside(real) {
				return v.Reason
			}
			if !j.g.MayRead(full) {
				return "a rule speaks of it"
			}
			if info, err := os.Lstat(real); err == nil && info.Mode()&(fs.ModeDevice|fs.ModeSocket) != 0 {
				return "it is a device or a socket"
			}
		}
	}
	return ""
}

// odd says what else speaks against words of a program.
func odd(name string, args []word) string {
	var scripts func(string) bool
	switch name {
	case "test", "[":
		if slices.ContainsFunc(args, func(w word) bool {
			return w.text == "-v" || w.text == "-R" || strings.ContainsAny(w.text, "[$`") && w.text != "]" ||
				slices.Contains([]string{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}, w.text)
		}) {
			return "a test that evaluates its words"
		}
	case "printf":
		if len(args) == 0 || strings.HasPrefix(args[0].text, "-") || regexp.MustCompile(`%[-+ #0-9.*lhjztL]*n`).
			MatchString(strings.ReplaceAll(args[0].text, "%%", "")) {
			return "a format that sets a variable"
		}
	case "date":
		for i, w := range args {
			value := i > 0 && (args[i-1].text == "-d" || args[i-1].text == "--date")
			if !value && !strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "+") || strings.Contains(w.text, "TZ=") {
				return "a time that would be set"
			}
		}
	case "ps":
		// Letters without a dash, and unknown names of columns, may show the environment of programs.
		const columns = `(pid|ppid|cmd|comm|args|etime|time|stat|user|%cpu|%mem|,)+`
		const known = `^((-?aux|ax|-ef|-e|-f|-A|-p [0-9]+|-u root|-e?o ` + columns + `)( |$))*$`
		if !regexp.MustCompile(known).MatchString(text(args)) {
			return "options of ps that may show the environment"
		}
	case "sed":
		scripts = sedPrints
	case "awk", "gawk", "mawk", "nawk":
		scripts = awkPrints
	case "jq":
		scripts = func(s string) bool {
			return !regexp.MustCompile(`env|ENV|import|include|input_filename|modulemeta|search_list|prog_args`).MatchString(s)
		}
	}
	if scripts == nil {
		return ""
	}
	seen := false
	for i := 0; i < len(args); i++ {
		a := args[i].text
		switch {
		case name == "jq" && strings.HasPrefix(a, "-"), name == "sed" && strings.HasPrefix(a, "-") && strings.Trim(a,
			"-nErzu") == "":
			continue
		case name != "sed" && strings.HasPrefix(a, "-F"):
			if a == "-F" {
				i++
			}
			continue
		case name == "sed" && a == "-e" && i+1 < len(args):
			i++
		case strings.HasPrefix(a, "-"):
			return "options of " + name + " that are not known"
		case seen:
			return ""
		}
		if seen = true; !scripts(args[i].text) {
			return "a script of " + name + " that is not looked into"
		}
	}
	return ""
}

// text is the words of a command with a blank between them.
func text(ws []word) string {
	var b strings.Builder
	for i, w := range ws {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.text)
	}
	return b.String()
}

// sedPrints accepts commands that print, delete, replace or quit, at lines by number or by what is in them.
func sedPrints(s string) bool {
	const (
		text    = `([^/\\\n]|\\[^/\n])*`
		address = `([0-9]+|\$|/` + text + `/I?)`
		command = ` *(` + address + `(,` + address + `)?)?[ !]*([pdq=]|s/` + text + `/` + text + `/[gIip0-9]*) *`
	)
	return regexp.MustCompile(`^` + command + `(;` + command + `)*$`).MatchString(s)
}

// awkPrints accepts programs of fields, numbers and sums, without texts, functions and redirections; without actions,
// which print, they may compare and match.
func awkPrints(s string) bool {
	signs := " \t{}()$,;+-*=!&"
	if !strings.Contains(s, "{") {
		// No print redirects anything here. What follows a value is no pattern but a division.
		signs += "<>|~"
		s = regexp.MustCompile(`(^|[(,!&|~;])[ \t]*/([^/\\\n]|\\.)*/`).ReplaceAllString(s, "$1")
	}
	for _, name := range regexp.MustCompile(`[A-Za-z0-9]+`).FindAllString(s, -1) {
		if !regexp.MustCompile(`^(print|NR|NF|FNR|BEGIN|END|sum|total|count|length|[a-zA-Z]|[0-9]+)$`).MatchString(name) {
			return false
		}
	}
	return strings.Trim(regexp.MustCompile(`[A-Za-z0-9]+`).ReplaceAllString(s, ""), signs) == ""
}

// versionOnly reports a call that prints nothing but a version or a help text.
func versionOnly(ws []word) bool {
	if len(ws) != 2 || !ws[1].plain() {
		return false
	}
	name, a := ws[0].text, ws[1].text
	switch name {
	case "node", "npm", "python", "python3", "pip", "pip3", "ruby", "perl", "php", "gcc", "g++", "cc", "c++", "clang",
		"clang++", "make", "cmake", "docker", "curl", "wget", "bash", "env", "xargs", "tar", "find", "git", "deno", "bun",
		"gh", "jq", "rsync", "sudo":
		return a == "--version" || a == "-v" && slices.Contains([]string{"node", "npm", "perl", "php", "ruby"}, name)
	}
	return false
}

// interpreter reports programs that a person who names them wants to run code.
func interpreter(name string) bool {
	return slices.ContainsFunc([]string{"python", "perl", "ruby", "node", "lua", "php", "tclsh", "deno", "bun"},
		func(family string) bool {
			return strings.HasPrefix(name, family)
		})
}
