package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// facts are what is known of the words of one command.
type facts struct {
	listed  bool // the program is known
	rule    bool // only a rule approves it
	risk    risk
	why     string
	unknown string // an option that is not listed
	outside string // why a file that it reads is not allowed
}

func danger(r risk, why string) facts { return facts{listed: true, risk: r, why: why} }

func notListed(option string) facts { return facts{listed: true, unknown: option} }

// facts looks at the options and operands of a command.
func (j *judge) facts(ws []word, s scope) facts {
	name, args := ws[0].text, ws[1:]
	if i := slices.IndexFunc(args, func(w word) bool { return !w.plain && w.known }); i >= 0 && !j.g.inert(name) {
		return danger(runs, "a word that is written in an unusual way")
	}
	switch name {
	case "printf":
		return printfFacts(args)
	case "date":
		return dateFacts(args)
	case "test", "[":
		return j.testFacts(name, args, s)
	case "tar":
		return j.tarFacts(args, s)
	case "xargs":
		if slices.ContainsFunc(args, func(w word) bool { return w.glob }) {
			return danger(runs, "names of files that could be taken for options")
		}
		return facts{}
	case "ps":
		return psFacts(args)
	case "printenv":
		if public(args) {
			return facts{listed: true}
		}
	case "go":
		return goFacts(args)
	case "git":
		return j.gitFacts(args, s)
	case "command":
		if len(args) > 1 && (args[0].text == "-v" || args[0].text == "-V") {
			return facts{listed: true}
		}
		return facts{}
	}
	p := j.g.memory.known().program(name)
	if p == nil {
		return facts{}
	}
	if name == "find" && slices.ContainsFunc(args, func(w word) bool { return w.text == "--" }) {
		return notListed("--") // actions may follow it
	}
	if responds(name) && slices.ContainsFunc(args, func(w word) bool { return strings.HasPrefix(w.text, "@") }) {
		return danger(runs, "a file that may hold options")
	}
	if p.operands == "wrap" {
		return danger(runs, name+" in a form that is not understood")
	}
	d := p.parse(args)
	f := facts{listed: true, rule: p.operands == "rule", risk: d.risk, why: d.why, unknown: d.unknown}
	if f.risk != reads || f.unknown != "" {
		return f
	}
	return j.shape(name, p, d, s, f)
}

// shape judges operands by what the program takes them for.
func (j *judge) shape(name string, p *program, d parsed, s scope, f facts) facts {
	files, pattern := d.operands, (*word)(nil)
	switch p.operands {
	case "words":
		files = nil
	case "names":
		if !d.lists {
			return danger(writes, "it may keep a page that it has formatted")
		}
		files = nil
		for _, w := range d.operands {
			if strings.ContainsAny(w.text, "/\\~") || w.glob {
				return danger(runs, "a name that may be a file")
			}
		}
	case "none":
		if len(files) > 0 {
			return danger(writes, "an operand")
		}
	case "one":
		if len(files) > 1 || len(files) == 1 && files[0].glob {
			return danger(writes, "a second operand")
		}
	case "search":
		if !d.given && len(files) > 0 {
			pattern, files = &files[0], files[1:]
			d.patterns = append(d.patterns, *pattern)
			if d.late >= 0 {
				d.late = max(0, d.late-1)
			}
		}
	case "rule":
		if why := ruleOperands(name, d); why != "" {
			return danger(runs, why)
		}
		files = nil
	}
	if name == "which" || name == "type" || name == "whereis" {
		files = nil
	}
	if why := script(name, d); why != "" {
		return danger(runs, why)
	}
	if name == "bat" || name == "batcat" {
		if len(files) > 0 && files[0].text == "cache" {
			return danger(writes, "the command cache")
		}
	}
	if why := j.loose(name, p, d, pattern); why != "" {
		return danger(runs, why)
	}
	for _, w := range append(slices.Clone(files), d.files...) {
		if f.outside = j.operand(name, w, s); f.outside != "" {
			return f
		}
	}
	if (name == "diff" || name == "sdiff") && !j.linkless(slices.Concat(files, d.files), s) {
		f.outside = "it would read a whole folder, with links in it or more than is looked at"
		return f
	}
	if d.deep || p.deep {
		f.outside = j.below(files, s)
	}
	return f
}

