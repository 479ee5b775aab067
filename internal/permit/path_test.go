package permit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The rows of the path corpus that need nothing planted beyond the workspace
// and no sandbox.
func TestPaths(t *testing.T) {
	ws := workspace(t, "")
	top := filepath.Dir(ws)
	data, err := os.ReadFile("testdata/path.tsv")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		f := strings.Split(line, "\t")
		path, err := strconv.Unquote(f[2])
		if err != nil {
			t.Fatalf("line %d: %v", i+2, err)
		}
		tool, planted := f[1], f[3]
		if planted != "" || kindOf(tool) == otherTool || tool == "Bash cwd" || strings.Contains(f[0], "sandbox") {
			continue
		}
		r := Rules{Cwd: ws, Home: filepath.Join(top, "home")}
		for _, part := range strings.Split(f[0], "; ") {
			switch name, value, _ := strings.Cut(part, "="); name {
			case "allow":
				r.Allow = splitRules(value)
			case "deny":
				r.Deny = splitRules(value)
			case "mode":
				r.Mode = Mode(value)
			}
		}
		ran++
		path = strings.Replace(path, "/w/proj", top+"/proj", 1)
		if path == "/w" {
			path = top
		}
		field := "file_path"
		if tool == "Glob" {
			field = "pattern"
		}
		got := gate(t, r).Decide(call(tool, field, path))
		if want := Outcome(f[4]); got.Decision != want && !(want == Ask && got.Decision == Deny) {
			t.Errorf("line %d: %s %q under %q: %s (%s); want %s: %s", i+2, tool, path, f[0], got.Decision, got.Reason, want, f[5])
		}
	}
	if ran < 20 {
		t.Errorf("only %d rows ran", ran)
	}
	t.Logf("%d rows", ran)
}
