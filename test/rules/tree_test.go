package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is the path that our own imports begin with.
const module = "github.com/drover-dev/drover"

// source is one Go file of the tree, parsed whatever its build constraints
// are: a rule that holds on Linux only is no rule.
type source struct {
	path string // relative to the root
	file *ast.File
}

// folder is one package of the tree. Its name is its path below the root,
// or "." for the root.
type folder struct {
	name  string
	prod  []source
	tests []source
}

type tree struct {
	fset    *token.FileSet
	folders map[string]*folder
}

// openTree parses the tree once for all rules.
//
//rules:constant a memoised function
var openTree = sync.OnceValues(func() (*tree, error) { return readTree(root) })

func theTree(t *testing.T) *tree {
	t.Helper()
	h, err := openTree()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func readTree(root string) (*tree, error) {
	h := &tree{fset: token.NewFileSet(), folders: map[string]*folder{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && foreign(path, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		return h.add(root, path)
	})
	return h, err
}

// foreign reports whether a folder is none of the module's packages: hidden,
// test data, or a module of its own.
func foreign(path, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func (h *tree) add(root, path string) error {
	f, err := parser.ParseFile(h.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	name := filepath.ToSlash(filepath.Dir(rel))
	p := h.folders[name]
	if p == nil {
		p = &folder{name: name}
		h.folders[name] = p
	}
	if s := (source{rel, f}); strings.HasSuffix(path, "_test.go") {
		p.tests = append(p.tests, s)
	} else {
		p.prod = append(p.prod, s)
	}
	return nil
}

// imports are the import paths of a file.
func imports(f *ast.File) []string {
	var out []string
	for _, imp := range f.Imports {
		out = append(out, strings.Trim(imp.Path.Value, "`\""))
	}
	return out
}

// ours turns an import path into the name of a folder of the tree.
func ours(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// where names a place as editors understand it.
func (h *tree) where(p token.Pos) string {
	at := h.fset.Position(p)
	at.Column = 0
	return at.String()
}