// linkless reports whether no folder among the operands has a symlink in it: diff follows links out
// of what may be read. It is false for more than can be looked at.
func (j *judge) linkless(operands []word, s scope) bool {
	budget := maxEntries
	for _, w := range operands {
		names := []string{w.text}
		if w.glob {
			var ok bool
			if names, ok = j.g.names(w, s.dirs); !ok {
				return false
			}
		}
		for _, dir := range s.dirs {
			for _, name := range names {
				real, err := resolve(j.g.expand(name, dir))
				if err != nil || isFolder(real) && (j.below([]word{literal(real)}, s) != "" || !linkFree(real, &budget)) {
					return false
				}
			}
		}
	}
	return true
}

// linkFree reports whether nothing below a folder is a symlink. The budget is how many files are looked at.
func linkFree(dir string, budget *int) bool {
	entries, err := os.ReadDir(dir)
	if *budget -= len(entries); err != nil || *budget < 0 {
		return false
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 || e.IsDir() && !linkFree(filepath.Join(dir, e.Name()), budget) {
			return false
		}
	}
	return true
}

// loose tells of a pattern of file names that could become an option.
func (j *judge) loose(name string, p *program, d parsed, pattern *word) string {
	if pattern != nil && pattern.glob {
		return "a pattern that may become names of files"
	}
	for i, w := range d.operands {
		if !w.glob || d.late >= 0 && i >= d.late || p.operands == "words" && !p.risky() {
			continue
		}
		if p.risky() && (w.pattern[0] < ' ' || w.pattern[0] == '-') {
			return "names of files that could be taken for options"
		}
	}
	for _, w := range d.values {
		if w.glob && (p.risky() || responds(name)) {
			return "names of files that could be taken for options"
		}
	}
	return ""
}

// operand says why a file may not be read. A pattern stands for every name that
// it may become.
func (j *judge) operand(name string, w word, s scope) string {
	if w.text == "-" || w.text == "/dev/null" || w.text == "/dev/stdin" || w.text == "" {
		return ""
	}
	if strings.HasPrefix(w.text, "+") && (name == "less" || name == "more") {
		return "a command for " + name
	}
	for _, dir := range s.dirs {
		if v := j.g.approvePath("Read", j.g.expand(w.text, dir), false); v.Decision != Allow {
			return name + " would read " + w.text + ": " + v.Reason
		}
		if !j.g.MayRead(j.g.expand(w.text, dir)) {
			return name + " would read " + w.text + ", of which a rule speaks"
		}
	}
	if !w.glob {
		return ""
	}
	names, ok := j.g.names(w, s.dirs)
	if !ok {
		return "it stands for too many files"
	}
	for _, found := range names {
		if strings.HasPrefix(found, "-") || responds(name) && strings.HasPrefix(found, "@") {
			return "the name of a file would be taken for an option"
		}
	}
	for _, dir := range s.dirs {
		for _, found := range names {
			full := j.g.expand(found, dir)
			if info, err := os.Lstat(full); err == nil && info.Mode()&os.ModeSymlink == 0 && !j.g.bansReading() {
				continue // its folder was looked at
			}
			if v := j.g.approvePath("Read", full, false); v.Decision != Allow {
				return name + " would read " + found + ": " + v.Reason
			}
			if !j.g.MayRead(full) {
				return name + " would read " + found + ", of which a rule speaks"
			}
		}
	}
	return ""
}

// below says why a whole folder may not be read: a ban may speak of something in
// it.
func (j *judge) below(files []word, s scope) string {
	if !j.g.bansReading() {
		return ""
	}
	if len(files) == 0 {
		files = []word{literal(".")}
	}
	for _, dir := range s.dirs {
		for _, w := range files {
			if real, err := resolve(j.g.expand(w.text, dir)); err != nil || w.glob || j.g.mayHold(real) {
				return "it could read a file of which a rule speaks"
			}
		}
	}
	return ""
}

