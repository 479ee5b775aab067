package workflowfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of an expression.
const (
	maxExpr  = 2000 // bytes
	maxBound = 50   // parentheses and exclamation marks in each other
)

// Scope is what an expression sees. Step gives a field of a step that has ended:
// status, output, exit_code or worktree.
type Scope struct {
	Params map[string]string
	Step   func(id, field string) (string, error)
	Failed bool // a step has failed that was not to continue
}

// ref is a value that an expression names.
type ref struct {
	step  string // empty: a parameter
	field string // of the step, or the name of the parameter
}

func (r ref) String() string {
	if r.step == "" {
		return "params." + r.field
	}
	return "steps." + r.step + "." + r.field
}

// expr is a parsed expression. All values are texts: false and the empty text do
// not hold, everything else does.
type expr struct {
	root   node
	refs   []ref
	status bool // it asks success, failure or always
	handle bool // it asks failure or always: it may hold after a failure
}

// node computes a value.
type node func(s Scope) (string, error)

func literal(text string) node { return func(Scope) (string, error) { return text, nil } }

func truth(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func holds(v string) bool { return v != "" && v != "false" }

// first is the first of two values that holds, or that does not, and else the second.
func first(a, b node, held bool) node {
	return func(s Scope) (string, error) {
		v, err := a(s)
		if err != nil || holds(v) == held {
			return v, err
		}
		return b(s)
	}
}

// parseExpr reads an expression:
//
//	or   = and { "||" and }
//	and  = cmp { "&&" cmp }
//	cmp  = one [ ("==" | "!=") one ]
//	one  = "!" one | "(" or ")" | text | number | true | false | name
//	name = params.NAME | steps.ID.FIELD | success() | failure() | always()
func parseExpr(text string) (expr, error) {
	if len(text) > maxExpr {
		return expr{}, fmt.Errorf("the expression has %d bytes, more than %d", len(text), maxExpr)
	}
	words, err := lex(text)
	if err != nil {
		return expr{}, err
	}
	p := &parser{words: words}
	root, err := p.or(0)
	if err == nil && p.at < len(words) {
		err = fmt.Errorf("%q stands where the expression should end", words[p.at].text)
	}
	if err != nil {
		return expr{}, err
	}
	p.out.root = root
	return p.out, nil
}

type word struct {
	text   string
	quoted bool
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func lex(text string) (words []word, err error) {
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case strings.ContainsRune(" \t\r\n", rune(rest[0])):
			i++
		case rest[0] == '\'' || rest[0] == '"':
			value, n := quoted(rest)
			if n == 0 {
				return nil, fmt.Errorf("a text has no closing %c", rest[0])
			}
			words, i = append(words, word{value, true}), i+n
		case len(rest) > 1 && slices.Contains([]string{"==", "!=", "&&", "||"}, rest[:2]):
			words, i = append(words, word{text: rest[:2]}), i+2
		case strings.ContainsRune("!()", rune(rest[0])):
			words, i = append(words, word{text: rest[:1]}), i+1
		default:
			n := 0
			for n < len(rest) && strings.IndexByte(nameChars, rest[n]) >= 0 {
				n++
			}
			if n == 0 {
				r := []rune(rest)[0]
				return nil, fmt.Errorf("%q has no meaning here", r)
			}
			words, i = append(words, word{text: rest[:n]}), i+n
		}
	}
	return words, nil
}

// quoted reads a text between quotes, in which a doubled quote is one. n is 0 for a
// text without an end.
func quoted(s string) (value string, n int) {
	var b strings.Builder
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != q:
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == q:
			b.WriteByte(q)
			i++
		default:
			return b.String(), i + 1
		}
	}
	return "", 0
}

type parser struct {
	words []word
	at    int
	out   expr
}

// is takes an operator if it comes next.
func (p *parser) is(op string) bool {
	if p.at < len(p.words) && p.words[p.at] == (word{text: op}) {
		p.at++
		return true
	}
	return false
}

func (p *parser) or(depth int) (node, error) {
	a, err := p.and(depth)
	for err == nil && p.is("||") {
		var b node
		b, err = p.and(depth)
		a = first(a, b, true)
	}
	return a, err
}

func (p *parser) and(depth int) (node, error) {
	a, err := p.cmp(depth)
	for err == nil && p.is("&&") {
		var b node
		b, err = p.cmp(depth)
		a = first(a, b, false)
	}
	return a, err
}

func (p *parser) cmp(depth int) (node, error) {
	a, err := p.one(depth)
	if err != nil {
		return nil, err
	}
	same, differ := p.is("=="), false
	if !same {
		differ = p.is("!=")
	}
	if !same && !differ {
		return a, nil
	}
	b, err := p.one(depth)
	return func(s Scope) (string, error) {
		x, err := a(s)
		if err != nil {
			return "", err
		}
		y, err := b(s)
		return truth((x == y) != differ), err
	}, err
}

var errEnds = errors.New("the expression ends too early")

