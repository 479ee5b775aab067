package rules

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/task"
)

const root = "../.."

// readRooms reads imports.txt: for each room, and for each package with a line of its
// own, the rooms and packages that it may import beside its own room.
func readRooms() (map[string][]string, error) {
	text, err := os.ReadFile("imports.txt")
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, allowed, ok := strings.Cut(line, ":")
		if _, twice := out[name]; !ok || twice {
			return nil, fmt.Errorf("imports.txt:%d: want one line of the form \"name: names\" for each name", n+1)
		}
		out[name] = strings.Fields(allowed)
	}
	return out, nil
}

var openRooms = sync.OnceValues(readRooms) //rules:constant a memoised function

func roomTable(t *testing.T) map[string][]string {
	t.Helper()
	table, err := openRooms()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// short is the name of a folder in imports.txt, and room its room there.
func short(folder string) (name, room string) {
	if folder == "." {
		return "drover", "drover"
	}
	name = strings.TrimPrefix(folder, "internal/")
	room, _, _ = strings.Cut(name, "/")
	return name, room
}

// A rule is a sentence about imports that a line of imports.txt cannot widen.
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
		slices.Concat(drivers, engine, []string{".", "internal/api/archive", "internal/assemble*", "internal/driver/builtin", "internal/api/host", "internal/api/socket",
			"internal/session*"}), nil},
	{"conversation", "only the stream of -p shows what an agent does while it does it", faces, []string{"agent"}, []string{"internal/frontend/agentsdk"}},
	{"face", "no face knows another", faces, faces, nil},
	{"groups", "no group of commands knows another", append(commandGroups, "internal/frontend/cli/console"), commandGroups, nil},
	{"picking", "only cmd/drover chooses a frontend", []string{".", "*"}, faces, []string{"cmd/drover", "internal/frontend/cli*"}},
	{"hub", "only cmd/drover-hub has the server of NATS", []string{".", "*"}, []string{"internal/fleet/hub"}, []string{"cmd/drover-hub"}},
	{"wiring", "nothing imports the wiring", []string{"*"}, []string{".", "cmd/*", "internal/assemble*"}, []string{"cmd/drover", "internal/assemble/demo", "agents"}},
	{"tools", "tools and models know the agent, not the session", []string{"internal/tool/*", "internal/model/*"},
		slices.Concat(engine, []string{"internal/session*", "internal/api/control", "internal/policy*"}), nil},
	{"listing", "only builtin lists the kinds, for those who wire and the session", []string{"*"}, []string{"internal/driver/builtin"},
		[]string{"internal/session", "internal/session/agents", "internal/session/dreams", "internal/api/ended", "cmd/drover"}},
}

var (
	engine = []string{
		"internal/engine/lifecycle", "internal/engine/supervise", "internal/engine/journal", "internal/engine/spool", "internal/engine/mailbox",
		"internal/engine/keeper",
	}
	drivers = []string{"internal/driver/*", "subagent"}
	faces   = []string{"internal/frontend/cli*", "internal/frontend/mcpserver", "internal/frontend/agentsdk"}
	// commandGroups are the packages of commands, which a command line puts together.
	commandGroups = []string{"internal/frontend/cli/run", "internal/frontend/cli/watch", "internal/frontend/cli/steer", "internal/frontend/cli/agents",
		"internal/frontend/cli/machines", "internal/frontend/cli/project", "internal/frontend/cli/setup", "internal/frontend/cli/attention", "internal/frontend/cli/prompt"}
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
	h, rooms := theTree(t), roomTable(t)
	used := map[string]bool{}
	for folder, p := range h.folders {
		name, room := short(folder)
		line := name
		if _, own := rooms[name]; !own {
			line = room
		}
		allowed, known := rooms[line]
		if used[line] = true; !known && len(p.prod) > 0 {
			t.Errorf("package %s: imports.txt has no line for its room %s", name, room)
			continue
		}
		for _, s := range p.prod {
			for _, path := range imports(s.file) {
				folder, own := ours(path)
				if !own {
					continue
				}
				to, toRoom := short(folder)
				if toRoom != room && !slices.Contains(allowed, "*") && !slices.Contains(allowed, toRoom) && !slices.Contains(allowed, to) {
					t.Errorf("%s: %s may not import %s", s.path, name, to)
				}
				if toRoom == "test" && room != "test" {
					t.Errorf("%s: the product imports %s, which is for tests", s.path, to)
				}
			}
		}
	}
	for line := range rooms {
		if !used[line] {
			t.Errorf("imports.txt has a line for %s, which holds no package", line)
		}
	}
}

// face is the frontend that a folder is a part of.
func face(folder string) string {
	words := strings.Split(folder, "/")
	return strings.Join(words[:min(len(words), 3)], "/")
}

// Each sentence holds for every import of the product.
func TestRules(t *testing.T) {
	h := theTree(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for from, p := range h.folders {
				if !matches(r.from, from) || matches(r.but, from) || matches([]string{"test/*"}, from) {
					continue
				}
				for _, s := range p.prod {
					for _, path := range imports(s.file) {
						to, own := ours(path)
						below := strings.HasPrefix(to, from+"/") // a part of the package itself
						same := r.name == "face" && face(from) == face(to)
						if own && !below && !same && matches(r.to, to) {
							t.Errorf("%s imports %s, but %s", s.path, to, r.says)
						}
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
var namesKinds = []string{"task", "test/tasktest", "subagent", "internal/driver/*", "internal/frontend/agentsdk", "internal/frontend/mcpserver"}

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