// bounds of what a pattern is looked up in.
const (
	maxEntries = 4096
	maxNames   = 512
)

// names are the files that a pattern may become, as they would be written. It
// finds more than the shell, never less.
func (g *Gate) names(w word, dirs []string) ([]string, bool) {
	var out []string
	budget := maxEntries
	for _, dir := range dirs {
		found := []string{""}
		if strings.HasPrefix(w.pattern, "/") {
			found = []string{"/"}
		}
		for _, comp := range strings.Split(strings.Trim(w.pattern, "/"), "/") {
			var next []string
			for _, at := range found {
				if !strings.ContainsAny(comp, string([]rune{anyText, anyByte, anyFrom})) {
					next = append(next, filepath.Join(at, comp))
					continue
				}
				base := at
				if !filepath.IsAbs(base) {
					base = filepath.Join(dir, at)
				}
				entries, err := os.ReadDir(base)
				if budget -= len(entries); budget < 0 {
					return nil, false
				}
				if err != nil {
					continue
				}
				for _, e := range entries {
					if component(comp, e.Name()) {
						next = append(next, filepath.Join(at, e.Name()))
					}
				}
			}
			if found = next; len(found) > maxNames {
				return nil, false
			}
		}
		out = append(out, found...)
	}
	return out, true
}

func component(pattern, name string) bool {
	if i := strings.IndexByte(pattern, anyFrom); i >= 0 {
		pattern = pattern[:i] + string(rune(anyText))
	}
	if strings.HasPrefix(name, ".") && pattern[0] != '.' {
		return false
	}
	return match(pattern, name, anyText, anyByte)
}

// bansReading reports whether some files may not be read.
func (g *Gate) bansReading() bool { return g.bans }

