package shelltool

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// moves reports whether a line may end in another directory than it begins in. Most lines
// cannot, and need no file that says where they end.
func moves(line string) bool {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return true // bash runs what comes before the error
	}
	found := false
	syntax.Walk(f, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			name := call.Args[0].Lit()
			found = found || name == "" || strings.ContainsAny(name, `\{*?[`) || slices.Contains(movers(), name)
		}
		return !found
	})
	return found
}

// movers returns the commands of bash that change the directory, or run what they get or define
// a name in the shell itself.
func movers() []string {
	return []string{"cd", "pushd", "popd", "eval", "source", ".", "builtin", "command", "trap", "shopt", "alias", "enable",
		"mapfile", "readarray"}
}
