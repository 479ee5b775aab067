package policy

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// bounds of what is looked at in one line.
const (
	maxLine     = 10_000  // bytes of a line that is approved
	maxParsed   = 1 << 20 // bytes of a line, with the lines in its words
	maxCommands = 5000
	maxNested   = 6 // lines in words of lines
	maxDirs     = 8
)

// line is a shell line as far as its words show what it runs, reads and writes. It does not depend on the order in
// which the parts run: a command may run in every folder that the line enters.
type line struct {
	text     string
	empty    bool
	unread   string // why bash may read it in another way than it was read
	shape    string // a part that rules which allow do not follow
	commands []command
	targets  []target // of redirections
	dirs     []string // in which commands run, absolute
	lost     bool     // and in some that are known only when it runs
	fed      string   // why a shell may run text that the line does not show
}

// command is a simple command.
type command struct {
	words   []word
	assigns []*syntax.Assign
	nested  bool // it is in text that another command of the line may run
	crude   bool // it has the words of a text that is not understood
	data    bool // it is the cat of [quotedText]
}

func (c command) name() string {
	if len(c.words) == 0 {
		return ""
	}
	return filepath.Base(c.words[0].text)
}

// target is one redirection, or a here-document.
type target struct {
	op     syntax.RedirOperator
	fd     string
	word   word
	nested bool
}

// writes reports whether a redirection can change a file.
func (t target) writes() bool {
	return t.op != syntax.RdrIn && t.op != syntax.DplIn && t.op != syntax.WordHdoc && !t.body()
}

// body reports text in the line, in the place of a file.
func (t target) body() bool {
	return t.op == syntax.Hdoc || t.op == syntax.DashHdoc || t.op == syntax.WordHdoc
}

// lineReader collects a line.
type lineReader struct {
	g      *Gate
	line   line
	data   map[*syntax.CallExpr]bool
	bodies []string        // of here-documents
	texts  map[string]bool // that were read
	bytes  int             // of them
	piped  bool
}

// readLine reads a shell line.
func (g *Gate) readLine(text string) line {
	r := lineReader{g: g, texts: map[string]bool{}, line: line{text: text, dirs: []string{g.shellDir()}},
		data: map[*syntax.CallExpr]bool{}}
	r.text(text, 0)
	if strings.Contains(text, "\\\n") {
		// bash joins lines in places where the parser does not, and the other way round in comments.
		r.text(strings.ReplaceAll(text, "\\\n", ""), 1)
		r.text(strings.ReplaceAll(text, "\\\n", "\n"), 1)
	}
	return r.line
}

// text reads a line at depth 0, or text that a command of the line may run.
func (r *lineReader) text(text string, depth int) {
	if depth > 0 && r.texts[text] {
		return
	}
	r.texts[text] = true
	if r.bytes += len(text); depth > maxNested || r.bytes > maxParsed || len(r.line.commands) > maxCommands {
		r.unread("it has too many commands to look at", text)
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		if depth == 0 {
			r.line.unread = "the command cannot be parsed"
		}
		r.line.commands = append(r.line.commands, command{words: crude(text), nested: true, crude: true})
		return
	}
	if why := hereDocs(text, file); why != "" {
		r.unread(why, text)
	}
	from := len(r.line.commands)
	r.here(text, file)
	r.file(file, depth)
	if depth == 0 {
		r.line.empty = len(file.Stmts) == 0
	}
	own := slices.Clone(r.line.commands[from:])
	shell := slices.ContainsFunc(own, func(c command) bool { return takesLines(c.name()) })
	for _, c := range own {
		r.nested(c, shell, depth+1)
	}
	if shell {
		bodies := r.bodies
		r.bodies = nil
		for _, body := range bodies {
			r.text(body, depth+1)
		}
	}
}

func (r *lineReader) unread(why, text string) {
	if r.line.unread == "" {
		r.line.unread = why
	}
	r.line.commands = append(r.line.commands, command{words: crude(text), nested: true, crude: true})
}

