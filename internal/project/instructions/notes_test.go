package instructions

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// world is a home and, below it or not, a project with a folder to work in.
type world struct {
	t             *testing.T
	home, project string
}

func newWorld(t *testing.T) *world {
	w := &world{t, t.TempDir(), t.TempDir()}
	w.put(w.project, ".git/HEAD", "x")
	return w
}

func (w *world) put(dir, name, text string) {
	w.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(folder string, trusted bool) (string, []Warning) {
	return Read(Config{Folder: filepath.Join(w.project, folder), Trusted: trusted, Env: func(name string) string {
		return map[string]string{"HOME": w.home}[name]
	}})
}

// marks are the words N1, N2 … of a text in their order.
func marks(text string) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		if len(word) > 1 && word[0] == 'N' && word[1] >= '0' && word[1] <= '9' {
			out = append(out, word)
		}
	}
	return out
}

func warned(ws []Warning, path, text string) bool {
	return slices.ContainsFunc(ws, func(w Warning) bool { return strings.HasSuffix(w.Path, path) && strings.Contains(w.Text, text) })
}

func TestOrder(t *testing.T) {
	w := newWorld(t)
	w.put(w.home, ".config/drover/AGENTS.md", "N1")
	w.put(w.home, ".claude/CLAUDE.md", "N2")
	w.put(w.project, "AGENTS.md", "N3 \u202ehidden\u200b\r\nline")
	w.put(w.project, "CLAUDE.md", "N3 \u202ehidden\u200b\nline\n") // the same text
	w.put(w.project, "CLAUDE.local.md", "N4")
	w.put(w.project, "sub/AGENTS.md", "N5")
	w.put(w.project, "sub/deep/CLAUDE.md", "N6 @person @../../missing/x.md")
	w.put(w.project, "other/AGENTS.md", "N9")
	w.put(filepath.Dir(w.project), "AGENTS.md", "N9")
	got, warnings := w.read("sub/deep", false)
	if !slices.Equal(marks(got), []string{"N1", "N2", "N3", "N4", "N5", "N6"}) {
		t.Errorf("notes %s", got)
	}
	if !strings.Contains(got, "N3 <U+202E>hidden<U+200B>\nline\n") || !strings.Contains(got, "Contents of "+w.project+"/sub/AGENTS.md (of the project):\n\nN5\n") {
		t.Errorf("notes %s", got)
	}
	if len(warnings) != 1 || !warned(warnings, "sub/deep/CLAUDE.md", "@../../missing/x.md names no file") {
		t.Errorf("warnings %v", warnings)
	}
	if again, _ := w.read("sub/deep", false); again != got {
		t.Error("the same files give another text")
	}
	if text, warnings := newWorld(t).read("", false); text != "" || warnings != nil {
		t.Errorf("of nothing: %q, %v", text, warnings)
	}
}

// A repository inside of another does not get the notes of the outer one.
func TestNested(t *testing.T) {
	w := newWorld(t)
	w.put(w.project, "AGENTS.md", "N1")
	w.put(w.project, "inner/.git", "gitdir: elsewhere") // as a worktree or a submodule has it
	w.put(w.project, "inner/AGENTS.md", "N2")
	if got, _ := w.read("inner", false); !slices.Equal(marks(got), []string{"N2"}) {
		t.Errorf("notes %s", got)
	}
}

func TestImports(t *testing.T) {
	w := newWorld(t)
	w.put(w.project, "AGENTS.md", "N1 see @docs/a.md, and `@docs/code.md`\n```\n@docs/code.md\n```\nmail me@docs/code.md")
	w.put(w.project, "docs/a.md", "N2 @b.md @../AGENTS.md @/etc/hosts") // a circle, and out
	w.put(w.project, "docs/b.md", "N3 @c1.md")
	w.put(w.project, "docs/code.md", "N9")
	for i := 1; i < 6; i++ {
		w.put(w.project, fmt.Sprintf("docs/c%d.md", i), fmt.Sprintf("N%d @c%d.md", i+3, i+1))
	}
	got, warnings := w.read("", true)
	if !slices.Equal(marks(got), []string{"N1", "N2", "N3", "N4", "N5", "N6"}) {
		t.Errorf("notes %s", got)
	}
	if len(warnings) != 2 || !warned(warnings, "docs/a.md", "@/etc/hosts is not followed: it leads out") || !warned(warnings, "docs/c3.md", "more than 5 files import") {
		t.Errorf("warnings %v", warnings)
	}
	if !strings.Contains(got, "Contents of "+w.project+"/docs/b.md (imported by "+w.project+"/docs/a.md):") {
		t.Errorf("notes %s", got)
	}
}

