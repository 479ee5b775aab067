package drover_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// rooms says which of our packages a package may import; what is not here is
// denied. The picture is ARCHITECTURE.md, "Rooms": change both together. A name
// that ends in /* stands for every package below it.
var rooms = map[string][]string{
	"task":          {},
	"task/tasktest": {"task"},
	"agent":         {},

	"agent/agenttest": {"agent"},
	"subagent":        {"task", "agent"},

	"internal/builtin":        {"task", "subagent", "internal/driver/*"},
	"internal/driver/shell":   {"task", "internal/process", "internal/tty"},
	"internal/driver/mcptask": {"task", "internal/mcpconn"},

	"internal/mcpconn":         {"internal/process"},
	"internal/mcpconn/mcptest": {},
	"internal/mcpfile":         {"internal/home", "internal/mcpconn", "internal/regular"},
	"internal/tool/mcptool":    {"agent", "internal/excerpt", "internal/mcpconn"},
	"internal/driver/monitor":  {"task", "internal/excerpt", "internal/process", "internal/regular"},
	"internal/driver/dream":    {"task", "agent"},

	"internal/workflow":          {},
	"internal/driver/workflow":   {"task", "internal/workflow"},
	"internal/tool/workflowtool": {"task", "agent", "internal/excerpt", "internal/tool/strict"},

	"internal/driver/remote": {"task", "internal/excerpt", "internal/remote"},
	"internal/remote":        {"internal/excerpt", "internal/home", "internal/process"},
	"internal/remoteserver":  {"task", "internal/control", "internal/home", "internal/remote"},
	"internal/teleport":      {"task", "agent", "internal/archive", "internal/control", "internal/home", "internal/journal"},

	"internal/supervise": {"task"},
	"internal/journal":   {"task"},
	"internal/spool":     {"task"},
	"internal/stall":     {},
	"internal/below":     {},
	"internal/failpoint": {},
	"internal/mailbox":   {"task", "internal/excerpt"},
	"internal/process":   {},
	"internal/keeper":    {"internal/process"},
	"internal/tty":       {"internal/process"},

	"internal/regular":     {},
	"internal/frontmatter": {},
	"internal/catalog":     {"task", "subagent", "internal/frontmatter", "internal/home", "internal/regular"},
	"internal/skill":       {"internal/excerpt", "internal/frontmatter", "internal/regular"},
	"internal/notes":       {"internal/excerpt", "internal/regular"},
	"internal/trust":       {"internal/frontmatter", "internal/home", "internal/regular"},
	"internal/todo":        {},
	"internal/memory":      {"internal/excerpt", "internal/process"},
	"internal/usage":       {"agent", "internal/model/choose", "internal/model/known"},
	"internal/worktree":    {"task", "internal/excerpt", "internal/home", "internal/process", "internal/regular"},
	"internal/hook":        {"agent", "internal/driver/shell", "internal/excerpt", "internal/process"},

	"internal/excerpt":  {},
	"internal/home":     {"task"},
	"internal/settings": {},
	"internal/permit":   {"task", "agent"},

	"internal/model/limit":     {},
	"internal/model/wire":      {"agent", "internal/model/limit"},
	"internal/model/known":     {},
	"internal/model/anthropic": {"agent", "internal/model/known", "internal/model/limit", "internal/model/wire"},
	"internal/model/openai":    {"agent", "internal/model/limit", "internal/model/wire"},
	"internal/model/choose":    {"internal/model/known"},
	"internal/model/script":    {"agent"},
	"internal/model/provider":  {"agent", "internal/model/*"},
	"internal/model/modeltest": {"agent"},

	"internal/tool/strict":      {},
	"internal/tool/confine":     {},
	"internal/tool/files":       {"agent", "internal/excerpt", "internal/tool/confine", "internal/tool/strict"},
	"internal/tool/search":      {"agent", "internal/excerpt", "internal/tool/confine", "internal/tool/strict"},
	"internal/tool/shelltool":   {"task", "agent", "internal/excerpt", "internal/tool/strict"},
	"internal/tool/tasktools":   {"task", "agent", "internal/excerpt", "internal/tool/strict"},
	"internal/tool/todotools":   {"agent", "internal/excerpt", "internal/todo", "internal/tool/strict"},
	"internal/tool/monitortool": {"task", "agent", "internal/excerpt", "internal/tool/confine", "internal/tool/strict"},
	"internal/tool/skilltool":   {"agent", "internal/excerpt", "internal/skill", "internal/tool/strict"},
	"internal/tool/donetool":    {"agent", "internal/excerpt", "internal/tool/strict"},
	"internal/tool/webtool":     {"agent", "internal/excerpt", "internal/tool/strict"},
	"internal/tool/intenttool":  {"agent", "internal/excerpt", "internal/tool/strict"},
	"internal/tool/boardtool":   {"agent", "internal/excerpt", "internal/memory", "internal/tool/strict"},
	"internal/tool/asktool":     {"task", "agent", "internal/excerpt", "internal/tool/strict"},

	"internal/session": {"task", "agent", "subagent", "internal/archive", "internal/builtin", "internal/control", "internal/driver/*",
		"internal/excerpt", "internal/home", "internal/hook", "internal/journal", "internal/keeper", "internal/mailbox", "internal/model/choose",
		"internal/model/provider", "internal/permit", "internal/process", "internal/skill", "internal/spool", "internal/stall", "internal/supervise", "internal/todo",
		"internal/tool/*", "internal/usage", "internal/worktree", "internal/memory", "internal/regular", "internal/workflow", "internal/mcpconn", "internal/mcpfile", "internal/remote"},
	"internal/archive": {"task", "agent", "internal/control", "internal/home", "internal/journal", "internal/process", "internal/spool"},
	"internal/repair":  {"task", "internal/home", "internal/journal", "internal/permit", "internal/process", "internal/remote"},
	"internal/host":    {"task", "internal/archive", "internal/control", "internal/home", "internal/process"},
	"internal/control": {"task"},

	"internal/cli":       {"task", "internal/control", "internal/excerpt"},
	"internal/mcpserver": {"task", "internal/control", "internal/excerpt"},
	"internal/agentsdk":  {"task", "agent", "internal/control", "internal/excerpt"},

	// The three that wire. The root is a library: it has no face.
	"internal/assemble": {"task", "agent", "subagent", "internal/catalog", "internal/control", "internal/home", "internal/hook", "internal/host",
		"internal/keeper", "internal/model/choose", "internal/model/provider", "internal/notes", "internal/permit", "internal/session", "internal/settings",
		"internal/skill", "internal/todo", "internal/tool/mcptool", "internal/tool/webtool", "internal/trust", "internal/usage", "internal/worktree", "internal/memory", "internal/mcpconn", "internal/mcpfile", "internal/remote"},
	".":          {"task", "agent", "subagent", "internal/assemble", "internal/control", "internal/home", "internal/session", "internal/settings", "internal/trust"},
	"cmd/drover": {".", "task", "agent", "subagent", "internal/*"},
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
		slices.Concat(drivers, engine, []string{"internal/builtin", "internal/session"}), nil},
	{"engine", "the engine knows tasks, not what they do", engine,
		slices.Concat(drivers, []string{"agent", "internal/builtin", "internal/session", "internal/model/*", "internal/tool/*"}), nil},
	{"faces", "faces know control and task, not what is behind", faces,
		slices.Concat(drivers, engine, []string{".", "internal/archive", "internal/assemble", "internal/builtin", "internal/host", "internal/session"}), nil},
	{"conversation", "only the stream of -p shows what an agent does while it does it", faces, []string{"agent"}, []string{"internal/agentsdk"}},
	{"face", "no face knows another", faces, faces, nil},
	{"picking", "only cmd/drover picks a face", []string{".", "*"}, faces, []string{"cmd/drover"}},
	{"wiring", "nothing imports the wiring", []string{"*"}, []string{".", "cmd/*", "internal/assemble"}, []string{"cmd/drover"}},
	{"tools", "tools and models know the agent, not the session", []string{"internal/tool/*", "internal/model/*"},
		slices.Concat(engine, []string{"internal/session", "internal/control", "internal/permit"}), nil},
	{"listing", "only builtin lists the kinds, for those who wire and the session", []string{"*"}, []string{"internal/builtin"},
		[]string{"internal/session", "cmd/drover"}},
}