// file collects what is in a line, also in places where it would not run.
func (r *lineReader) file(f *syntax.File, depth int) {
	nested := depth > 0
	syntax.Walk(f, func(n syntax.Node) bool {
		if why := unfollowed(n); why != "" && !nested && r.line.shape == "" {
			r.line.shape = why
		}
		switch n := n.(type) {
		case *syntax.Word:
			r.substituted(evaluate(n)[0].text, depth+1)
		case *syntax.BinaryCmd:
			r.piped = r.piped || n.Op == syntax.Pipe || n.Op == syntax.PipeAll
		case syntax.WordPart:
			if _, ok := quotedText(n); ok {
				r.data[n.(*syntax.CmdSubst).Stmts[0].Cmd.(*syntax.CallExpr)] = true
			}
		case *syntax.CallExpr:
			c := command{assigns: n.Assigns, nested: nested, data: r.data[n]}
			for _, w := range n.Args {
				c.words = append(c.words, evaluate(w)...)
			}
			inner := c
			for len(inner.words) > 1 && (inner.name() == "command" || inner.name() == "builtin" ||
				strings.HasPrefix(inner.words[0].text, "-")) {
				inner.words = inner.words[1:]
			}
			if name := inner.name(); name == "cd" || name == "pushd" {
				r.enter(inner.words[1:])
			}
			r.line.commands = append(r.line.commands, c)
		case *syntax.DeclClause:
			r.line.commands = append(r.line.commands, command{assigns: n.Args, nested: nested})
		case *syntax.Redirect:
			r.redirect(n, nested)
		}
		return true
	})
}

func (r *lineReader) redirect(n *syntax.Redirect, nested bool) {
	fd := ""
	if n.N != nil {
		fd = n.N.Value
	}
	of := n.Word
	if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
		if of = n.Hdoc; of == nil {
			return
		}
	}
	for _, w := range evaluate(of) {
		t := target{n.Op, fd, w, nested}
		if _, quoted, _ := plainDelimiter(n.Word); t.body() && t.op != syntax.WordHdoc && quoted {
			t.word = literal(w.text)
		}
		if t.body() {
			r.bodies = append(r.bodies, w.text)
			if w.open && n.Op == syntax.WordHdoc {
				r.piped = true
			}
		}
		r.line.targets = append(r.line.targets, t)
	}
}

// here replaces $PWD by the folder where the line runs, in a line that neither leaves it nor sets the variable.
func (r *lineReader) here(text string, f *syntax.File) {
	dir := r.line.dirs[0]
	uses := strings.Count(text, "$PWD") + strings.Count(text, "${PWD}")
	if uses == 0 || strings.Count(text, "PWD") > uses || strings.Contains(text, "cd") || strings.Contains(text, "pushd") ||
		strings.ContainsAny(dir, " \t\n*?[\\'\"$`") {
		return
	}
	replace := func(parts []syntax.WordPart) {
		for i, p := range parts {
			if name, plain := parameter(p); plain && name == "PWD" {
				parts[i] = &syntax.Lit{ValuePos: p.Pos(), ValueEnd: p.End(), Value: dir}
			}
		}
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Word:
			replace(n.Parts)
		case *syntax.DblQuoted:
			replace(n.Parts)
		}
		return true
	})
}

