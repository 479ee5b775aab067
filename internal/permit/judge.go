package permit

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// approveShell approves a line if every command in it is approved and every
// redirection harmless.
func (g *Gate) approveShell(text string) Verdict {
	ask := func(why string) Verdict { return Verdict{Decision: Ask, Reason: why} }
	if why := legible(text); why != "" {
		return ask(why)
	}
	file, err := parse(text)
	if err != nil {
		return ask("the command cannot be parsed")
	}
	if len(file.Stmts) == 0 {
		return ask("there is no command")
	}
	s := look(file)
	dirs, sure := g.dirs(s.commands)
	j := judge{g: g, dirs: dirs}
	if !sure {
		return ask("it cannot be said where the command runs")
	}
	for _, dir := range dirs {
		if real, err := resolve(dir); err != nil || !g.inside(real) {
			return ask("the command leaves the working directories")
		}
	}
	j.all(file.Stmts)
	if j.why != "" {
		return ask(j.why)
	}
	if j.rule != "" {
		return Verdict{Allow, "allowed by the rule " + j.rule, j.rule}
	}
	return Verdict{Decision: Allow, Reason: "a command that only reads"}
}

// judge goes through a line and keeps the first thing that speaks against it.
type judge struct {
	g    *Gate
	dirs []string
	rule string // the last one that was needed
	why  string
}

func (j *judge) doubt(why string) {
	if j.why == "" {
		j.why = why
	}
}

func (j *judge) all(stmts []*syntax.Stmt) {
	for _, s := range stmts {
		j.stmt(s)
	}
}

func (j *judge) stmt(s *syntax.Stmt) {
	if s.Coprocess || s.Disown {
		j.doubt("a form of command that is not known")
	}
	for _, r := range s.Redirs {
		j.redirect(r)
	}
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		j.call(c)
	case *syntax.BinaryCmd:
		j.stmt(c.X)
		j.stmt(c.Y)
	case *syntax.Subshell:
		j.all(c.Stmts)
	case *syntax.Block:
		j.all(c.Stmts)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			j.stmt(c.Stmt)
		}
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			j.all(c.Cond)
			j.all(c.Then)
		}
	case *syntax.WhileClause:
		j.all(c.Cond)
		j.all(c.Do)
	default:
		j.doubt("it has a part that is not judged, such as a function, a loop over words or an expression")
	}
}

func (j *judge) redirect(r *syntax.Redirect) {
	if r.N != nil && r.N.Value != "0" && r.N.Value != "1" && r.N.Value != "2" {
		j.doubt("it redirects an unusual descriptor")
		return
	}
	part := r.Word
	if r.Hdoc != nil {
		part = r.Hdoc
	}
	ws := evaluate(part)
	w := ws[0]
	if len(ws) != 1 || !w.known || r.Hdoc == nil && (!w.plain || w.glob) {
		j.doubt("a redirection depends on something that is expanded")
		return
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
	case syntax.DplOut, syntax.DplIn:
		if strings.Trim(w.text, "0123456789") != "" || w.text == "" {
			j.doubt("it redirects to something that is no descriptor")
		}
	case syntax.RdrIn:
		j.file(w.text, false)
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		j.file(w.text, true)
	default:
		j.doubt("a redirection that is not known")
	}
}

func (j *judge) file(path string, write bool) {
	if path == "/dev/null" {
		return
	}
	tool, mode := "Read", "reads"
	if write {
		tool, mode = "Write", "writes"
		if j.g.rules.Mode == Plan {
			j.doubt("it writes files")
			return
		}
	}
	for _, dir := range j.dirs {
		if strings.HasPrefix(path, "/dev/") || j.g.approvePath(tool, j.g.expand(path, dir), write).Decision != Allow {
			j.doubt("it " + mode + " a file that is not allowed")
		}
	}
}

func (j *judge) call(c *syntax.CallExpr) {
	for _, a := range c.Assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || !harmlessVariable(a.Name.Value) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		if a.Value != nil {
			if w := join(a.Value.Parts); !w.known || !w.plain {
				j.doubt("the value of a variable is expanded")
				return
			}
		}
	}
	var words []word
	for _, arg := range c.Args {
		ws := evaluate(arg)
		if len(ws) != 1 || !ws[0].known || !ws[0].plain && ws[0].text == "" {
			j.doubt("a word is known only when the command runs")
			return
		}
		words = append(words, ws[0])
	}
	if len(words) > 0 {
		j.command(unwrap(words))
	}
}