var (
	engine  = []string{"internal/supervise", "internal/journal", "internal/spool", "internal/mailbox", "internal/keeper"}
	drivers = []string{"internal/driver/*", "subagent"}
	faces   = []string{"internal/cli", "internal/mcpserver", "internal/agentsdk"}

	// Everybody above the bottom may import these: a thing of test builds, and the way to open a file.
	everywhere = []string{"internal/failpoint", "internal/below"}

	// For tests, ours and other people's; production code does without.
	forTests = []string{"agent/agenttest", "internal/model/modeltest", "internal/mcpconn/mcptest"}
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
	h := theHouse(t)
	for name, p := range h.folders {
		if len(p.prod) == 0 {
			continue
		}
		allowed, known := rooms[name]
		if !known {
			t.Errorf("package %s has no row in layers_test.go: say what it may import, and put it into ARCHITECTURE.md", name)
			continue
		}
		for _, s := range p.prod {
			for _, path := range imports(s.file) {
				to, own := ours(path)
				if own && matches(everywhere, to) && !matches([]string{"task", "agent"}, name) {
					continue
				}
				if own && (!matches(allowed, to) || slices.Contains(forTests, to)) {
					t.Errorf("%s: %s may not import %s", s.path, name, to)
				}
			}
		}
	}
}