// unfollowed says why rules that allow do not follow a part of a line. What a variable holds is not known, so a line
// with a loop is a question.
func unfollowed(n syntax.Node) string {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Coprocess || n.Disown {
			return "a form of command that is not known"
		}
	case *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause, *syntax.FuncDecl,
		*syntax.TestClause,
		*syntax.ArithmCmd, *syntax.LetClause, *syntax.CoprocClause, *syntax.TestDecl:
		return "it has a part that is not judged, such as a loop, a condition or a function"
	case *syntax.BinaryCmd:
		if _, timed := n.Y.Cmd.(*syntax.TimeClause); timed && (n.Op == syntax.Pipe || n.Op == syntax.PipeAll) {
			return "time, which bash takes for a program here"
		}
	case *syntax.CmdSubst:
		if n.TempFile || n.ReplyVar {
			return "a form of substitution that is not known"
		}
	case *syntax.ProcSubst:
		if n.Op != syntax.CmdIn {
			return "it writes into another command"
		}
	case *syntax.ParamExp:
		if _, plain := parameter(n); !plain {
			return "an expansion that may run or set something"
		}
	case *syntax.ArithmExp:
		if n.Bracket || n.Unsigned || !numeric(n.X) {
			return "an arithmetic expansion of more than numbers"
		}
	case *syntax.ExtGlob:
		return "a form of word that is not known"
	case *syntax.DeclClause:
		if n.Variant.Value != "export" && n.Variant.Value != "readonly" || len(n.Args) == 0 {
			return "it sets or shows variables"
		}
	}
	return ""
}

// nested reads the texts in the words of a command that may be lines: in a program that may run others, and
// what is substituted in a text that bash evaluates once more.
func (r *lineReader) nested(c command, shell bool, depth int) {
	if len(c.words) == 0 {
		return
	}
	r.feeds(c)
	harmless := talks(c)
	for i, w := range c.words {
		if !shell && harmless || i == 0 {
			continue
		}
		text := strings.TrimPrefix(w.text, "!")
		if strings.ContainsAny(text, " \t\n;|&()<>`$!'\"\\") {
			r.text(text, depth)
		}
		if len(text) > 2 && text[0] == '-' && strings.ContainsAny(text, " \t'\"") {
			r.text(text[2:], depth)
		}
	}
}

// substituted reads what a text would substitute if bash evaluated it as an expression, a subscript or a prompt.
func (r *lineReader) substituted(text string, depth int) {
	for _, piece := range strings.Split(text, "$(")[1:] {
		open := 1
		end := strings.IndexFunc(piece, func(c rune) bool {
			switch c {
			case '(':
				open++
			case ')':
				open--
			}
			return open == 0
		})
		if end >= 0 {
			piece = piece[:end]
		}
		r.text(piece, depth)
	}
	for i, piece := range strings.Split(text, "`") {
		if i%2 == 1 {
			r.text(piece, depth)
		}
	}
}

// feeds notes a shell whose commands the line does not show.
func (r *lineReader) feeds(c command) {
	if r.line.fed != "" {
		return
	}
	sets := slices.ContainsFunc(c.assigns, func(a *syntax.Assign) bool {
		return a.Value != nil &&
			evaluate(a.Value)[0].open
	})
	for i, w := range c.words {
		name := filepath.Base(w.text)
		if c.name() == "git" && strings.HasPrefix(w.text, "alias.") {
			r.line.fed = "git would run a command that the line names otherwise"
		}
		if i > 0 && !launches(c.name()) || w.open || !isShell(name) && !takesText(name) {
			continue
		}
		args := c.words[i+1:]
		if sets || slices.ContainsFunc(args, word.marked) {
			r.line.fed = "a shell would run what is known only when the line runs"
		}
		operand := slices.ContainsFunc(args, func(w word) bool { return !strings.HasPrefix(w.text, "-") })
		if !operand && isShell(name) && r.piped || slices.ContainsFunc(args,
			func(w word) bool { return w.text == "/dev/stdin" }) {
			r.line.fed = "a shell would run what another command prints"
		}
	}
}

// enter notes the folders that cd may lead to.
func (r *lineReader) enter(args []word) {
	for len(args) > 0 && (args[0].text == "--" || args[0].text == "-P" || args[0].text == "-L") {
		args = args[1:]
	}
	to := literal(r.g.rules.Home)
	if len(args) > 0 {
		to = args[0]
	}
	r.goTo(to)
}

