package permission

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// bounds of a line that is approved.
const (
	maxJudged = 1000 // commands, each as often as it is looked at
	maxLoops  = 3    // in one another
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

// scope is what is known at a point of a line. It is a value: nothing changes
// the maps and slices in it.
type scope struct {
	dirs []string            // where the command may run
	vars map[string]variable // that the line has set
}

// variable is one that the line sets.
type variable struct {
	values []string
	known  bool // it has one of the values
	secret bool // it may hold what stands in the environment
}

func (s scope) set(name string, v variable) scope {
	s.vars = maps.Clone(s.vars)
	if s.vars == nil {
		s.vars = map[string]variable{}
	}
	s.vars[name] = v
	return s
}

// or is what is known if either scope may hold.
func (s scope) or(t scope) scope {
	out := scope{dirs: slices.Clone(s.dirs), vars: s.vars}
	for _, dir := range t.dirs {
		if !slices.Contains(out.dirs, dir) {
			out.dirs = append(out.dirs, dir)
		}
	}
	for name, a := range s.vars {
		b, both := t.vars[name]
		if both && a.known == b.known && a.secret == b.secret && slices.Equal(a.values, b.values) {
			continue
		}
		merged := variable{known: both && a.known && b.known, secret: a.secret || b.secret}
		if merged.known {
			merged.values = union(a.values, b.values)
			merged.known = len(merged.values) <= maxValues
		}
		out = out.set(name, merged)
	}
	for name, v := range t.vars {
		if _, both := s.vars[name]; !both {
			out = out.set(name, variable{secret: v.secret})
		}
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, text := range b {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func (s scope) equal(t scope) bool {
	return slices.Equal(s.dirs, t.dirs) && maps.EqualFunc(s.vars, t.vars, func(a, b variable) bool {
		return a.known == b.known && a.secret == b.secret && slices.Equal(a.values, b.values)
	})
}

// judge goes through a line as the shell would, and keeps the first thing that
// speaks against it.
type judge struct {
	g      *Gate
	rule   string // the last one that was needed
	firm   string // a shape that nothing but an answer of the user lifts
	why    string // what is only not known to be allowed
	judged int
	loops  int

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
	case *syntax.IfClause:
		after := j.branches(c, s)
		return after, after
	case *syntax.WhileClause:
		after := j.loop(s, func(s scope) scope {
			good, bad := j.all(c.Cond, s)
			if c.Until {
				good = bad
			}
			return either(j.all(c.Do, good))
		})
		// The condition is looked at once more when the loop ends.
		after = after.or(either(j.all(c.Cond, after)))
		return after, after
	case *syntax.ForClause:
		after := j.forEach(c, s)
		return after, after
	case *syntax.CaseClause:
		j.word(c.Word, s)
		after := s
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				j.word(p, s)
			}
			after = after.or(either(j.all(item.Stmts, after)))
		}
		return after, after
	case *syntax.TestClause:
		j.test(c.X, s)
	case *syntax.ArithmCmd:
		if !numeric(c.X) {
			j.doubt("an arithmetic command with more than numbers")
		}
	case *syntax.DeclClause:
		return j.declare(c, s)
	default:
		j.doubt("it has a part that is not judged, such as a function")
	}
	return s, s
}

func either(good, bad scope) scope { return good.or(bad) }

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

func (j *judge) branches(c *syntax.IfClause, s scope) scope {
	if len(c.Cond) == 0 { // else
		return either(j.all(c.Then, s))
	}
	good, bad := j.all(c.Cond, s)
	after := either(j.all(c.Then, good))
	if c.Else != nil {
		return after.or(j.branches(c.Else, bad))
	}
	return after.or(bad)
}

// loop judges a body until another round tells nothing new.
func (j *judge) loop(s scope, body func(scope) scope) scope {
	if j.loops++; j.loops > maxLoops {
		j.doubt("it has too many loops in one another")
		return s
	}
	defer func() { j.loops-- }()
	for range 4 {
		next := s.or(body(s))
		if next.equal(s) || j.over() {
			return next
		}
		s = next
	}
	j.doubt("what a loop does changes with every round")
	return s
}

func (j *judge) forEach(c *syntax.ForClause, s scope) scope {
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select || iter.Name == nil || !localName(iter.Name.Value) || !iter.InPos.IsValid() {
		j.doubt("a loop that is not over words, or by a variable that may change what runs")
		return s
	}
	v := variable{known: true}
	for _, item := range iter.Items {
		ws, _ := j.word(item, s)
		for _, w := range ws {
			v.secret = v.secret || w.secret
			switch {
			case !w.known || !w.plain:
				v.known = false
			case w.glob:
				names, ok := j.g.names(w, s.dirs)
				v.known = v.known && ok
				v.values = append(append(v.values, names...), w.text)
			default:
				v.values = append(v.values, w.text)
			}
		}
	}
	if !v.known || len(v.values) == 0 || len(v.values) > maxValues {
		v = variable{secret: v.secret}
	}
	return j.loop(s, func(s scope) scope { return either(j.all(c.Do, s.set(iter.Name.Value, v))) })
}

func (j *judge) redirect(r *syntax.Redirect, s scope) {
	if r.N != nil && r.N.Value != "0" && r.N.Value != "1" && r.N.Value != "2" {
		j.doubt("it redirects an unusual descriptor")
		return
	}
	if r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc {
		if r.Hdoc != nil && !quotedDelimiter(r.Word) {
			ws, _ := j.word(r.Hdoc, s) // data, but for what stands in it to be run
			j.open(ws)
		}
		return
	}
	ws, _ := j.word(r.Word, s)
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

// word evaluates a word. With any, the words are what it may become; without,
// they follow one another.
func (j *judge) word(w *syntax.Word, s scope) (ws []word, any bool) {
	if w == nil {
		return nil, false
	}
	if ws := braces(w); ws != nil {
		for _, one := range ws {
			if !one.known {
				j.doubt("braces around something that is expanded")
				return ws, false
			}
		}
		return ws, false
	}
	ws = join(w.Parts, func(p syntax.WordPart) part { return j.expansion(p, s) })
	return ws, len(ws) > 1
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
			return part{values: []string{text}, known: true}
		}
		j.all(p.Stmts, s)
	case *syntax.ProcSubst:
		if p.Op != syntax.CmdIn {
			j.doubt("it writes into another command")
			break
		}
		j.all(p.Stmts, s)
		return part{values: []string{"/dev/null"}, known: true} // a pipe, which may be read like this one
	case *syntax.ArithmExp:
		if p.Bracket || p.Unsigned || !numeric(p.X) {
			j.doubt("an arithmetic expansion of more than numbers")
			break
		}
		if n, err := expand.Arithm(&expand.Config{}, p.X); err == nil {
			return part{values: []string{strconv.Itoa(n)}, known: true}
		}
	case *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
	default:
		j.doubt("a form of word that is not known")
	}
	return part{}
}

