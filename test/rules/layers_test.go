package rules

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/task"
)

const root = "../.."

// readPackages reads the tables of ARCHITECTURE.md, "Packages": for each package the
// packages of ours that it may import. A pattern that ends in * stands for every
// package below it.
func readPackages() (map[string][]string, error) {
	page, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		return nil, err
	}
	_, page, found := bytes.Cut(page, []byte("\n## Packages\n"))
	if !found {
		return nil, errors.New("ARCHITECTURE.md has no section Packages")
	}
	page, _, _ = bytes.Cut(page, []byte("\n## "))
	out := map[string][]string{}
	for line := range strings.SplitSeq(string(page), "\n") {
		row := packageRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		name := fullName(row[1])
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("ARCHITECTURE.md has two rows for %s", row[1])
		}
		out[name] = []string{}
		if row[2] == "–" {
			continue
		}
		for allowed := range strings.SplitSeq(row[2], ", ") {
			out[name] = append(out[name], fullName(allowed))
		}
	}
	if len(out) < 50 {
		return nil, fmt.Errorf("ARCHITECTURE.md has rows for %d packages only", len(out))
	}
	return out, nil
}

var packageRow = regexp.MustCompile("^\\| `([a-z0-9/]+)` \\| .* \\| ([^|]+) \\|$")

// fullName turns a name of the tables into a folder of the module.
func fullName(short string) string {
	switch first, _, _ := strings.Cut(short, "/"); {
	case short == "drover":
		return "."
	case short == "everything":
		return "*"
	case slices.Contains([]string{"task", "agent", "subagent", "cmd", "test"}, first):
		return short
	default:
		return "internal/" + short
	}
}

var openPackages = sync.OnceValues(readPackages) //rules:constant a memoised function

func packageTable(t *testing.T) map[string][]string {
	t.Helper()
	table, err := openPackages()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// A rule is a sentence that every row of the table must keep, so that a row
// cannot be widened past it. The patterns are those of rooms.
var rules = []struct {
	name, says string
	from, to   []string
	but        []string // may import it all the same
}{
	{"bottom", "task and agent import nothing of ours", []string{"task", "agent"}, []string{".", "*"}, nil},
	{"drivers", "a driver never imports another driver or the engine", drivers,
		slices.Concat(drivers, engine, []string{"internal/driver/builtin", "internal/session*"}), []string{"internal/driver/builtin"}},
	{"engine", "the engine knows tasks, not what they do", engine,
		slices.Concat(drivers, []string{"agent", "internal/driver/builtin", "internal/session*", "internal/model/*", "internal/tool/*"}), nil},
	{"faces", "faces know control and task, not what is behind", faces,
		slices.Concat(drivers, engine, []string{".", "internal/api/archive", "internal/assemble*", "internal/driver/builtin", "internal/api/host", "internal/session*"}), nil},
	{"conversation", "only the stream of -p shows what an agent does while it does it", faces, []string{"agent"}, []string{"internal/frontend/agentsdk"}},
	{"face", "no face knows another", faces, faces, nil},
	{"picking", "only cmd/drover chooses a frontend", []string{".", "*"}, faces, []string{"cmd/drover", "internal/frontend/cli/manual"}},
	{"wiring", "nothing imports the wiring", []string{"*"}, []string{".", "cmd/*", "internal/assemble*"}, []string{"cmd/drover", "internal/assemble/demo"}},
	{"tools", "tools and models know the agent, not the session", []string{"internal/tool/*", "internal/model/*"},
		slices.Concat(engine, []string{"internal/session*", "internal/api/control", "internal/agentenv/permission"}), nil},
	{"listing", "only builtin lists the kinds, for those who wire and the session", []string{"*"}, []string{"internal/driver/builtin"},
		[]string{"internal/session", "internal/session/agents", "internal/session/work", "internal/session/ended", "cmd/drover"}},
}

var (
	engine = []string{
		"internal/engine/lifecycle", "internal/engine/supervise", "internal/engine/journal", "internal/engine/spool", "internal/engine/mailbox",
		"internal/engine/keeper",
	}
	drivers = []string{"internal/driver/*", "subagent"}
	faces   = []string{"internal/frontend/cli", "internal/frontend/mcpserver", "internal/frontend/agentsdk"}

	// Everybody above the bottom may import these: a thing of test builds, and the way to open a file.
	everywhere = []string{"internal/platform/failpoint", "internal/platform/saferoot"}

	// For tests, ours and other people's; production code does without.
	forTests = []string{"agent/agenttest", "internal/model/modeltest", "internal/agentenv/mcpclient/mcptest", "internal/platform/racetest", "internal/platform/waittest", "test/harness"}
)

// matches reports whether the patterns cover a folder. "*" covers every folder
// but the root.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if below, ok := strings.CutSuffix(p, "*"); ok {
			return name != "." && strings.HasPrefix(name, below)
		}
		return p == name
	})
}

