package policy

import (
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// bounds of a line that is approved.
const (
	maxJudged = 1000 // commands, each as often as it is looked at
	maxDirs   = 8
)

// approveShell approves a line if every command in it is approved and every
// redirection harmless.
func (g *Gate) approveShell(l line, boxed bool) Verdict {
	why := legible(l.text)
	switch {
	case why != "":
	case l.file == nil:
		why = "the command cannot be parsed"
	case l.doubt != "":
		why = l.doubt
	case len(l.file.Stmts) == 0:
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
		return Verdict{Decision: Allow, Reason: "the sandbox bounds it"}
	}
	j := judge{g: g}
	j.all(l.file.Stmts, scope{dirs: []string{g.shellDir()}})
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

// scope is where a command may run. It is a value: nothing changes the slice in it.
type scope struct{ dirs []string }

// or is what is known if either scope may hold.
func (s scope) or(t scope) scope {
	out := scope{slices.Clone(s.dirs)}
	for _, dir := range t.dirs {
		if !slices.Contains(out.dirs, dir) {
			out.dirs = append(out.dirs, dir)
		}
	}
	return out
}

// judge goes through a line as the shell would, and keeps the first thing that speaks
// against it. Variables and loops are not followed: what a variable holds is not known,
// and a line with a loop is a question.
type judge struct {
	g      *Gate
	rule   string // the last one that was needed
	firm   string // a shape that nothing but an answer of the user lifts
	why    string // what is only not known to be allowed
	judged int

	set      bool // the command sees a variable that the line sets
	exported bool // and so do all behind it

	candidate string // a rule for the first command that none covers
}

func (j *judge) doubt(why string) {
	if j.firm == "" {
		j.firm = why
	}
}

func (j *judge) unknown(why string) {
	if j.why == "" {
		j.why = why
	}
}

// over ends a line that has become too much to look at.
func (j *judge) over() bool {
	if j.judged > maxJudged {
		j.doubt("it has too many commands to look at")
	}
	return j.firm != ""
}

// all judges commands in their order. What it returns holds after the last one,
// if it went well and if it did not.
func (j *judge) all(stmts []*syntax.Stmt, s scope) (good, bad scope) {
	good, bad = s, s
	for _, stmt := range stmts {
		if j.over() {
			return s, s
		}
		good, bad = j.stmt(stmt, s)
		s = good.or(bad)
	}
	return good, bad
}

func (j *judge) stmt(st *syntax.Stmt, s scope) (good, bad scope) {
	if st.Coprocess || st.Disown {
		j.doubt("a form of command that is not known")
	}
	for _, r := range st.Redirs {
		j.redirect(r, s)
	}
	good, bad = j.cmd(st.Cmd, s)
	if st.Background {
		return s, s
	}
	if st.Negated {
		return bad, good
	}
	return good, bad
}

func (j *judge) cmd(cmd syntax.Command, s scope) (good, bad scope) {
	switch c := cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		return j.call(c, s)
	case *syntax.BinaryCmd:
		return j.binary(c, s)
	case *syntax.Subshell:
		j.all(c.Stmts, s)
	case *syntax.Block:
		return j.all(c.Stmts, s)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return j.stmt(c.Stmt, s)
		}
	case *syntax.DeclClause:
		j.declare(c, s)
	default:
		j.doubt("it has a part that is not judged, such as a loop, a condition or a function")
	}
	return s, s
}

func (j *judge) binary(c *syntax.BinaryCmd, s scope) (good, bad scope) {
	if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
		if _, timed := c.Y.Cmd.(*syntax.TimeClause); timed {
			j.doubt("time, which bash takes for a program here")
		}
		// Each side has a shell of its own.
		j.stmt(c.X, s)
		j.stmt(c.Y, s)
		return s, s
	}
	good, bad = j.stmt(c.X, s)
	if c.Op == syntax.AndStmt {
		g2, b2 := j.stmt(c.Y, good)
		return g2, bad.or(b2)
	}
	g2, b2 := j.stmt(c.Y, bad)
	return good.or(g2), b2
}

func (j *judge) redirect(r *syntax.Redirect, s scope) {
	if r.N != nil && r.N.Value != "0" && r.N.Value != "1" && r.N.Value != "2" {
		j.doubt("it redirects an unusual descriptor")
		return
	}
	if r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc {
		if r.Hdoc != nil && !quotedDelimiter(r.Word) {
			ws := j.word(r.Hdoc, s) // data, but for what stands in it to be run
			j.open(ws)
		}
		return
	}
	ws := j.word(r.Word, s)
	if r.Op == syntax.WordHdoc {
		j.open(ws)
		return
	}
	for _, w := range ws {
		if !w.known || !w.plain || w.glob || len(ws) > 1 && braces(r.Word) != nil {
			j.doubt("a redirection depends on something that is expanded")
			return
		}
		switch r.Op {
		case syntax.DplOut, syntax.DplIn:
			if strings.Trim(w.text, "012") != "" || len(w.text) != 1 {
				j.doubt("it redirects to something that is no usual descriptor")
			}
		case syntax.RdrIn:
			j.file(w.text, s, false, w.made)
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
			j.file(w.text, s, true, w.made)
		default:
			j.doubt("a redirection that is not known")
		}
	}
}

