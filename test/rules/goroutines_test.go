package rules

import (
	"go/ast"
	"strings"
	"testing"
)

// A WaitGroup has an owner that waits for its goroutines. A bare go statement has a comment
// on its line that says who waits, or with what the goroutine ends.
func TestGoroutines(t *testing.T) {
	h := theTree(t)
	for name, p := range h.folders {
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, s := range p.prod {
			comments := map[int]bool{}
			for _, group := range s.file.Comments {
				for _, c := range group.List {
					comments[h.fset.Position(c.Pos()).Line] = true
				}
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok && !comments[h.fset.Position(g.Pos()).Line] {
					t.Errorf("%s: say in a comment on the line of the go statement who waits for it", h.where(g.Pos()))
				}
				return true
			})
		}
	}
}
