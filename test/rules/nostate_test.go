package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// excuse on the line above a variable says why it is no state, with a reason:
//
//	//rules:constant made once, never written
const excuse = "//rules:constant "

// TestNoState keeps the promise that two sessions in one process share nothing.
// It is a heuristic by syntax: package variables that can be changed in place,
// that are assigned somewhere, or whose making it cannot judge are reported.
func TestNoState(t *testing.T) {
	h := theTree(t)
	for _, p := range h.folders {
		for _, f := range stateOf(p.prod) {
			t.Errorf("%s: %s", h.where(f.pos), f.text)
		}
	}
}

type finding struct {
	pos  token.Pos
	text string
}

func stateOf(files []source) []finding {
	var out []finding
	written := writes(files)
	for _, s := range files {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					out = append(out, finding{d.Pos(), "func init: do it where it is needed, or let the caller ask for it"})
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					out = append(out, variables(d, written)...)
				}
			}
		}
	}
	return out
}

func variables(d *ast.GenDecl, written map[string]bool) []finding {
	var out []finding
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if excused(v.Doc, v.Comment) || !d.Lparen.IsValid() && excused(d.Doc) {
			continue
		}
		embedded := directive("//go:embed ", v.Doc, v.Comment) || !d.Lparen.IsValid() && directive("//go:embed ", d.Doc)
		for i, name := range v.Names {
			if name.Name == "_" {
				continue
			}
			var value ast.Expr
			if i < len(v.Values) {
				value = v.Values[i]
			}
			why := ""
			switch {
			case written[name.Name]:
				why = "it is written to"
			case embedded:
			default:
				why = changeable(v.Type, value)
			}
			if why != "" {
				out = append(out, finding{name.Pos(), fmt.Sprintf("package variable %s is state: %s (or say %swhy)", name.Name, why, excuse)})
			}
		}
	}
	return out
}

func excused(groups ...*ast.CommentGroup) bool { return directive(excuse, groups...) }

// directive reports whether a comment with the prefix and something after it
// is there.
func directive(prefix string, groups ...*ast.CommentGroup) bool {
	for _, g := range groups {
		if g == nil {
			continue
		}
		for _, c := range g.List {
			if rest, ok := strings.CutPrefix(c.Text, prefix); ok && strings.TrimSpace(rest) != "" {
				return true
			}
		}
	}
	return false
}

// fixed are calls whose results nobody can change.
var fixed = []string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "time.Date", "reflect.TypeFor"}

// changeable says why a variable of this type or value may be changed in place,
// or nothing.
func changeable(typ, value ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.MapType, *ast.ArrayType, *ast.ChanType, *ast.StarExpr, *ast.StructType:
		return "its type can be changed in place"
	case *ast.SelectorExpr:
		if isIdent(typ.X, "sync") || isIdent(typ.X, "atomic") {
			return "it is a lock or a counter"
		}
	}
	switch value := value.(type) {
	case nil:
		return "it is declared without a value, so somebody must set it"
	case *ast.CompositeLit:
		return changeableLit(value)
	case *ast.UnaryExpr:
		if value.Op == token.AND {
			return "it points to what can be changed"
		}
	case *ast.CallExpr:
		if !slices.Contains(fixed, spell(value.Fun)) {
			return "what " + spell(value.Fun) + " makes is not known to be fixed"
		}
	}
	return ""
}

func changeableLit(lit *ast.CompositeLit) string {
	switch t := lit.Type.(type) {
	case *ast.MapType, *ast.ArrayType:
		return "maps, slices and arrays can be changed in place: use a switch or a function"
	case *ast.SelectorExpr:
		if isIdent(t.X, "sync") || isIdent(t.X, "atomic") {
			return "it is a lock or a counter"
		}
	}
	return ""
}

// spell is how a called function is written.
func spell(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return spell(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return spell(e.X)
	case *ast.ArrayType:
		return "[]" + spell(e.Elt)
	}
	return "this"
}

// writes are the names of package variables of the files that are assigned,
// counted, or lent by address anywhere in a function where no local variable
// hides them.
func writes(files []source) map[string]bool {
	out := map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			hidden := locals(fn)
			for _, name := range targets(fn.Body) {
				if !hidden[name] {
					out[name] = true
				}
			}
		}
	}
	return out
}

func targets(body ast.Node) []string {
	var out []string
	take := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.Ident:
				out = append(out, x.Name)
			}
			return
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					take(e)
				}
			}
		case *ast.IncDecStmt:
			take(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				take(n.X)
			}
		}
		return true
	})
	return out
}

// locals are the names that a function declares, wherever in it.
func locals(fn *ast.FuncDecl) map[string]bool {
	out := map[string]bool{}
	fields := func(l *ast.FieldList) {
		if l == nil {
			return
		}
		for _, f := range l.List {
			for _, n := range f.Names {
				out[n.Name] = true
			}
		}
	}
	fields(fn.Recv)
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			fields(n.Params)
			fields(n.Results)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						out[id.Name] = true
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					out[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				out[id.Name] = true
			}
		}
		return true
	})
	return out
}

func TestNoStateHeuristic(t *testing.T) {
	for _, c := range []struct {
		name, code string
		found      int
	}{
		{"map", `var x = map[string]int{}`, 1},
		{"slice", `var x = []string{"a"}`, 1},
		{"conversion", `var x = []byte("a")`, 1},
		{"make", `var x = make(chan int)`, 1},
		{"lock", `var x sync.Mutex`, 1},
		{"lock-literal", `var x = sync.Pool{}`, 1},
		{"counter", `var x atomic.Int64`, 1},
		{"pointer", `var x = &T{}`, 1},
		{"unset", `var x int`, 1},
		{"constructor", `var x = newCache()`, 1},
		{"two", `var x, y = []int{}, map[int]int{}`, 2},
		{"group", "var (\n\tx = errors.New(\"a\")\n\ty = []int{}\n)", 1},
		{"assigned", "var x = 1\nfunc f() { x = 2 }", 1},
		{"counted", "var x = 1\nfunc f() { x++ }", 1},
		{"field", "var x = T{}\nfunc f() { x.n = 2 }", 1},
		{"lent", "var x = T{}\nfunc f() { g(&x) }", 1},
		{"init", "func init() {}", 1},
		{"empty-excuse", "//rules:constant\nvar x = []int{}", 1},
		{"excuse-of-the-group", "//rules:constant all of them\nvar (\n\tx = []int{}\n)", 1},

		{"sentinel", `var x = errors.New("a")`, 0},
		{"regexp", `var x = regexp.MustCompile("a")`, 0},
		{"embed", "//go:embed a.md\nvar x string", 0},
		{"embed-folder", "//go:embed a\nvar x embed.FS", 0},
		{"assertion", `var _ I = (*T)(nil)`, 0},
		{"literal", `var x = "a"`, 0},
		{"struct", `var x = T{n: 1}`, 0},
		{"excused", "//rules:constant never written\nvar x = []int{}", 0},
		{"excused-beside", "var x = []int{} //rules:constant never written", 0},
		{"excused-in-group", "var (\n\t//rules:constant never written\n\tx = []int{}\n)", 0},
		{"hidden", "var x = 1\nfunc f() { x := 2; x = 3; _ = x }", 0},
		{"hidden-parameter", "var x = 1\nfunc f(x int) { x = 3 }", 0},
		{"method-init", "func (T) init() {}", 0},
		{"local", "func f() { var m = map[int]int{}; _ = m }", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.code, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if got := stateOf([]source{{"x.go", f}}); len(got) != c.found {
				t.Errorf("%d findings %v, want %d", len(got), got, c.found)
			}
		})
	}
}
