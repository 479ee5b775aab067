package rules

import (
	"go/ast"
	"strings"
	"testing"
)

// unixListeners are the files that listen on sockets with a path. Whoever connects to such a socket acts for the
// user, so each must look at the credentials of the other end (SO_PEERCRED).
var unixListeners = map[string]string{
	"internal/api/socket/socket.go":       "socket.Listen hangs up on other users and on commands in sandboxes: TestOtherUser, TestStranger",
	"internal/session/sandboxes/trial.go": "the socket of a trial, which accepts nobody: whoever connects has shown that it can",
}

// TestUnixListeners: no other file listens on a socket with a path.
func TestUnixListeners(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range theTree(t).folders {
		for _, s := range p.prod {
			ast.Inspect(s.file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				fun, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !strings.HasPrefix(fun.Sel.Name, "Listen") {
					return true
				}
				path := fun.Sel.Name == "ListenUnix"
				for _, arg := range call.Args {
					if lit, ok := arg.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, `"unix`) {
						path = true
					}
				}
				if !path {
					return true
				}
				if seen[s.path] = true; unixListeners[s.path] == "" {
					t.Errorf("%s listens on a socket with a path: check who connects, as socket.Listen does", s.path)
				}
				return true
			})
		}
	}
	for name := range unixListeners {
		if !seen[name] {
			t.Errorf("%s does not listen any more: remove it from unixListeners", name)
		}
	}
}