// mayHold reports whether a rule speaks of something that could lie in the
// folder, or is it.
func (g *Gate) mayHold(dir string) bool {
	for _, list := range [][]rule{g.deny, g.ask} {
		for _, r := range list {
			if kindOf(r.tool) == editTool || r.spares(strings.ToLower(dir)) {
				continue
			}
			for _, glob := range r.globs {
				fixed := glob
				if i := strings.IndexAny(glob, `*?[{\`); i >= 0 {
					fixed = glob[:strings.LastIndexByte(glob[:i], '/')+1]
				}
				fixed = strings.TrimSuffix(fixed, "/")
				if dir == "/" || fixed == dir || strings.HasPrefix(fixed, dir+"/") ||
					fixed != glob && (fixed == "" || strings.HasPrefix(dir,
						fixed+"/")) {
					return true
				}
			}
		}
	}
	return false
}

// responds reports programs that take options from a file that is named with @,
// wherever it stands.
func responds(name string) bool {
	switch name {
	case "nm", "size", "strings", "readelf", "objdump", "objcopy", "strip", "ar", "ranlib", "addr2line",
		"c++filt", "as", "ld", "gprof", "elfedit":
		return true
	}
	return false
}

// tarFacts accepts a list of what is in one archive. It runs the program that the archive is compressed with.
func (j *judge) tarFacts(args []word, s scope) facts {
	other := danger(writes, "tar in a form that is not looked into")
	if len(args) < 2 {
		return other
	}
	letters, ends := strings.CutSuffix(strings.TrimPrefix(args[0].text, "-"), "f")
	if !ends || strings.Trim(letters, "tvzjJ") != "" || strings.Count(letters, "t") != 1 ||
		strings.Contains(args[1].text, ":") {
		return other
	}
	for i, w := range args {
		if w.glob || i > 0 && (strings.HasPrefix(w.text, "-") || w.text == "") {
			return other
		}
	}
	for _, name := range []string{"gzip", "bzip2", "xz", "lzma", "lzip", "lzop", "zstd", "compress", "lz4", "lrzip",
		"grzip"} {
		for _, dir := range s.dirs {
			if j.g.identify(name, dir).inside {
				return other
			}
		}
	}
	return facts{listed: true, outside: j.operand("tar", args[1], s)}
}

// tarOrdinary reports options by which tar packs and unpacks, without those that
// run another program or write beside the folder.
func tarOrdinary(args []word) bool {
	for i := 0; i < len(args); i++ {
		a := args[i].text
		name, value, joined := strings.Cut(a, "=")
		switch {
		case args[i].glob && (i == 0 || args[i].pattern[0] < ' ' || args[i].pattern[0] == '-'), !args[i].known:
			return false
		case a == "--":
			return true
		case slices.Contains([]string{"--file", "--directory", "--strip-components", "--exclude", "--exclude-from",
			"--files-from", "--transform"}, name):
			if name == "--transform" || name == "--files-from" {
				return false // its words may be a program, or options
			}
			if !joined {
				if i++; i < len(args) {
					value = args[i].text
				}
			}
			if name == "--file" && strings.Contains(value, ":") {
				return false // an archive on another machine
			}
		case strings.HasPrefix(a, "--"):
			if !slices.Contains(
				[]string{
					"--extract", "--get", "--create", "--list", "--append", "--update",
					"--verbose", "--gzip", "--bzip2", "--xz", "--zstd", "--auto-compress",
					"--keep-old-files", "--no-same-owner", "--no-same-permissions",
					"--preserve-permissions", "--overwrite", "--totals", "--wildcards",
					"--exclude-vcs", "--one-file-system", "--numeric-owner", "--version",
					"--help",
				},
				a,
			) {
				return false
			}
		case i == 0 && !strings.HasPrefix(a, "-"), strings.HasPrefix(a, "-"):
			letters := strings.TrimPrefix(a, "-")
			if strings.Trim(letters, "xctruvzjJakpmhWwoSfC") != "" ||
				strings.ContainsAny(letters[:max(0, len(letters)-1)], "fC") {
				return false
			}
			if strings.HasSuffix(letters, "f") || strings.HasSuffix(letters, "C") {
				if i++; i < len(args) && strings.HasSuffix(letters, "f") && strings.Contains(args[i].text, ":") {
					return false // an archive on another machine
				}
			}
		}
	}
	return true
}

// goFacts accepts the options of go that choose what is built and tested, and
// not how or where to. Whatever stands in the code is run.
func goFacts(args []word) facts {
	f := facts{listed: true, rule: true}
	if len(args) == 0 {
		return f
	}
	if slices.ContainsFunc(args, func(w word) bool { return w.glob }) {
		return danger(runs, "names of files that could be taken for options")
	}
	for i := 1; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i].text, "-")
		if !ok {
			continue
		}
		name, _, joined := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch name {
		case "v", "race", "short", "failfast", "cover", "json", "benchmem", "x", "n", "a", "msan",
			"asan", "fullpath", "trimpath", "m", "u", "deps", "test", "e", "find", "compiled",
			"all", "src", "diff", "l", "d", "s", "i":
		case "run", "count", "timeout", "bench", "benchtime", "parallel", "p", "tags", "skip", "cpu",
			"shuffle", "fuzz", "fuzztime", "f", "list", "covermode", "coverpkg", "vet", "buildvcs",
			"compat":
			if !joined {
				i++
			}
		case "o", "c", "coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile",
			"trace", "outputdir", "w", "work", "mod", "C":
			return danger(writes, args[i].text)
		default:
			return danger(runs, args[i].text)
		}
	}
	return f
}

// ruleOperands says what speaks against operands of a program that a rule names.
func ruleOperands(name string, d parsed) string {
	switch name {
	case "make", "gmake":
		for _, w := range d.operands {
			key, value, ok := strings.Cut(w.text, "=")
			key = strings.TrimRight(key, ":?+!")
			if w.glob || ok && (strings.ContainsAny(value, "$`") || strings.ContainsAny(key, "$. ") || strings.HasPrefix(key,
				"MAKE") || key == "SHELL") || strings.ContainsAny(w.text, "$`") {
				return "a variable that could run something"
			}
		}
	case "cargo":
		if len(d.operands) > 0 && strings.HasPrefix(d.operands[0].text, "+") {
			return "another toolchain"
		}
	}
	for i, w := range d.operands {
		if w.glob && (d.late < 0 || i < d.late) {
			return "names of files that could be taken for options"
		}
	}
	return ""
}