func (p *parser) one(depth int) (node, error) {
	if depth > maxBound {
		return nil, fmt.Errorf("more than %d parentheses in each other", maxBound)
	}
	switch {
	case p.is("!"):
		of, err := p.one(depth + 1)
		return func(s Scope) (string, error) {
			v, err := of(s)
			return truth(!holds(v)), err
		}, err
	case p.is("("):
		in, err := p.or(depth + 1)
		if err == nil && !p.is(")") {
			err = errors.New("a parenthesis is not closed")
		}
		return in, err
	case p.at == len(p.words):
		return nil, errEnds
	}
	w := p.words[p.at]
	p.at++
	if w.quoted {
		return literal(w.text), nil
	}
	return p.name(w.text)
}

// name reads a word without quotes.
func (p *parser) name(text string) (node, error) {
	parts := strings.Split(text, ".")
	switch {
	case text == "true" || text == "false" || strings.Trim(text, "0123456789.") == "" && text != ".":
		return literal(text), nil
	case text == "success" || text == "failure" || text == "always":
		if !p.is("(") || !p.is(")") {
			return nil, fmt.Errorf("write %s()", text)
		}
		p.out.status, p.out.handle = true, p.out.handle || text != "success"
		return func(s Scope) (string, error) {
			return truth(text == "always" || s.Failed == (text == "failure")), nil
		}, nil
	case parts[0] == "params" && len(parts) == 2:
		return p.ref(ref{field: parts[1]}), nil
	case parts[0] == "steps" && len(parts) == 3:
		if !slices.Contains(fields(), parts[2]) {
			return nil, fmt.Errorf("a step has no %.40q%s", parts[2], known(parts[2], fields(), ""))
		}
		return p.ref(ref{parts[1], parts[2]}), nil
	case parts[0] == "steps" || parts[0] == "params":
		return nil, fmt.Errorf("%.80q is not whole (write params.NAME or steps.ID.output)", text)
	}
	if near := closest(parts[0],
		[]string{"params", "steps", "success", "failure", "always", "true", "false"}); near != "" {
		return nil, fmt.Errorf("%.80q is not known (did you mean %s?)", text, near)
	}
	return nil, fmt.Errorf("%.80q is not known (put texts between quotes)", text)
}

func (p *parser) ref(r ref) node {
	p.out.refs = append(p.out.refs, r)
	return func(s Scope) (string, error) {
		if r.step == "" {
			return s.Params[r.field], nil
		}
		return s.Step(r.step, r.field)
	}
}

// fields are what can be known of a step that has ended.
func fields() []string { return []string{"status", "output", "exit_code", "worktree"} }

// Wanted reports whether a step is to be done, now that all it needs has ended.
func (s Step) Wanted(scope Scope) (bool, error) {
	if s.If == "" {
		return !scope.Failed, nil
	}
	e, err := parseExpr(s.If)
	if err != nil {
		return false, fmt.Errorf("if of step %s: %w", s.ID, err)
	}
	if !e.status && scope.Failed {
		return false, nil
	}
	v, err := e.root(scope)
	if err != nil {
		return false, fmt.Errorf("if of step %s: %w", s.ID, err)
	}
	return holds(v), nil
}

// Handles reports whether the step may be done after a failure.
func (s Step) Handles() bool {
	e, err := parseExpr(s.If)
	return err == nil && e.handle
}

// piece is a part of a text: words as they are, or an expression.
type piece struct {
	text string
	expr *expr
}

const (
	opens  = "${{"
	closes = "}}"
)

// parseText splits a text with expressions. $${{ means ${{ itself.
func parseText(text string) ([]piece, error) {
	var out []piece
	for {
		before, rest, found := strings.Cut(text, opens)
		if !found {
			return append(out, piece{text: text}), nil
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			out = append(out, piece{text: escaped + opens})
			text = rest
			continue
		}
		end := endOf(rest)
		if end < 0 {
			return nil, errors.New("${{ has no }}")
		}
		e, err := parseExpr(rest[:end])
		if err != nil {
			return nil, fmt.Errorf("${{%.60s}}: %w", rest[:end], err)
		}
		out = append(out, piece{text: before}, piece{expr: &e})
		text = rest[end+len(closes):]
	}
}

// endOf returns the position of the first }} outside of quotes, or -1.
func endOf(s string) int {
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], closes):
			return i
		case s[i] == '\'' || s[i] == '"':
			_, n := quoted(s[i:])
			if n == 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

// Fill computes a text, of [MaxText] at most.
func Fill(text string, s Scope) (string, error) {
	pieces, err := parseText(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.text)
		if p.expr == nil {
			continue
		}
		v, err := p.expr.root(s)
		if err != nil {
			return "", err
		}
		if b.WriteString(v); b.Len() > MaxText {
			return "", fmt.Errorf("a text has more than %d bytes with its values (pass large values by a file)", MaxText)
		}
	}
	return b.String(), nil
}