// quotedText is the text of $(cat <<'END' …), by which a long message is given.
func quotedText(p *syntax.CmdSubst) (string, bool) {
	if len(p.Stmts) != 1 || len(p.Stmts[0].Redirs) != 1 || p.Stmts[0].Negated || p.Stmts[0].Background {
		return "", false
	}
	call, ok := p.Stmts[0].Cmd.(*syntax.CallExpr)
	r := p.Stmts[0].Redirs[0]
	if !ok || len(call.Args) != 1 || len(call.Assigns) > 0 || call.Args[0].Lit() != "cat" || r.Op != syntax.Hdoc ||
		r.N != nil ||
		r.Hdoc == nil ||
		!quotedDelimiter(r.Word) ||
		len(r.Hdoc.Parts) != 1 {
		return "", false
	}
	lit, ok := r.Hdoc.Parts[0].(*syntax.Lit)
	if !ok {
		return "", false
	}
	return strings.TrimRight(lit.Value, "\n"), true
}

func (j *judge) parameter(p *syntax.ParamExp, s scope) part {
	if p.Flags != nil || p.Excl || p.Width || p.IsSet || p.NestedParam != nil || p.Index != nil || p.Slice != nil ||
		p.Repl != nil || p.Names != 0 ||
		len(p.Modifiers) > 0 ||
		p.Param == nil ||
		p.Split != 0 ||
		p.GlobSubst != 0 ||
		p.RcExpand != 0 {
		j.doubt("an expansion that may run or set something")
		return part{}
	}
	name := p.Param.Value
	out := part{secret: !shown(name)}
	v, ours := s.vars[name]
	if ours {
		out = part(v)
	} else if name == "PWD" {
		out = part{values: s.dirs, known: true}
	}
	if p.Length {
		return part{secret: out.secret}
	}
	if p.Exp == nil {
		return out
	}
	switch p.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
		syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
	default:
		j.doubt("an expansion that may run or set something")
	}
	ws, _ := j.word(p.Exp.Word, s)
	return part{secret: out.secret || slices.ContainsFunc(ws, func(w word) bool { return w.secret })}
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

// test judges [[ … ]], which evaluates the sides of a comparison of numbers.
func (j *judge) test(x syntax.TestExpr, s scope) {
	switch x := x.(type) {
	case *syntax.Word:
		j.word(x, s)
	case *syntax.ParenTest:
		j.test(x.X, s)
	case *syntax.UnaryTest:
		switch x.Op {
		case syntax.TsVarSet, syntax.TsRefVar, syntax.TsOptSet:
			j.doubt("a test that may evaluate an expression")
		case syntax.TsNot, syntax.TsParen, syntax.TsEmpStr, syntax.TsNempStr, syntax.TsFdTerm:
			j.test(x.X, s)
		default:
			j.stated(x.X, s)
		}
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			j.number(x.X, s)
			j.number(x.Y, s)
		case syntax.TsNewer, syntax.TsOlder, syntax.TsDevIno:
			j.stated(x.X, s)
			j.stated(x.Y, s)
		default:
			j.test(x.X, s)
			j.test(x.Y, s)
		}
	default:
		j.doubt("a test that is not known")
	}
}

