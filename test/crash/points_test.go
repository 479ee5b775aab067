//go:build linux

package crash

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// atLeast is how many places there are to be.
const atLeast = 40

// pointsOf finds the fail points of the tree, with where they are.
func pointsOf(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	fset := token.NewFileSet()
	for _, top := range []string{"../../cmd", "../../internal"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				word, literal := call.Args[0].(*ast.BasicLit)
				if pkg, named := selected(f, ok); !named || pkg != "failpoint" || !literal {
					return true
				}
				name, err := strconv.Unquote(word.Value)
				if err != nil {
					t.Fatal(err)
				}
				if was, twice := out[name]; twice {
					t.Errorf("fail point %s stands in %s and in %s", name, was, path)
				}
				out[name] = path
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func selected(f *ast.SelectorExpr, ok bool) (pkg string, hit bool) {
	if !ok || f.Sel.Name != "Hit" {
		return "", false
	}
	id, ok := f.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	return id.Name, true
}

// TestPoints holds the matrix and the page to the places that there are.
func TestPoints(t *testing.T) {
	points := pointsOf(t)
	if len(points) < atLeast {
		t.Errorf("there are %d fail points, want at least %d", len(points), atLeast)
	}
	for _, s := range steps() {
		if _, there := points[s.point]; s.point != "" && !there {
			t.Errorf("step %s is at the fail point %s, which does not exist", s.id, s.point)
		}
	}
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range points {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/reliability.md does not name the fail point %s of %s", name, path)
		}
	}
}

// TestCells counts the matrix: 19 steps, 4 victims, 3 moments, and each that
// cannot be says why.
func TestCells(t *testing.T) {
	n, seen := 0, map[string]bool{}
	for _, x := range cells() {
		if seen[x.name()] {
			t.Errorf("cell %s is there twice", x.name())
		}
		seen[x.name()] = true
		if strings.HasPrefix(x.step.id, "L") && x.step.only == nil && !x.keep && !x.front {
			n++
		}
		if x.step.point == "" && x.step.id != "L7" && x.cannot() == "" {
			t.Errorf("cell %s has neither a place nor a reason", x.name())
		}
	}
	if n != 228 {
		t.Errorf("the matrix has %d cells, want 228", n)
	}
}

// TestRelease looks for the places in a program that was built without the tag.
func TestRelease(t *testing.T) {
	points := pointsOf(t)
	data, err := os.ReadFile(build(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	for name := range points {
		if bytes.Contains(data, []byte(name)) {
			t.Errorf("the program holds the name of the fail point %s", name)
		}
	}
	for _, name := range []string{"DROVER_FAULT", "failpoint.Hit"} {
		if bytes.Contains(data, []byte(name)) {
			t.Errorf("the program holds %s", name)
		}
	}
}