// A row for a package that is not there would allow imports that nobody meant.
func TestRooms(t *testing.T) {
	h := theHouse(t)
	for name, allowed := range rooms {
		if p := h.folders[name]; p == nil || len(p.prod) == 0 {
			t.Errorf("layers_test.go has a row for %s, and there is no such package", name)
		}
		for _, a := range allowed {
			if !slices.ContainsFunc(sortedRooms(), func(r string) bool { return matches([]string{a}, r) }) {
				t.Errorf("%s may import %s, which has no row itself", name, a)
			}
		}
	}
}

func TestRules(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, from := range sortedRooms() {
				if !matches(r.from, from) || matches(r.but, from) {
					continue
				}
				for _, to := range sortedRooms() {
					if from != to && matches(rooms[from], to) && matches(r.to, to) {
						t.Errorf("the row of %s allows %s, but %s", from, to, r.says)
					}
				}
			}
		})
	}
}

func sortedRooms() []string {
	var out []string
	for name := range rooms {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// The words are usable from anywhere only while they drag nothing along.
func TestTaskStandardOnly(t *testing.T) {
	p := theHouse(t).folders["task"]
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
	for _, s := range theHouse(t).folders["task"].prod {
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
	if len(out) != 8 {
		t.Fatalf("package task names %d kinds, want 8: %v", len(out), out)
	}
	return out
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// A kind that the engine treats apart would have to be known there, for ever.
// The mailbox is not held to it: what a notice says depends on the kind.
func TestEngineNamesNoKind(t *testing.T) {
	h := theHouse(t)
	kinds := kindNames(t)
	for _, name := range []string{"internal/supervise", "internal/journal", "internal/spool"} {
		p := h.folders[name]
		if p == nil {
			t.Errorf("there is no package %s", name)
			continue
		}
		for _, s := range p.prod {
			ast.Inspect(s.file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if ok && isIdent(sel.X, "task") && slices.Contains(kinds, sel.Sel.Name) {
					t.Errorf("%s: the engine names the kind %s", h.where(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// Names that say nothing gather what has no place.
func TestPackageNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "manager", "base", "shared", "types", "interfaces", "misc", "core"}
	for name := range theHouse(t).folders {
		if slices.Contains(vague, path.Base(name)) {
			t.Errorf("package %s is not named for what it gives", name)
		}
	}
}