// What a project's files import of the user's home needs trust; a link leads
// nowhere in any case.
func TestOutside(t *testing.T) {
	w := newWorld(t)
	w.put(w.home, "own.md", "N2")
	w.put(w.home, ".ssh/id", "N9")
	w.put(w.project, "AGENTS.md", "N1 @~/own.md @"+w.home+"/.ssh/id @../x @link.md")
	if err := os.Symlink(filepath.Join(w.home, ".ssh", "id"), filepath.Join(w.project, "link.md")); err != nil {
		t.Fatal(err)
	}
	got, warnings := w.read("", false)
	if !slices.Equal(marks(got), []string{"N1"}) || !warned(warnings, "AGENTS.md", "@~/own.md is not followed") || !warned(warnings, "AGENTS.md", "/.ssh/id is not followed") ||
		!warned(warnings, "link.md", "not read") {
		t.Errorf("notes %s\n%v", got, warnings)
	}
	w.put(w.project, "AGENTS.md", "N1 @~/own.md @link.md")
	if got, warnings = w.read("", true); !slices.Equal(marks(got), []string{"N1", "N2"}) {
		t.Errorf("trusted: %s\n%v", got, warnings)
	}
	w.put(w.project, "AGENTS.md", "")
	w.put(w.home, ".claude/CLAUDE.md", "N1 @~/own.md @/etc/hosts")
	if got, _ = w.read("", false); !slices.Equal(marks(got), []string{"N1", "N2"}) {
		t.Errorf("of the user: %s", got)
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.put(w.project, "AGENTS.md", "a"+strings.Repeat("ü", MaxFile/2)+"é tail")
	w.put(w.project, "CLAUDE.md", "a\x00b")
	if err := syscall.Mkfifo(filepath.Join(w.project, "CLAUDE.local.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, warnings := w.read("", false)
	if !strings.HasSuffix(got, "ü\n[… 9 more bytes of this file are left out]\n") || strings.Contains(got, "tail") || len(warnings) != 3 ||
		!warned(warnings, "AGENTS.md", "only the first") || !warned(warnings, "CLAUDE.md", "not a text") || !warned(warnings, "CLAUDE.local.md", "not a regular file") {
		t.Errorf("%q, %v", got[len(got)-100:], warnings)
	}
	w = newWorld(t)
	var refs strings.Builder
	for i := range 100 {
		fmt.Fprintf(&refs, "@f%d.md ", i)
		w.put(w.project, fmt.Sprintf("f%d.md", i), fmt.Sprintf("N%d ", i)+strings.Repeat("x", 30))
	}
	w.put(w.project, "AGENTS.md", refs.String())
	got, warnings = w.read("", false)
	if len(marks(got)) != MaxFiles-1 || len(warnings) != 1 {
		t.Errorf("%d files, %v", len(marks(got)), warnings)
	}
	for i := range 100 {
		w.put(w.project, fmt.Sprintf("f%d.md", i), fmt.Sprintf("N%d ", i)+strings.Repeat("x", 30000))
	}
	if got, warnings = w.read("", false); len(got) > MaxText+1000 || len(warnings) != 1 || !strings.Contains(warnings[0].Text, "all together") {
		t.Errorf("%d bytes, %v", len(got), warnings)
	}
}

func TestReferences(t *testing.T) {
	for text, want := range map[string][]string{
		"see @a.md, @b/c.md. (@d) @ @@e x@y": {"a.md", "b/c.md", "@e"},
		"`@a` @b `code @c` @d":               {"b", "d"},
		"~~~\n@a\n```\n@b\n~~~\n@c":          {"c"},
		"```go\n@a":                          nil,
	} {
		if got := imports(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
