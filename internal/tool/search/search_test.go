package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes files and returns their folder, without symbolic links.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	if out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
		t.Skipf("git %v: %v: %s", args, err, out)
	}
}

func call(t *testing.T, tool agent.Tool, in map[string]any) agent.Output {
	t.Helper()
	raw, _ := json.Marshal(in)
	out, err := tool.Call(t.Context(), agent.Call{Input: raw})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type args = map[string]any

func TestGlob(t *testing.T) {
	root := tree(t, map[string]string{"a.go": "", "sub/b.go": "", "sub/deep/c.ts": "", ".hidden/d.go": "", ".git/x.go": "",
		"out.log": ""})
	now := time.Now()
	for i, name := range []string{"sub/b.go", "a.go", ".hidden/d.go", "sub/deep/c.ts"} {
		at := now.Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(filepath.Join(root, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		in   args
		want string
	}{
		{"newest", args{"pattern": "**/*.go"}, "sub/b.go\na.go\n.hidden/d.go\n"},
		{"top", args{"pattern": "*.go"}, "a.go\n"},
		{"braces", args{"pattern": "sub/**/*.{go,ts}"}, "sub/b.go\nsub/deep/c.ts\n"},
		{"path", args{"pattern": "*.go", "path": "sub"}, "sub/b.go\n"},
		{"absolute", args{"pattern": root + "/sub/*.go"}, "sub/b.go\n"},
		{"exact", args{"pattern": "sub/b.go"}, "sub/b.go\n"},
		{"none", args{"pattern": "*.rs"}, "No files match. Files that git ignores are not looked at.\n"},
		{"nofolder", args{"pattern": "*", "path": "gone"}, "Glob: gone: there is no such file or folder"},
		{"outside", args{"pattern": "../**"}, "Glob: " + filepath.Dir(root) + " is outside the folders that may be used: " +
			root},
		{"broken", args{"pattern": "a{b"}, `Glob: field "pattern" is not a glob: a bracket or brace is not closed`},
		{"unknown", args{"pattern": "*", "cwd": "x"}, `Glob: unknown field "cwd"; the fields are path, pattern`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := call(t, New(confine.Area{Root: root})[0], c.in)
			if out.Text != c.want || out.IsError != strings.HasPrefix(c.want, "Glob:") {
				t.Errorf("text %q, want %q", out.Text, c.want)
			}
		})
	}
}

func TestMany(t *testing.T) {
	many := make(map[string]string)
	for i := range MaxFiles + 5 {
		many[fmt.Sprintf("f%04d", i)] = "x\n"
	}
	tools := newTools(confine.Area{Root: tree(t, many)}, "")
	out := call(t, tools[0], args{"pattern": "*"})
	if strings.Count(out.Text, "\n") != MaxFiles+1 || !strings.HasSuffix(out.Text,
		"(the newest 1000 of 1005 files; use a narrower pattern)\n") {
		t.Errorf("%d lines, the end %q", strings.Count(out.Text, "\n"), out.Text[len(out.Text)-80:])
	}
	out = call(t, tools[1], args{"pattern": "x"})
	if strings.Count(out.Text, "\n") != DefaultLines+1 || !out.Structured.(GrepResult).Truncated {
		t.Errorf("%d lines of Grep", strings.Count(out.Text, "\n"))
	}
}

func TestIgnored(t *testing.T) {
	root := tree(t, map[string]string{".gitignore": "dist/\n*.log\n", "a.txt": "needle\n", "dist/b.txt": "needle\n",
		"c.log": "needle\n", "new/d.txt": "needle\n"})
	git(t, root, "init", "-q")
	git(t, root, "add", "a.txt")
	for name, tools := range engines(t, root) {
		t.Run(name, func(t *testing.T) {
			if out := call(t, tools[1], args{"pattern": "needle"}); out.Text != "a.txt\nnew/d.txt\n" {
				t.Errorf("Grep %q", out.Text)
			}
			if out := call(t, tools[1], args{"pattern": "needle", "path": "dist"}); out.Text != "dist/b.txt\n" {
				t.Errorf("Grep in an ignored folder %q", out.Text)
			}
		})
	}
	if out := call(t, New(confine.Area{Root: root})[0], args{"pattern": "**/*.{txt,log}"}); strings.Contains(out.Text, "dist") ||
		strings.Contains(out.Text, "c.log") || !strings.Contains(out.Text, "new/d.txt") {
		t.Errorf("Glob %q", out.Text)
	}
}

// TestConfigured: a command that the repository names is not executed.
func TestConfigured(t *testing.T) {
	root := tree(t, map[string]string{"a.txt": "x\n"})
	git(t, root, "init", "-q")
	mark := filepath.Join(root, "executed")
	script := filepath.Join(root, "evil")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, root, "config", "core.fsmonitor", script)
	if out := call(t, New(confine.Area{Root: root})[0], args{"pattern": "*.txt"}); out.Text != "a.txt\n" {
		t.Errorf("text %q", out.Text)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a command from the repository was executed")
	}
}

// engines are the tools without and, where it is there, with ripgrep.
func engines(t *testing.T, root string) map[string][]agent.Tool {
	t.Helper()
	out := map[string][]agent.Tool{"scan": newTools(confine.Area{Root: root}, "")}
	if _, err := exec.LookPath("rg"); err == nil {
		out["ripgrep"] = New(confine.Area{Root: root})
	}
	return out
}

func TestGrep(t *testing.T) {
	root := tree(t, map[string]string{
		"a.go":       "package a\n\nfunc One() {}\n// two\nfunc Two() {}\n\n\n\nfunc Three() {}\n",
		"sub/b.go":   "package b\r\nfunc Bee() {}\r\n",
		"sub/c.txt":  "FUNC shout\n",
		"bin":        "func\x00",
		".git/hooks": "func x\n",
		"long.txt":   "needle" + strings.Repeat("x", 600) + "\n",
		"esc.txt":    "esc\x1b[2J\n",
	})
	for name, tools := range engines(t, root) {
		for _, c := range []struct {
			name string
			in   args
			want string
		}{
			{"files", args{"pattern": `func \w+\(`}, "a.go\nsub/b.go\n"},
			{"content", args{"pattern": `func T`, "output_mode": "content"}, "a.go:5:func Two() {}\na.go:9:func Three() {}\n"},
			{"bare", args{"pattern": `func Two`, "output_mode": "content", "-n": false}, "a.go:func Two() {}\n"},
			{"count", args{"pattern": `^func`, "output_mode": "count"}, "a.go:3\nsub/b.go:1\n"},
			{"nocase", args{"pattern": `^func s`, "-i": true}, "sub/c.txt\n"},
			{"around", args{"pattern": `func (One|Three)`, "output_mode": "content", "-C": 1},
				"a.go-2-\na.go:3:func One() {}\na.go-4-// two\n--\na.go-8-\na.go:9:func Three() {}\n"},
			{"after", args{"pattern": `func`, "output_mode": "content", "-A": 1, "path": "a.go"},
				"a.go:3:func One() {}\na.go-4-// two\na.go:5:func Two() {}\na.go-6-\n--\na.go:9:func Three() {}\n"},
			{"before", args{"pattern": `func Two`, "output_mode": "content", "-B": 1}, "a.go-4-// two\na.go:5:func Two() {}\n"},
			{"lineend", args{"pattern": `Bee\(\) \{\}$`, "output_mode": "content"}, "sub/b.go:2:func Bee() {}\n"},
			{"glob", args{"pattern": `func`, "-i": true, "glob": "*.txt"}, "sub/c.txt\n"},
			{"notglob", args{"pattern": `func`, "-i": true, "glob": "!*.go"}, "sub/c.txt\n"},
			{"pathglob", args{"pattern": `func`, "glob": "sub/*.go"}, "sub/b.go\n"},
			{"path", args{"pattern": `func`, "path": "sub"}, "sub/b.go\n"},
			{"multiline", args{"pattern": `One.*?Two`, "multiline": true, "output_mode": "content"},
				"a.go:3:func One() {}\na.go:4:// two\na.go:5:func Two() {}\n"},
			{"oneline", args{"pattern": `One.*?Two`}, "No matches. Binary files and files that git ignores are not searched.\n"},
			{"limit", args{"pattern": `func`, "output_mode": "content", "head_limit": 2},
				"a.go:3:func One() {}\na.go:5:func Two() {}\n(only the first 2 lines of the answer; narrow the search, or raise " +
					"head_limit)\n"},
			{"exactly", args{"pattern": `func`, "head_limit": 2}, "a.go\nsub/b.go\n"},
			{"long", args{"pattern": `needle`, "output_mode": "content"}, "long.txt:1:needle" + strings.Repeat("x", 494) +
				"… (106 more characters)\n"},
			{"escapes", args{"pattern": `esc`, "output_mode": "content"}, "esc.txt:1:esc<U+001B>[2J\n"},
			{"dash", args{"pattern": `-- nothing`}, "No matches. Binary files and files that git ignores are not searched.\n"},
			{"nofile", args{"pattern": `x`, "path": "gone"}, "Grep: gone: there is no such file or folder"},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				if out := call(t, tools[1], c.in); out.Text != c.want || out.IsError != strings.HasPrefix(c.want, "Grep:") {
					t.Errorf("text %q, want %q", out.Text, c.want)
				}
			})
		}
		if out := call(t, tools[1], args{"pattern": "("}); !out.IsError || strings.Contains(out.Text, "\n") ||
			!strings.Contains(out.Text, "regex") && !strings.Contains(out.Text, "regular expression") {
			t.Errorf("%s: bad pattern: %q", name, out.Text)
		}
	}
}