// unwrap takes off programs that do nothing but run another, where their own
// words are beyond doubt.
func unwrap(ws []word) []word {
	for {
		n := 0
		switch ws[0].text {
		case "nice", "command":
			n = 1
		case "timeout":
			if len(ws) > 1 && strings.Trim(ws[1].text, "0123456789.smhd") == "" && ws[1].text != "" {
				n = 2
			}
		}
		if n == 0 || len(ws) <= n || strings.HasPrefix(ws[n].text, "-") {
			return ws
		}
		ws = ws[n:]
	}
}

func (j *judge) command(ws []word) {
	name := ws[0]
	if !name.plain || name.glob || name.text == "" {
		j.doubt("the name of a program is written in an unusual way")
		return
	}
	for _, w := range ws[1:] {
		if !w.plain && !inert(name.text) {
			j.doubt("a word is written in an unusual way")
			return
		}
		if w.glob && (!inert(name.text) || j.g.bansReading()) {
			j.doubt("names of files could be taken for options, or be ones that are denied")
			return
		}
	}
	if j.g.bansReading() && recursive(name.text) {
		j.doubt("it could read a file that is denied")
		return
	}
	if name.text == "cd" {
		return // where it leads was judged with the line
	}
	if !strings.Contains(name.text, "/") && j.g.shadowed(name.text, j.dirs) {
		j.doubt("the program " + name.text + " would be one in the working directory")
		return
	}
	why := "no rule allows " + name.text
	if j.g.rules.Mode != Plan {
		for _, r := range j.g.allow {
			if !r.covers("Bash") || !allows(r, ws) {
				continue
			}
			if risk := j.risk(r, ws); risk != "" {
				why = risk
				continue
			}
			j.rule = r.text
			return
		}
	}
	if j.g.rules.ReadOnlyAuto && reads(ws) {
		if j.operands(ws) {
			return
		}
		why = name.text + " would read outside the working directories"
	}
	j.doubt(why)
}

// allows compares the words of a command with an allow rule, letter by letter.
func allows(r rule, ws []word) bool {
	if r.all {
		return true
	}
	if len(ws) < len(r.words) || !r.prefix && len(ws) != len(r.words) {
		return false
	}
	for i, want := range r.words {
		if ws[i].text != want {
			return false
		}
	}
	return len(r.words) > 0
}

// risk says why a rule, though it matches, does not cover the command: a rule
// with open words covers what a program is for, not every way to run another
// program or to write a file with it.
func (j *judge) risk(r rule, ws []word) string {
	name := ws[0].text
	if r.all && (strings.Contains(name, "/") || runsOthers(name)) {
		return name + " can run anything, and no rule names it"
	}
	if name == "git" {
		if len(j.dirs) > 1 {
			return "git after cd may read the configuration of another repository"
		}
		if why := gitRepository(j.dirs[0]); why != "" {
			return why
		}
	}
	if !r.prefix && !r.all {
		return ""
	}
	if !safeFlags(ws) {
		return "options of " + name + " that could write or run something"
	}
	return ""
}

// operands reports whether every word that could be a file is inside the roots.
func (j *judge) operands(ws []word) bool {
	for _, w := range ws[1:] {
		if !w.plain || w.glob && (ws[0].text != "ls" && ws[0].text != "echo" || strings.ContainsAny(w.text, "/")) {
			return false
		}
		if strings.HasPrefix(w.text, "-") || wordsOnly(ws[0].text) {
			continue
		}
		for _, dir := range j.dirs {
			if j.g.approvePath("Read", j.g.expand(w.text, dir), false).Decision != Allow {
				return false
			}
		}
	}
	return true
}

// bansReading reports whether some files may not be read.
func (g *Gate) bansReading() bool {
	return slices.ContainsFunc(append(slices.Clone(g.deny), g.ask...), func(r rule) bool { return len(r.globs) > 0 && kindOf(r.tool) != editTool })
}

// shadowed reports whether the name would be looked up in a working directory
// before it is found elsewhere.
func (g *Gate) shadowed(name string, dirs []string) bool {
	for _, entry := range filepath.SplitList(g.rules.Path) {
		for _, dir := range dirs {
			full := entry
			if !filepath.IsAbs(full) {
				full = filepath.Join(dir, entry)
			}
			real, err := resolve(filepath.Join(full, name))
			if err != nil {
				continue
			}
			if exists(filepath.Join(full, name)) {
				here, err := resolve(full)
				return err != nil || g.inside(here) || g.inside(real)
			}
		}
	}
	return false
}
