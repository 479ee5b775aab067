package shelltool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each line that ends elsewhere carries its directory, however it gets there.
func TestMoves(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.sh"), []byte("cd /usr"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{
		"cd /usr", `c\d /usr`, `"cd" /usr`, `c=cd; $c /usr`, "{cd,/usr}", "if true; then cd /usr; fi", "f() { cd /usr; }; f", "eval 'cd /usr'",
		". ./go.sh", "source go.sh", "command cd /usr", "builtin cd /usr", "pushd /usr", "trap 'cd /usr' DEBUG", "time cd /usr", "! cd /usr",
		"shopt -s expand_aliases\nalias x=cd\nx /usr", "cd /usr\n)", "$(echo cd) /usr", "X=1 cd /usr", "echo /usr >p; mapfile -c 1 -C 'cd /usr #' <p",
	} {
		t.Run(strings.Fields(l)[0], func(t *testing.T) {
			tool := New(Config{Shells: &real{}, Root: root, TempDir: t.TempDir()})
			call(t, tool, line(l))
			if got := strings.TrimSpace(call(t, tool, line("pwd")).Text); got != "/usr" {
				t.Errorf("%s: the next command runs in %s", l, got)
			}
		})
	}
	shells := &real{}
	tool := New(Config{Shells: shells, Root: root, TempDir: t.TempDir()})
	for _, l := range []string{"echo cd", "make test 2>&1 | tail -5", "git log -1 && ls", "for i in 1 2; do echo $i; done", "X=1 ./a.out"} {
		if call(t, tool, line(l)); shells.last.Args[2] != l {
			t.Errorf("%s runs as %q", l, shells.last.Args[2])
		}
	}
	functions := New(Config{Shells: shells, Root: root, TempDir: t.TempDir(), Functions: true})
	if call(t, functions, line("go_there")); shells.last.Args[2] == "go_there" {
		t.Error("a function of the environment does not carry its directory")
	}
}
