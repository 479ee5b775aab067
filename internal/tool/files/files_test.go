package files

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t     *testing.T
	root  string
	tools []agent.Tool
}

func open(t *testing.T, c confine.Area, readDirs ...string) *bench {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.Root = root
	return &bench{t: t, root: root, tools: New(c, readDirs...)}
}

func (b *bench) call(tool int, in map[string]any) agent.Output {
	b.t.Helper()
	raw, _ := json.Marshal(in)
	out, err := b.tools[tool].Call(b.t.Context(), agent.Call{Input: raw})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) read(path string) agent.Output { return b.call(0, map[string]any{"file_path": path}) }

func (b *bench) write(path, content string) agent.Output {
	return b.call(1, map[string]any{"file_path": path, "content": content})
}

func (b *bench) edit(path, from, to string, all bool) agent.Output {
	return b.call(2, map[string]any{"file_path": path, "old_string": from, "new_string": to, "replace_all": all})
}

func (b *bench) put(path, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.root, path), []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) has(path, content string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.root, path))
	if err != nil || string(got) != content {
		b.t.Errorf("%s holds %.80q (%v), want %.80q", path, got, err, content)
	}
}

func (b *bench) refused(out agent.Output, want string) {
	b.t.Helper()
	if !out.IsError || !strings.Contains(out.Text, want) || strings.Contains(out.Text, "\n") {
		b.t.Errorf("answer %.200q (error %v), want %q", out.Text, out.IsError, want)
	}
}

func TestRead(t *testing.T) {
	b := open(t, confine.Area{})
	for _, c := range []struct{ name, content, want string }{
		{"lines", "one\ntwo\n", "     1\tone\n     2\ttwo\n"},
		{"noend", "one\ntwo", "     1\tone\n     2\ttwo\n"},
		{"crlf", "one\r\ntwo\r\n", "     1\tone\n     2\ttwo\n"},
		{"bom", "\ufeffone\n", "     1\tone\n"},
		{"empty", "", "(the file is empty)"},
		{"hidden", "a\x1b[2J\u202eb\rc\n", "     1\ta<U+001B>[2J<U+202E>b<U+000D>c\n"},
		{"latin", "gr\xfcn\n", "     1\tgr\ufffdn\n"},
		{"long", strings.Repeat("ü", 2003) + "\n", "     1\t" + strings.Repeat("ü", 2000) + "… (3 more characters)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.put("f", c.content)
			if out := b.read("f"); out.Text != c.want || out.IsError {
				t.Errorf("text %.200q, want %.200q", out.Text, c.want)
			}
		})
	}
}

func TestPaging(t *testing.T) {
	b := open(t, confine.Area{})
	var all strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&all, "line %d\n", i+1)
	}
	b.put("f", all.String())
	if out := b.read("f"); !strings.HasSuffix(out.Text,
		"  2000\tline 2000\n(lines 1 to 2000 of 2500; go on with offset 2001)\n") {
		t.Errorf("first page ends %q", out.Text[len(out.Text)-80:])
	}
	if out := b.call(0, map[string]any{"file_path": "f", "offset": 2499,
		"limit": 5}); out.Text != "  2499\tline 2499\n  2500\tline 2500\n" {
		t.Errorf("last page %q", out.Text)
	}
	b.refused(b.call(0, map[string]any{"file_path": "f", "offset": 2501}),
		"offset 2501 is past the end: the file has 2500 lines")
	b.refused(b.call(0, map[string]any{"file_path": "f", "offset": 0, "limit": 1}),
		`field "offset" must be from 1 on, not 0`)
	b.refused(b.call(0, map[string]any{"file_path": "f", "offset": 1, "limit": 0}),
		`field "limit" must be from 1 on, not 0`)
	if out := b.call(0, map[string]any{"file_path": "f", "offset": 2500,
		"limit": math.MaxInt}); out.Text != "  2500\tline 2500\n" {
		t.Errorf("the largest limit gives %q", out.Text)
	}

	b.put("wide", strings.Repeat(strings.Repeat("x", 1900)+"\n", 1000))
	out := b.read("wide")
	if len(out.Text) > maxShown+100 || !strings.Contains(out.Text, "of 1000; go on with offset ") {
		t.Errorf("%d bytes in one answer", len(out.Text))
	}
}

