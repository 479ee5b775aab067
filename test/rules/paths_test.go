package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"testing"
)

// bare says which files may open, make, move or remove something by its whole path,
// and why no folder that is swapped for a link can lead them astray. Everybody else
// goes through internal/platform/saferoot, or an os.Root. Calls that only tell of a path, as
// os.Stat does, are not held to it.
var bare = []struct {
	why   string
	files []string
}{
	{"this is the way itself, and the folders that are trusted", []string{"internal/platform/saferoot/*.go", "internal/platform/home/safe.go", "internal/platform/home/folder.go"}},
	{"paths that the user names, in which his links count", []string{"cmd/drover/export.go", "cmd/drover/overssh.go", "internal/frontend/cli/agents/mcp.go", "internal/frontend/cli/prompt/foreign.go", "internal/frontend/cli/prompt/record.go", "internal/frontend/cli/project/teleport.go",
		"internal/project/catalog/plugin.go", "internal/frontend/cli/console/print.go", "internal/frontend/cli/manual/main.go", "internal/frontend/cli/run/run.go", "internal/mcp/mcpconfig/edit.go", "internal/model/script/load.go", "internal/project/settings/file.go", "internal/platform/userservice/userservice.go", "internal/frontend/telemetry/sender.go"}},
	{"paths that users of the library name", []string{"agent/fork.go", "agent/transcript_unix.go"}},
	{"a new folder or file for temporary things, which is this process's own", []string{"internal/session/sandboxes/trial.go", "internal/session/sandboxes/caches.go", "internal/fleet/folder/temp.go", "internal/git/worktree/change.go", "internal/frontend/cli/run/compete.go", "internal/assemble/demo/*.go", "drover.go", "internal/api/teleport/archive.go", "internal/api/teleport/export.go"}},
	{"/proc, /sys, /dev", []string{"internal/engine/sandbox/proc_linux.go", "internal/engine/sandbox/broker_linux.go", "internal/engine/sandbox/dev_linux.go", "cmd/drover/host.go", "internal/engine/process/*_linux.go", "internal/engine/process/memory.go", "internal/fleet/worker/load_linux.go", "internal/engine/process/start.go", "internal/engine/tty/open_*.go"}},
	{"SQLite takes paths; ours.go looks at what is there before", []string{"internal/engine/journal/journal.go"}},
	{"sockets have paths only; home checks their folder", []string{"internal/api/socket/socket.go"}},
	{"git takes paths, and these are its files", []string{"internal/git/merge/land.go", "internal/git/merge/merge.go", "internal/git/worktree/store.go", "internal/fleet/folder/unpack.go"}},
	{"a path is judged as a command would follow it", []string{"internal/policy/git.go", "internal/policy/path.go", "internal/policy/protect.go", "internal/session/sandboxes/paths.go"}},
	{"what is found is not opened, but protected or named", []string{"internal/session/sandboxes/nested.go", "internal/session/sandboxes/obeyed.go", "internal/session/sandboxes/git.go"}},
	{"mounts are made by paths", []string{"internal/engine/sandbox/mounts_linux.go"}},
	{"support of tests", []string{"test/agenttest/*.go", "test/tasktest/*.go", "test/harness/*.go"}},
}

// bareCalls are the functions, by package.
var bareCalls = map[string][]string{
	"os": {"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "ReadDir", "DirFS", "CopyFS", "Remove", "RemoveAll", "Rename",
		"Mkdir", "MkdirAll", "MkdirTemp", "Link", "Symlink", "Readlink", "Chmod", "Chown", "Lchown", "Chtimes", "Truncate"},
	"unix":    {"Open", "Rename", "Unlink", "Rmdir", "Mkdir", "Mkfifo", "Mknod", "Link", "Symlink", "Readlink", "Chmod", "Chown", "Lchown", "Truncate"},
	"syscall": {"Open", "Rename", "Unlink", "Rmdir", "Mkdir", "Mkfifo", "Mknod", "Link", "Symlink", "Readlink", "Chmod", "Chown", "Lchown", "Truncate"},
	"ioutil":  {"ReadFile", "WriteFile", "ReadDir", "TempFile", "TempDir"},
}

// A folder that is swapped for a link between a check and a call must not lead out
// of where it was.
func TestBarePaths(t *testing.T) {
	h := theTree(t)
	used := map[string]bool{}
	for _, p := range h.folders {
		for _, s := range p.prod {
			for _, call := range bareIn(s.file) {
				i, pattern := excuseOf(s.path)
				if i < 0 {
					t.Errorf("%s: %s goes by a whole path: use internal/platform/saferoot or an os.Root, or say in paths_test.go why not", h.where(call.Pos()), callName(call))
				}
				used[pattern] = true
			}
		}
	}
	for _, row := range bare {
		for _, pattern := range row.files {
			if !used[pattern] {
				t.Errorf("paths_test.go excuses %s, which needs it no more", pattern)
			}
		}
	}
}

// excuseOf is the row of a file and its pattern there, or -1.
func excuseOf(file string) (int, string) {
	for i, row := range bare {
		for _, pattern := range row.files {
			if ok, err := path.Match(pattern, file); ok && err == nil {
				return i, pattern
			}
		}
	}
	return -1, ""
}

// bareIn finds the functions also where they are not called at once.
func bareIn(f *ast.File) []*ast.SelectorExpr {
	var out []*ast.SelectorExpr
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(bareCalls[x.Name], sel.Sel.Name) {
			out = append(out, sel)
		}
		return true
	})
	return out
}

func callName(sel *ast.SelectorExpr) string { return sel.X.(*ast.Ident).Name + "." + sel.Sel.Name }

func TestBareIn(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func f() {
	os.Open("a")
	defer os.Remove("a")
	g(os.RemoveAll)
	unix.Open("a", 0, 0)
	root.Open("a")
	os.Stat("a")
	os.OpenRoot("a")
	f.Remove("a")
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, call := range bareIn(f) {
		got = append(got, callName(call))
	}
	if want := []string{"os.Open", "os.Remove", "os.RemoveAll", "unix.Open"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