func (r *lineReader) goTo(to word) {
	if to.marked() || to.text == "-" || to.text == "" {
		r.line.lost = true
		return
	}
	for _, dir := range slices.Clone(r.line.dirs) {
		next := r.g.expand(to.text, dir)
		if real, err := resolve(next); err == nil {
			next = real
		}
		if slices.Contains(r.line.dirs, next) {
			continue
		}
		if len(r.line.dirs) >= maxDirs {
			r.line.lost = true
			return
		}
		r.line.dirs = append(r.line.dirs, next)
	}
}

// shellDir is where the line would run.
func (g *Gate) shellDir() string {
	if g.rules.Bash != nil {
		if dir := g.rules.Bash(); filepath.IsAbs(dir) {
			return dir
		}
	}
	return g.rules.Cwd
}

// legible says why a line cannot be shown or judged as it is.
func legible(text string) string {
	if len(text) > maxLine {
		return "the command is longer than 10,000 bytes"
	}
	if !utf8.ValidString(text) {
		return "the command is not valid UTF-8"
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c != '\t' && c != '\n' && hidden(c) }) {
		return "the command has characters that do not show"
	}
	// bash joins the lines before it reads on, so that $ and ( may meet where another parser does not see it; but it
	// joins no line to a comment.
	for rest := " " + text; ; {
		before, after, ok := strings.Cut(rest, "\\\n")
		if !ok {
			return ""
		}
		if strings.TrimRight(before, " \t\n") == before {
			return "a word goes on in the next line"
		}
		if strings.Contains(before[strings.LastIndexByte(before, '\n')+1:], "#") {
			return "a line that may be a comment goes on in the next one"
		}
		rest = " " + after
	}
}

// isShell reports shells, which run lines.
func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash":
		return true
	}
	return false
}

// takesText reports commands whose words are lines.
func takesText(name string) bool {
	switch name {
	case "eval", "source", ".", "trap", "alias", "watch", "su", "script", "compgen", "complete", "mapfile", "readarray":
		return true
	}
	return false
}

// takesLines reports programs that take commands from their words or their input: then every text in the line may be
// a command.
func takesLines(name string) bool {
	switch name {
	case "eval", "source", ".", "busybox", "xargs", "parallel", "ssh", "at", "batch", "trap":
		return true
	}
	return isShell(name)
}

// launches reports programs that run the command in their words.
func launches(name string) bool {
	switch name {
	case "env", "sudo", "doas", "runuser", "nohup", "setsid", "command", "builtin", "busybox", "toybox", "fakeroot",
		"unbuffer", "unshare", "exec", "time", "nice", "ionice", "timeout", "stdbuf", "chroot", "taskset", "chrt",
		"setarch", "flock", "strace", "ltrace", "nsenter", "prlimit", "systemd-run", "xargs", "parallel", "hyperfine",
		"entr", "coproc", "gdb", "expect", "caffeinate", "xvfb-run":
		return true
	}
	return takesText(name) || isShell(name)
}

// talks reports commands whose words are their own: git rm does not run the program rm.
func talks(c command) bool {
	if len(c.words) == 0 || c.crude {
		return false
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(c.words[1:], func(w word) bool {
			name, _, _ := strings.Cut(w.text, "=")
			return slices.Contains(names, name)
		})
	}
	name := c.name()
	switch name {
	case "git":
		return !has("bisect", "submodule", "rebase", "filter-branch", "difftool", "mergetool", "-c", "--exec-path",
			"--config-env", "-x", "--exec", "--upload-pack", "--receive-pack")
	case "npm", "pnpm", "yarn", "bun":
		return !has("exec", "x", "dlx", "-c", "--call")
	case "go":
		return !has("-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool")
	case "docker", "podman", "kubectl", "gh", "pip", "pip3", "cargo", "brew", "apt", "apt-get", "systemctl", "helm",
		"terraform", "cd":
		return true
	case "find", "fd", "fdfind":
		return !slices.ContainsFunc(c.words, runsFound)
	case "rg", "ag", "less", "awk", "gawk", "mawk", "nawk":
		return false
	}
	_, reads := readerOf(name)
	return reads
}