func TestGrepInput(t *testing.T) {
	root := tree(t, nil)
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		in   args
		want string
	}{
		{"mode", args{"pattern": "x", "output_mode": "lines"},
			`Grep: field "output_mode" must be content, files_with_matches or count, not "lines"`},
		{"context", args{"pattern": "x", "output_mode": "content", "-C": 101},
			`Grep: field "-C" must be from 0 to 100, not 101`},
		{"limit", args{"pattern": "x", "head_limit": 0}, `Grep: field "head_limit" must be from 1 to 10000, not 0`},
		{"glob", args{"pattern": "x", "glob": "[a"}, `Grep: field "glob" is not a glob: a bracket or brace is not closed`},
		{"unknown", args{"pattern": "x", "-z": true}, `Grep: unknown field "-z"`},
		{"outside", args{"pattern": "root", "path": "/etc/passwd"}, "outside the folders"},
		{"pipe", args{"pattern": "x", "path": "pipe"}, "it is neither a file nor a folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, tools := range engines(t, root) {
				if out := call(t, tools[1], c.in); !out.IsError || !strings.Contains(out.Text, c.want) {
					t.Errorf("%s: text %q, want %q", name, out.Text, c.want)
				}
			}
		})
	}
}

// TestRecorded reads what ripgrep prints, also where it is not installed.
func TestRecorded(t *testing.T) {
	bin := t.TempDir()
	script := `#!/bin/sh
printf '%s\n' "$@" > ` + bin + `/args
cat <<'X'
{"type":"begin","data":{"path":{"text":"./a.go"}}}
{"type":"context","data":{"path":{"text":"./a.go"},"lines":{"text":"before\n"},"line_number":1,"absolute_offset":0,"submatches":[]}}
{"type":"match","data":{"path":{"text":"./a.go"},"lines":{"bytes":"Z3L8bgo="},"line_number":2,"absolute_offset":7,"submatches":[]}}
{"type":"end","data":{"path":{"text":"./a.go"},"binary_offset":null,"stats":{}}}
{"type":"summary","data":{"stats":{}}}
X
`
	if err := os.WriteFile(filepath.Join(bin, "rg"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	tool := New(confine.Area{Root: tree(t, nil)})[1]
	out := call(t, tool, args{"pattern": "--pre=evil", "output_mode": "content", "-B": 1, "-i": true})
	if out.Text != "a.go-1-before\na.go:2:gr\ufffdn\n" {
		t.Errorf("text %q", out.Text)
	}
	given, _ := os.ReadFile(filepath.Join(bin, "args"))
	for _, want := range []string{"--no-config\n", "--ignore-case\n", "--before-context=1\n", "--regexp=--pre=evil\n"} {
		if !strings.Contains(string(given), want) {
			t.Errorf("arguments %q lack %q", given, want)
		}
	}
	if out := call(t, tool, args{"pattern": "x", "output_mode": "content", "head_limit": 1}); !strings.HasSuffix(out.Text,
		"raise head_limit)\n") {
		t.Errorf("limited: %q", out.Text)
	}
}

func TestEnded(t *testing.T) {
	gone := errors.New("turn interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for name, tools := range engines(t, tree(t, map[string]string{"a": "x\n"})) {
		for i, in := range []string{`{"pattern":"*"}`, `{"pattern":"x"}`} {
			if _, err := tools[i].Call(ctx, agent.Call{Input: json.RawMessage(in)}); !errors.Is(err, gone) {
				t.Errorf("%s %d: error %v", name, i, err)
			}
		}
	}
}

// A file that is larger than what is searched is left out by both engines.
func TestLargeFile(t *testing.T) {
	root := tree(t, map[string]string{"small": "needle\n", "large": "needle\n" + strings.Repeat("a line\n", maxFile/7)})
	for name, tools := range engines(t, root) {
		if out := call(t, tools[1], args{"pattern": "needle"}); !strings.Contains(out.Text, "small") || strings.Contains(out.Text, "large") {
			t.Errorf("%s: %s", name, out.Text)
		}
	}
}

func TestSpecs(t *testing.T) {
	for _, tool := range New(confine.Area{Root: "/"}) {
		s := tool.Spec()
		if !json.Valid(s.InputSchema) || !strings.HasSuffix(string(s.InputSchema), `"additionalProperties":false}`) ||
			strings.Contains(s.Description, "%!") {
			t.Errorf("%s: %s %s", s.Name, s.InputSchema, s.Description)
		}
		if p, ok := tool.(agent.Parallel); !ok || !p.Parallel() {
			t.Errorf("%s holds other calls up", s.Name)
		}
	}
}

// What a rule denies is not found, and the answer says that something lacks.
func TestMayRead(t *testing.T) {
	root := tree(t, map[string]string{"a/.env": "needle 1\nneedle 2\n", "b.txt": "needle\n", "c/.env": "needle\n"})
	may := func(path string) bool { return filepath.Base(path) != ".env" }
	engines := map[string][]agent.Tool{"scan": newTools(confine.Area{Root: root, MayRead: may}, "")}
	if _, err := exec.LookPath("rg"); err == nil {
		engines["ripgrep"] = New(confine.Area{Root: root, MayRead: may})
	}
	for name, tools := range engines {
		for _, c := range []struct {
			tool int
			in   args
			want string
		}{
			{0, args{"pattern": "**"}, "b.txt\n" + leftOut},
			{0, args{"pattern": "*.txt"}, "b.txt\n"},
			{1, args{"pattern": "needle", "output_mode": "content", "head_limit": 1}, "b.txt:1:needle\n" + leftOut},
			{1, args{"pattern": "needle", "output_mode": "count"}, "b.txt:1\n" + leftOut},
			{1, args{"pattern": "needle"}, "b.txt\n" + leftOut},
			{1, args{"pattern": "needle", "path": "a"},
				"No matches. Binary files and files that git ignores are not searched.\n" + leftOut},
			{1, args{"pattern": "needle", "glob": "*.txt"}, "b.txt\n"},
		} {
			if out := call(t, tools[c.tool], c.in); out.Text != c.want || out.IsError {
				t.Errorf("%s %v: %q, want %q", name, c.in, out.Text, c.want)
			}
		}
	}
}
