//go:build linux && (amd64 || arm64)

package attack

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// anything stands for a word, or some, that are known only when the line runs.
const anything = "\x00"

// differs says which programs the line's own shell has started with other words
// than our parser has read in it.
func differs(line string, w *world, events []event) []string {
	var calls [][]string
	for _, e := range events {
		own := !slices.ContainsFunc(e.chain, func(exe string) bool { return filepath.Base(exe) != "bash" })
		if e.Call != "execve" || !own || len(e.chain) == 0 || missing(e.Path) {
			continue
		}
		if calls == nil {
			if calls = believed(line, w); calls == nil {
				return []string{"it ran, and our parser cannot read it"}
			}
		}
		if !slices.ContainsFunc(calls, func(c []string) bool { return ends(c, e.Args) }) {
			return []string{fmt.Sprintf("bash started %q, which our parser has not read", e.Args)}
		}
	}
	return nil
}

// believed are the words of all commands as our parser reads them.
func believed(line string, w *world) [][]string {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil
	}
	calls := [][]string{}
	cfg := &expand.Config{Env: expand.ListEnviron("HOME=" + w.home)}
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, word := range c.Args {
			if moves(word) {
				words = append(words, anything)
				continue
			}
			fields, err := expand.Fields(cfg, word)
			if err != nil {
				fields = []string{anything}
			}
			words = append(words, fields...)
		}
		calls = append(calls, words)
		return true
	})
	return calls
}

// moves reports a word whose text depends on variables, commands or files.
func moves(w *syntax.Word) bool {
	found := false
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			found = true
		case *syntax.Lit:
			found = found || strings.ContainsAny(n.Value, "*?[~")
		}
		return !found
	})
	return found
}

// ends reports whether the words are the last ones of a command: those before
// them may be a builtin that runs the rest.
func ends(call, argv []string) bool {
	for i := range call {
		if fits(call[i:], argv) {
			return true
		}
	}
	return false
}

func fits(call, argv []string) bool {
	if len(call) == 0 {
		return len(argv) == 0
	}
	if call[0] == anything {
		for i := range len(argv) + 1 {
			if fits(call[1:], argv[i:]) {
				return true
			}
		}
		return false
	}
	return len(argv) > 0 && argv[0] == call[0] && fits(call[1:], argv[1:])
}