func TestLayers(t *testing.T) {
	h, packages := theTree(t), packageTable(t)
	for name, p := range h.folders {
		if len(p.prod) == 0 {
			continue
		}
		allowed, known := packages[name]
		if !known {
			t.Errorf("package %s has no row in ARCHITECTURE.md: say what it owns and what it may import", name)
			continue
		}
		for _, s := range p.prod {
			for _, path := range imports(s.file) {
				to, own := ours(path)
				if own && matches(everywhere, to) && !matches([]string{"task", "agent"}, name) {
					continue
				}
				if own && (!matches(allowed, to) || slices.Contains(forTests, to) && !slices.Contains(forTests, name)) {
					t.Errorf("%s: %s may not import %s", s.path, name, to)
				}
			}
		}
	}
}

// A row for a package that is not there would allow imports that nobody meant.
func TestPackageTable(t *testing.T) {
	h, packages := theTree(t), packageTable(t)
	for name, allowed := range packages {
		if p := h.folders[name]; p == nil || len(p.prod) == 0 {
			t.Errorf("ARCHITECTURE.md has a row for %s, and there is no such package", name)
		}
		for _, a := range allowed {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(packages)), func(r string) bool { return matches([]string{a}, r) }) {
				t.Errorf("%s may import %s, which has no row itself", name, a)
			}
		}
	}
}

func TestRules(t *testing.T) {
	packages := packageTable(t)
	sorted := slices.Sorted(maps.Keys(packages))
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, from := range sorted {
				if !matches(r.from, from) || matches(r.but, from) {
					continue
				}
				for _, to := range sorted {
					below := strings.HasPrefix(to, from+"/") // a part of the package itself
					if from != to && !below && matches(packages[from], to) && matches(r.to, to) {
						t.Errorf("the row of %s allows %s, but %s", from, to, r.says)
					}
				}
			}
		})
	}
}

// The words are usable from anywhere only while they drag nothing along.
func TestTaskStandardOnly(t *testing.T) {
	p := theTree(t).folders["task"]
	for _, s := range p.prod {
		for _, path := range imports(s.file) {
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s: package task has the standard library only", s.path, path)
			}
		}
	}
}

// kindNames are the constants of package task that name a kind.
func kindNames(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, s := range theTree(t).folders["task"].prod {
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && isIdent(v.Type, "Kind") {
					for _, n := range v.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	if len(out) != len(task.Kinds()) {
		t.Fatalf("package task names %d kinds, want %d: %v", len(out), len(task.Kinds()), out)
	}
	return out
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// namesKinds are the packages that may name a kind: who implements it, who lists it,
// and who maps kinds to the words of another protocol.
var namesKinds = []string{"task", "task/tasktest", "subagent", "internal/driver/*", "internal/frontend/agentsdk", "internal/frontend/mcpserver"}

// Who decides by a kind must be found and changed for every further one. Everybody else
// decides by [task.Traits].
func TestKindsAreData(t *testing.T) {
	h := theTree(t)
	kinds := kindNames(t)
	for name, p := range h.folders {
		if matches(namesKinds, name) {
			continue
		}
		for _, s := range p.prod {
			ast.Inspect(s.file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if isIdent(n.X, "task") && slices.Contains(kinds, n.Sel.Name) {
						t.Errorf("%s: names the kind %s: decide by task.Traits", h.where(n.Pos()), n.Sel.Name)
					}
				case *ast.BasicLit:
					if word := strings.Trim(n.Value, "\"`"); word != string(task.Dream) && task.Kind(word).BuiltIn() {
						t.Errorf("%s: names the kind %s: decide by task.Traits", h.where(n.Pos()), word)
					}
				}
				return true
			})
		}
	}
}

// Names that say nothing gather what has no place.
func TestPackageNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "manager", "base", "shared", "types", "interfaces", "misc", "core"}
	for name := range theTree(t).folders {
		if slices.Contains(vague, path.Base(name)) {
			t.Errorf("package %s is not named for what it gives", name)
		}
	}
}
