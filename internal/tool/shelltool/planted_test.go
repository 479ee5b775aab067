package shelltool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a command puts in the place of the file for its working directory is not
// read, and not waited for.
func TestPlanted(t *testing.T) {
	root, temp := t.TempDir(), t.TempDir()
	root, _ = filepath.EvalSymlinks(root)
	other := filepath.Join(root, "other")
	if err := os.WriteFile(other, []byte("/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := New(Config{Shells: &real{}, Root: root, TempDir: temp})
	for _, plant := range []string{"mkfifo $f", "ln -s " + other + " $f", "cp " + other + " $f", "mkdir $f"} {
		call(t, tool, line("trap - EXIT; f=$(echo "+temp+"/cwd-*); rm $f; "+plant))
		if got := strings.TrimSpace(call(t, tool, line("pwd")).Text); got != root {
			t.Errorf("%s: the next command runs in %s", plant, got)
		}
	}
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("%d files left in the temporary folder", len(left))
	}
}