func TestUnreadable(t *testing.T) {
	b := open(t, confine.Area{})
	if err := syscall.Mkfifo(filepath.Join(b.root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.put("bin", "ELF\x00\x01")
	if err := os.Symlink("/etc/passwd", filepath.Join(b.root, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		".": "it is a folder; use Glob to list files", "gone": "Read: gone: there is no such file",
		"pipe": "it is a named pipe",
		"bin":  "it is a binary file of 5 bytes", "/etc/passwd": "outside the folders", "link": "outside the folders",
		"bin/x": "not a directory",
	} {
		b.refused(b.read(path), want)
	}
	b.refused(b.call(0, map[string]any{"path": "f"}),
		`Read: unknown field "path"; the fields are file_path, limit, offset`)
	everywhere := New(confine.Area{Root: b.root, Outside: func(string, string) bool { return true }})[0]
	out, err := everywhere.Call(t.Context(), agent.Call{Input: json.RawMessage(`{"file_path":"/dev/zero"}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.refused(out, "it is a device")
}

func TestWrite(t *testing.T) {
	b := open(t, confine.Area{})
	if out := b.write("a/b/new", "one\n"); out.Text != "Created "+b.root+"/a/b/new (4 bytes)" || out.IsError {
		t.Errorf("text %q", out.Text)
	}
	b.has("a/b/new", "one\n")
	out := b.write("a/b/new", "two\n") // what it wrote itself it knows
	if res := out.Structured.(WriteResult); out.IsError || res.Type != "update" ||
		!strings.Contains(res.Diff, "-one\n+two\n") {
		t.Errorf("second write %+v", out)
	}

	b.put("old", "x")
	b.refused(b.write("old", "y"), "you have not read this file; read it first")
	b.read("old")
	b.put("old", "z") // the same size, and perhaps the same time
	b.refused(b.write("old", "y"), "the file has changed since you read it; read it again")
	b.has("old", "z")

	b.read("old")
	if err := os.Chmod(filepath.Join(b.root, "old"), 0o640|0o111); err != nil {
		t.Fatal(err)
	}
	if out := b.write("old", "y"); out.IsError {
		t.Errorf("write after touching the mode: %q", out.Text)
	}
	if info, _ := os.Stat(filepath.Join(b.root, "old")); info.Mode().Perm() != 0o751 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	if err := os.Chmod(filepath.Join(b.root, "old"), 0o444); err != nil {
		t.Fatal(err)
	}
	b.refused(b.write("old", "n"), "the file is read-only")
	b.refused(b.write(".", "n"), "it is a folder")
	if left, _ := filepath.Glob(filepath.Join(b.root, ".drover-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEdit(t *testing.T) {
	for _, c := range []struct {
		name, was, from, to string
		all                 bool
		is, text            string
	}{
		{"once", "a\nb\nc\n", "b", "B", false, "a\nB\nc\n", "1 replacement at line 2\n     1\ta\n     2\tB\n     3\tc"},
		{"all", "x\nx\n", "x", "y", true, "y\ny\n", "2 replacements, the first at line 1"},
		{"delete", "a\nb\n", "b\n", "", false, "a\n", "1 replacement at line 2"},
		{"everything", "a", "a", "", false, "", "1 replacement at line 1"},
		{"crlf", "a\r\nb\r\nc\r\n", "a\nb", "a\nB", false, "a\r\nB\r\nc\r\n", "1 replacement at line 1"},
		{"blanks", "\n\nx\n", "x", "y", false, "\n\ny\n", "1 replacement at line 3\n     1\t\n     2\t\n     3\ty"},
		{"bytes", "gr\xfcn x", "x", "y", false, "gr\xfcn y", "1 replacement"},
		{"several", "x x", "x", "y", false, "", "old_string is in the file 2 times"},
		{"overlap", "aaa", "aa", "b", false, "", "old_string is in the file 2 times"},
		{"absent", "x", "q", "y", false, "", "old_string is not in the file"},
		{"shown", "x\u200b", "x<U+200B>", "y", false, "", "must be given as themselves"},
		{"same", "x", "x", "x", false, "", `fields "old_string" and "new_string" are the same`},
		{"empty", "x", "", "y", false, "", `field "old_string" is empty; use Write`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, confine.Area{})
			b.put("f", c.was)
			b.read("f")
			out := b.edit("f", c.from, c.to, c.all)
			if c.is == "" && c.name != "everything" {
				b.refused(out, c.text)
				b.has("f", c.was)
				return
			}
			if out.IsError || !strings.Contains(out.Text, c.text) {
				t.Errorf("text %q, want %q", out.Text, c.text)
			}
			b.has("f", c.is)
			if again := b.edit("f", c.from+"?", "n", false); strings.Contains(again.Text, "changed since") {
				t.Error("its own edit counts as a change")
			}
		})
	}
}

func TestStale(t *testing.T) {
	b := open(t, confine.Area{})
	b.put("f", "x")
	b.refused(b.edit("f", "x", "y", false), "you have not read this file")
	b.read("f")
	other := New(confine.Area{Root: b.root})
	out, err := other[2].Call(t.Context(),
		agent.Call{Input: json.RawMessage(`{"file_path":"f","old_string":"x","new_string":"y"}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.refused(out, "you have not read this file") // another agent has not
	b.put("f", "x and more")
	b.refused(b.edit("f", "x", "y", false), "the file has changed since you read it")
}

func TestFolders(t *testing.T) {
	dir, readonly := t.TempDir(), t.TempDir()
	b := open(t, confine.Area{Dirs: []string{dir}}, readonly)
	if out := b.write(dir+"/f", "x"); out.IsError {
		t.Error(out.Text)
	}
	if err := os.WriteFile(readonly+"/o", []byte("out\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := b.read(readonly + "/o"); out.IsError {
		t.Error(out.Text)
	}
	b.refused(b.write(readonly+"/o", "x"), "outside the folders")
	b.refused(b.edit(readonly+"/o", "out", "x", false), "outside the folders")
}

// TestLinks: what links lead to outside is never written.
func TestLinks(t *testing.T) {
	b := open(t, confine.Area{})
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"dir": outside, "file": outside + "/f", "dangling": outside + "/none",
		"inner": "real"} {
		if err := os.Symlink(to, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.refused(b.write("dir/f", "evil"), "outside the folders")
	b.refused(b.write("dir/new", "evil"), "outside the folders")
	b.refused(b.write("file", "evil"), "outside the folders")
	b.refused(b.write("dangling", "evil"), "Write: dangling: ")
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("%d files outside", len(left))
	}
	b.put("real", "x")
	b.read("inner")
	if out := b.write("inner", "y"); out.IsError {
		t.Error(out.Text)
	}
	b.has("real", "y")
	if info, _ := os.Lstat(filepath.Join(b.root, "inner")); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
}

// TestSwapping: a folder that is swapped for a link after it was checked lets
// nothing in or out.
func TestSwapping(t *testing.T) {
	b := open(t, confine.Area{})
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/f", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.root, "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.put("d/f", "x")
	var places []confine.Place
	for _, name := range []string{"d/f", "d/new", "d/deep/new"} {
		p, err := (confine.Area{Root: b.root}).Find("Read", name)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir); err != nil {
		t.Fatal(err)
	}
	if data, _, err := load(places[0]); err == nil {
		t.Errorf("read %q from outside", data)
	}
	for _, p := range places {
		if err := store(p, []byte("evil"), nil); err == nil {
			t.Errorf("wrote %s", p.Path())
		}
	}
	left, _ := os.ReadDir(outside)
	if data, _ := os.ReadFile(outside + "/f"); len(left) != 1 || string(data) != "secret" {
		t.Errorf("%d files outside, %q", len(left), data)
	}
}

func TestSpecs(t *testing.T) {
	for _, tool := range New(confine.Area{Root: "/"}) {
		s := tool.Spec()
		if !json.Valid(s.InputSchema) || !strings.HasSuffix(string(s.InputSchema), `"additionalProperties":false}`) ||
			strings.Contains(s.Description, "%!") {
			t.Errorf("%s: %s %s", s.Name, s.InputSchema, s.Description)
		}
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("a\nb\n", "b", "c", true)
	f.Add("a\r\n", "\n", "", false)
	f.Fuzz(func(t *testing.T, text, from, to string, all bool) {
		out, line, count, err := replace(text, editInput{OldString: from, NewString: to, ReplaceAll: all})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of several lines: %q", err)
			}
			return
		}
		if out == text || count < 1 || count > 1 && !all || line < 1 || line > 1+strings.Count(text, "\n") {
			t.Fatalf("%q → %q: line %d, %d times", text, out, line, count)
		}
		_ = around(out, line, to)
	})
}

// What a rule denies is neither shown nor changed, by whatever name it is asked for.
func TestMayRead(t *testing.T) {
	b := open(t, confine.Area{MayRead: func(path string) bool { return filepath.Base(path) != ".env" }})
	b.put(".env", "KEY=1\n")
	b.put("open", "text\n")
	if err := os.Symlink(".env", filepath.Join(b.root, "alias")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".env", "./x/../.env", "alias"} {
		b.refused(b.read(path), "reading it is denied by a permission rule")
		b.refused(b.edit(path, "KEY=1", "KEY=2", false), "you have not read this file")
		b.refused(b.write(path, "KEY=2"), "you have not read this file")
	}
	b.has(".env", "KEY=1\n")
	if out := b.read("open"); out.IsError {
		t.Errorf("a file that may be read: %q", out.Text)
	}
}

// Only reading may run beside other calls.
func TestParallel(t *testing.T) {
	for i, tool := range New(confine.Area{Root: "/"}) {
		p, ok := tool.(agent.Parallel)
		if parallel := ok && p.Parallel(); parallel != (i == 0) {
			t.Errorf("%s runs beside others: %v", tool.Spec().Name, parallel)
		}
	}
}