// stated is a file of which something is asked.
func (j *judge) stated(x syntax.TestExpr, s scope) {
	w, ok := x.(*syntax.Word)
	if !ok {
		j.doubt("a test that is not known")
		return
	}
	ws, _ := j.word(w, s)
	for _, w := range ws {
		if !w.known || !w.plain {
			j.doubt("a file that is known only when the command runs")
			return
		}
		j.file(w.text, s, false, w.made)
	}
}

func (j *judge) number(x syntax.TestExpr, s scope) {
	w, ok := x.(*syntax.Word)
	if !ok {
		j.doubt("a comparison that is not of numbers")
		return
	}
	ws, _ := j.word(w, s)
	for _, w := range ws {
		if !w.known || w.text == "" || strings.Trim(strings.TrimPrefix(w.text, "-"), "0123456789") != "" {
			j.doubt("a comparison that is not of numbers")
		}
	}
}

// assign judges settings of variables for the rest of the line.
func (j *judge) assign(assigns []*syntax.Assign, s scope) scope {
	for _, a := range assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil ||
			!localName(a.Name.Value) && !harmlessVariable(a.Name.Value) {
			j.doubt("it sets a variable that may change what runs")
			return s
		}
		v := j.value(a.Value, s)
		if harmlessVariable(a.Name.Value) && !ordinary(a.Name.Value, v) {
			j.doubt("it sets a variable that may change what runs")
			return s
		}
		s = s.set(a.Name.Value, v)
	}
	return s
}

func (j *judge) value(w *syntax.Word, s scope) variable {
	if w == nil {
		return variable{values: []string{""}, known: true}
	}
	v := variable{known: true}
	for _, one := range join(w.Parts, func(p syntax.WordPart) part { return j.expansion(p, s) }) {
		v.known, v.secret = v.known && one.known && one.plain && !strings.Contains(one.text, "~"), v.secret || one.secret
		v.values = append(v.values, one.text)
	}
	if !v.known {
		v.values = nil
	}
	return v
}

// environment judges settings for one command, which sees them. What a rule for the
// command covers with it is no obstacle to that rule, but to reading without one.
func (j *judge) environment(c *syntax.CallExpr, s scope) {
	j.set = j.exported
	for _, a := range c.Assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil {
			j.doubt("it sets a variable that may change what runs")
			return
		}
		if harmlessVariable(a.Name.Value) || j.splitting(c, a) {
			v := j.value(a.Value, s)
			if !v.known {
				j.doubt("the value of a variable is known only when the command runs")
			} else if a.Name.Value != "IFS" && !ordinary(a.Name.Value, v) {
				j.doubt("it sets a variable that may change what runs")
			}
			continue
		}
		j.set = true
		if !ordinary(a.Name.Value, j.value(a.Value, s)) {
			j.doubt("it sets a variable that may change what runs")
			return
		}
	}
}

// ordinary reports a variable that a rule for a command covers, with every value
// that it may have.
func ordinary(name string, v variable) bool {
	return v.known && !slices.ContainsFunc(v.values, func(text string) bool { return !ordinaryVariable(name, text) })
}

// splitting is IFS for the builtin read, and for nothing else.
func (j *judge) splitting(c *syntax.CallExpr, a *syntax.Assign) bool {
	return a.Name.Value == "IFS" && len(c.Args) > 0 && c.Args[0].Lit() == "read"
}

// declare judges export and its kin: harmless variables only.
func (j *judge) declare(c *syntax.DeclClause, s scope) (good, bad scope) {
	if c.Variant.Value != "export" && c.Variant.Value != "readonly" || len(c.Args) == 0 {
		j.doubt("it sets or shows variables")
		return s, s
	}
	for _, a := range c.Args {
		if a.Naked || a.Append || a.Index != nil || a.Array != nil || a.Name == nil ||
			!ordinary(a.Name.Value, j.value(a.Value, s)) {
			j.doubt("it sets a variable that may change what runs")
			return s, s
		}
		j.exported = j.exported || !harmlessVariable(a.Name.Value)
		s = s.set(a.Name.Value, j.value(a.Value, s))
	}
	return s, s
}

// call judges a simple command in every form that its words may take.
func (j *judge) call(c *syntax.CallExpr, s scope) (good, bad scope) {
	if len(c.Args) == 0 {
		s = j.assign(c.Assigns, s)
		return s, s
	}
	j.environment(c, s)
	lines := [][]word{nil}
	for _, arg := range c.Args {
		ws, any := j.word(arg, s)
		if !any {
			ws = slices.Clone(ws)
			for i, l := range lines {
				lines[i] = append(slices.Clip(l), ws...)
			}
			continue
		}
		if len(lines)*len(ws) > maxValues {
			j.doubt("words with too many values")
			return s, s
		}
		var next [][]word
		for _, l := range lines {
			for _, w := range ws {
				next = append(next, append(slices.Clip(l), w))
			}
		}
		lines = next
	}
	for i, l := range lines {
		j.judged++
		if j.over() {
			return s, s
		}
		g2, b2 := j.command(l, s)
		if i == 0 {
			good, bad = g2, b2
			continue
		}
		good, bad = good.or(g2), bad.or(b2)
	}
	return good, bad
}