// printfFacts accepts every format that sets no variable.
func printfFacts(args []word) facts {
	switch {
	case len(args) == 0:
		return facts{listed: true}
	case strings.HasPrefix(args[0].text, "-"):
		return notListed(args[0].text)
	case !args[0].known || args[0].glob:
		return danger(runs, "a format that is known only when it runs")
	}
	for _, rest := range strings.Split(strings.ReplaceAll(args[0].text, "%%", ""), "%")[1:] {
		if strings.HasPrefix(strings.TrimLeft(rest, "#0 +-'*.123456789hlLjztqw"), "n") {
			return danger(runs, "a format that sets a variable")
		}
	}
	return facts{listed: true}
}

// dateFacts accepts showing the time; an operand without + would set it.
func dateFacts(args []word) facts {
	for i := 0; i < len(args); i++ {
		w := args[i]
		value, long := strings.CutPrefix(w.text, "--date=")
		switch {
		case w.glob:
			return danger(writes, w.text)
		case long && momentOnly(value), strings.HasPrefix(w.text, "+"), strings.HasPrefix(w.text, "--iso-8601="),
			slices.Contains([]string{"-u", "-R", "-I", "-Iseconds", "--iso-8601", "--utc"}, w.text):
		case w.text == "-d" && i+1 < len(args) && !args[i+1].glob && momentOnly(args[i+1].text):
			i++
		default:
			return danger(writes, w.text)
		}
	}
	return facts{listed: true}
}

// momentOnly reports a date that names no file of a time zone, as TZ="…" does in it.
func momentOnly(text string) bool { return !strings.ContainsAny(text, "=\"") }

// testFacts accepts a question about one file, or one word, or whether two words are equal. Other forms
// evaluate what is in a word, as -v and -eq do.
func (j *judge) testFacts(name string, args []word, s scope) facts {
	other := danger(runs, "a form of test that may evaluate a word")
	if name == "[" {
		other = facts{}
		if len(args) == 0 || args[len(args)-1].text != "]" {
			return other
		}
		args = args[:len(args)-1]
	}
	if len(args) > 0 && args[0].text == "!" {
		args = args[1:]
	}
	if slices.ContainsFunc(args, func(w word) bool { return !w.known || w.glob }) {
		return other
	}
	switch {
	case len(args) == 2 && slices.Contains([]string{"-n", "-z"}, args[0].text),
		len(args) == 3 && slices.Contains([]string{"=", "==", "!="}, args[1].text):
		return facts{listed: true}
	case len(args) == 2 && slices.Contains([]string{"-d", "-e", "-f", "-h", "-r", "-s", "-w", "-x", "-L"}, args[0].text):
		return facts{listed: true, outside: j.operand(name, args[1], s)}
	}
	return other
}

// psFacts accepts the usual forms of ps. Many others may show environments: what ps cannot
// read in one style of options it reads in another.
func psFacts(args []word) facts {
	for i, w := range args {
		switch {
		case w.glob:
		case len(args) == 2 && args[0].text == "-u" && (i == 0 || w.text == "root"):
			continue
		case len(args) == 1 && slices.Contains([]string{"aux", "-aux", "auxf", "auxww", "-e", "-f", "-ef", "-A"}, w.text):
			continue
		case len(args)%2 == 0 && i%2 == 0 && (w.text == "-p" || w.text == "-o" || w.text == "-eo"):
			continue
		case i%2 == 1 && args[i-1].text == "-p" && strings.Trim(w.text, "0123456789,") == "",
			i%2 == 1 && strings.HasSuffix(args[i-1].text, "o") && !strings.Contains(w.text, "env") &&
				strings.Trim(w.text, "abcdefghijklmnopqrstuvwxyz,=") == "":
			continue
		}
		return danger(strays, "it may show the environment of processes")
	}
	return facts{listed: true}
}

// public reports whether printenv is asked for variables that everybody may see only.
func public(args []word) bool {
	return len(args) > 0 &&
		!slices.ContainsFunc(args, func(w word) bool { return !w.known || !w.plain || w.glob || !shown(w.text) })
}
