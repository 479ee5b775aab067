package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// evaluated are the commands in texts of a line that bash may evaluate as an
// expression, a subscript or a prompt: it runs what is substituted in them, though
// they are quoted. A line that evaluates nothing has none.
func evaluated(f *syntax.File) []string {
	some := false
	syntax.Walk(f, func(n syntax.Node) bool {
		some = some || evaluates(n)
		return !some
	})
	if !some {
		return nil
	}
	var texts []string
	syntax.Walk(f, func(n syntax.Node) bool {
		if w, ok := n.(*syntax.Word); ok {
			if text := evaluate(w)[0].text; strings.Contains(text, "$(") || strings.Contains(text, "`") {
				texts = append(texts, text)
			}
		}
		return true
	})
	var out []string
	for _, text := range texts {
		for _, piece := range strings.Split(text, "$(")[1:] {
			out = append(out, untilClosed(piece))
		}
		for i, piece := range strings.Split(text, "`") {
			if i%2 == 1 {
				out = append(out, piece)
			}
		}
	}
	return out
}

// untilClosed is text up to the bracket that closes one before it.
func untilClosed(text string) string {
	open := 1
	for i, c := range []byte(text) {
		switch c {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return text[:i]
			}
		}
	}
	return text
}

// evaluates reports a part of a line whose text is evaluated once more.
func evaluates(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.ArithmExp:
		return !numeric(n.X)
	case *syntax.ArithmCmd:
		return !numeric(n.X)
	case *syntax.LetClause, *syntax.DeclClause:
		return true
	case *syntax.BinaryTest:
		switch n.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			return true
		}
	case *syntax.UnaryTest:
		return n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar
	case *syntax.ParamExp:
		return n.Index != nil || n.Slice != nil || n.Excl || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps
	case *syntax.Assign:
		return n.Index != nil || n.Array != nil ||
			n.Name != nil && (strings.HasPrefix(n.Name.Value, "PS") || n.Name.Value == "PROMPT_COMMAND")
	case *syntax.CallExpr:
		return len(n.Args) > 0 &&
			slices.Contains(
				[]string{"test", "[", "printf", "read", "unset", "let", "mapfile", "readarray", "wait", "getopts", "export",
					"local", "declare", "typeset", "readonly", "command", "builtin"},
				evaluate(n.Args[0])[0].text,
			)
	}
	return false
}