// open tells of words that may show what stands in the environment.
func (j *judge) open(ws []word) {
	if slices.ContainsFunc(ws, func(w word) bool { return w.secret }) {
		j.unknown("it may show what stands in the environment")
	}
}

// quotedDelimiter reports whether a here-document is taken as it is.
func quotedDelimiter(w *syntax.Word) bool {
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); !ok || strings.Contains(lit.Value, `\`) {
			return true
		}
	}
	return false
}

// file judges a file that is opened.
func (j *judge) file(path string, s scope, write, made bool) {
	if path == "/dev/null" {
		return
	}
	if strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/") {
		j.doubt("a redirection to the network")
		return
	}
	tool := "Read"
	if write {
		if tool = "Write"; j.g.rules.Mode == Plan {
			j.doubt("it writes files")
			return
		}
	}
	for _, dir := range s.dirs {
		v := j.g.approvePath(tool, j.g.expand(path, dir), write)
		switch {
		case v.Decision == Allow:
		case v.UserOnly || write || !v.outside:
			j.doubt(reason(write) + v.Reason)
		default:
			j.unknown(reason(write) + v.Reason)
		}
		if write && made && j.g.paths && j.g.ruled(path, dir) || !write && !j.g.MayRead(j.g.expand(path, dir)) {
			j.doubt(reason(write) + "a rule speaks of it")
		}
	}
}

func reason(write bool) string {
	if write {
		return "it writes a file: "
	}
	return "it reads a file: "
}

// word evaluates a word, and judges what is run in it. It becomes several with braces.
func (j *judge) word(w *syntax.Word, s scope) []word {
	if w == nil {
		return nil
	}
	if ws := braces(w); ws != nil {
		if slices.ContainsFunc(ws, func(w word) bool { return !w.known }) {
			j.doubt("braces around something that is expanded")
		}
		return ws
	}
	out := join(w.Parts, func(p syntax.WordPart) part { return j.expansion(p, s) })
	if !out.known {
		out.valued = j.valued(w, s)
	}
	return []word{out}
}

// valued is the text of a word with the values of $PWD and $HOME, or nothing if more is expanded in it.
func (j *judge) valued(w *syntax.Word, s scope) string {
	v := join(w.Parts, func(p syntax.WordPart) part {
		exp, ok := p.(*syntax.ParamExp)
		if !ok || !plainParameter(exp) || exp.Length {
			return part{}
		}
		switch {
		case exp.Param.Value == "PWD" && len(s.dirs) == 1:
			return part{text: s.dirs[0], known: true}
		case exp.Param.Value == "HOME" && filepath.IsAbs(j.g.rules.Home):
			return part{text: j.g.rules.Home, known: true}
		}
		return part{}
	})
	if !v.known || !v.plain || v.glob {
		return ""
	}
	return v.text
}

// expansion judges what is expanded, and says what is known of the result.
func (j *judge) expansion(p syntax.WordPart, s scope) part {
	switch p := p.(type) {
	case *syntax.ParamExp:
		return j.parameter(p, s)
	case *syntax.CmdSubst:
		if p.TempFile || p.ReplyVar {
			j.doubt("a form of substitution that is not known")
			break
		}
		if text, ok := quotedText(p); ok && j.identified("cat", s) {
			return part{text: text, known: true}
		}
		j.all(p.Stmts, s)
		if len(p.Stmts) == 1 && len(p.Stmts[0].Redirs) == 0 {
			if call, ok := p.Stmts[0].Cmd.(*syntax.CallExpr); ok && len(call.Args) == 1 && call.Args[0].Lit() == "nproc" {
				return part{text: "1", known: true} // a number, whichever
			}
		}
	case *syntax.ProcSubst:
		if p.Op != syntax.CmdIn {
			j.doubt("it writes into another command")
			break
		}
		j.all(p.Stmts, s)
		return part{text: "/dev/null", known: true} // a pipe, which may be read like this one
	case *syntax.ArithmExp:
		if p.Bracket || p.Unsigned || !numeric(p.X) {
			j.doubt("an arithmetic expansion of more than numbers")
		}
	case *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
	default:
		j.doubt("a form of word that is not known")
	}
	return part{}
}

// quotedText is the text of $(cat <<END …) in which nothing is expanded, by which a long message is given.
func quotedText(p *syntax.CmdSubst) (string, bool) {
	if len(p.Stmts) != 1 || len(p.Stmts[0].Redirs) != 1 || p.Stmts[0].Negated || p.Stmts[0].Background {
		return "", false
	}
	call, ok := p.Stmts[0].Cmd.(*syntax.CallExpr)
	r := p.Stmts[0].Redirs[0]
	if !ok || len(call.Args) != 1 || len(call.Assigns) > 0 || call.Args[0].Lit() != "cat" || r.N != nil ||
		r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc || r.Hdoc == nil {
		return "", false
	}
	var text strings.Builder
	for _, p := range r.Hdoc.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok || strings.Contains(lit.Value, `\`) && !quotedDelimiter(r.Word) {
			return "", false
		}
		text.WriteString(lit.Value)
	}
	body := text.String()
	if r.Op == syntax.DashHdoc {
		body = strings.TrimLeft(body, "\t")
		for strings.Contains(body, "\n\t") {
			body = strings.ReplaceAll(body, "\n\t", "\n")
		}
	}
	return strings.TrimRight(body, "\n"), true
}

// parameter accepts the plain forms of an expansion. Its value is not known.
func (j *judge) parameter(p *syntax.ParamExp, s scope) part {
	if !plainParameter(p) {
		j.doubt("an expansion that may run or set something")
		return part{}
	}
	return part{secret: !shown(p.Param.Value) && !p.Length}
}

// plainParameter reports $NAME, ${NAME} and ${#NAME}.
func plainParameter(p *syntax.ParamExp) bool {
	return p.Flags == nil && !p.Excl && !p.Width && !p.IsSet && p.NestedParam == nil && p.Index == nil && p.Slice == nil &&
		p.Repl == nil && p.Names == 0 && len(p.Modifiers) == 0 && p.Param != nil && p.Split == 0 && p.GlobSubst == 0 &&
		p.RcExpand == 0 && p.Exp == nil
}

// numeric reports expressions of numbers alone: a name would be evaluated as an
// expression again, and may hold one that runs a command.
func numeric(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case *syntax.Word:
		lit := x.Lit()
		return lit != "" && len(lit) < 19 && strings.Trim(lit, "0123456789") == ""
	case *syntax.ParenArithm:
		return numeric(x.X)
	case *syntax.UnaryArithm:
		return x.Op != syntax.Inc && x.Op != syntax.Dec && numeric(x.X)
	case *syntax.BinaryArithm:
		switch x.Op {
		case syntax.Add,
			syntax.Sub,
			syntax.Mul,
			syntax.Quo,
			syntax.Rem,
			syntax.Eql,
			syntax.Gtr,
			syntax.Lss,
			syntax.Neq,
			syntax.Leq,
			syntax.Geq,
			syntax.And,
			syntax.Or,
			syntax.Xor,
			syntax.AndArit,
			syntax.OrArit,
			syntax.TernQuest,
			syntax.TernColon:
			return numeric(x.X) && numeric(x.Y)
		}
	}
	return false
}

// assign judges settings of variables for the rest of the line.
func (j *judge) assign(assigns []*syntax.Assign, s scope) {
	for _, a := range assigns {
		if !plainAssign(a) || !localName(a.Name.Value) && !(harmlessVariable(a.Name.Value) && j.ordinary(a, s)) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		j.word(a.Value, s)
	}
}

// plainAssign reports NAME=value.
func plainAssign(a *syntax.Assign) bool {
	return !a.Append && !a.Naked && a.Index == nil && a.Array == nil && a.Name != nil
}

// ordinary reports a variable that a rule for a command covers, with its value.
func (j *judge) ordinary(a *syntax.Assign, s scope) bool {
	value := literal("")
	if ws := j.word(a.Value, s); len(ws) == 1 {
		value = ws[0]
	} else if a.Value != nil {
		return false
	}
	return value.known && value.plain && !strings.Contains(value.text, "~") && ordinaryVariable(a.Name.Value, value.text)
}

// environment judges settings for one command, which sees them. What a rule for the
// command covers with it is no obstacle to that rule, but to reading without one.
func (j *judge) environment(c *syntax.CallExpr, s scope) {
	j.set = j.exported
	for _, a := range c.Assigns {
		if !plainAssign(a) || !j.ordinary(a, s) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		j.set = j.set || !harmlessVariable(a.Name.Value)
	}
}

// declare judges export and its kin: harmless variables only.
func (j *judge) declare(c *syntax.DeclClause, s scope) {
	if c.Variant.Value != "export" && c.Variant.Value != "readonly" || len(c.Args) == 0 {
		j.doubt("it sets or shows variables")
		return
	}
	for _, a := range c.Args {
		if !plainAssign(a) || !j.ordinary(a, s) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		j.exported = j.exported || !harmlessVariable(a.Name.Value)
	}
}

// call judges a simple command.
func (j *judge) call(c *syntax.CallExpr, s scope) (good, bad scope) {
	if len(c.Args) == 0 {
		j.assign(c.Assigns, s)
		return s, s
	}
	j.environment(c, s)
	var ws []word
	for _, arg := range c.Args {
		ws = append(ws, j.word(arg, s)...)
	}
	if j.judged++; j.over() {
		return s, s
	}
	return j.command(ws, s)
}
