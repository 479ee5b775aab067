package policy

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// plant makes what a row of the path corpus describes, and takes it away again.
// It reports false for what cannot be made here.
func plant(t *testing.T, ws, path, what string) bool {
	t.Helper()
	full := filepath.Join(ws, path)
	link := func(name, to string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(ws, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(ws, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(ws, strings.Split(name, "/")[0])) })
	}
	switch {
	case what == "", strings.HasPrefix(what, "case-insensitive"), strings.HasPrefix(what, "HOME="), strings.HasPrefix(path, "link-"):
	case strings.HasPrefix(what, "l1 -> l2"):
		link("l1", "l2")
		link("l2", "l3")
		link("l3", "/etc/passwd")
	case what == "dang -> ~/.zshenv":
		link("dang", filepath.Join(ws, "../home/.zshenv"))
	case what == "key -> /home/u/.ssh/id_rsa":
		link("key", filepath.Join(ws, "../home/.ssh/id_rsa"))
	case what == "src/link -> ../go.mod":
		if err := os.Symlink("../go.mod", full); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(full) })
	case strings.Count(what, " -> ") == 1:
		from, to, _ := strings.Cut(what, " -> ")
		link(from, to)
	case strings.Contains(what, "commits .claude/worktrees"):
		link(".claude/worktrees", filepath.Dir(ws))
	case strings.Contains(what, "commits .claude"):
		link(".claude", "src")
	case strings.HasPrefix(what, "swap is"):
		link("swap", "/etc")
	case what == "unix socket":
		l, err := net.Listen("unix", full)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	case what == "char device node":
		if unix.Mknod(full, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) != nil {
			return false
		}
		t.Cleanup(func() { _ = os.Remove(full) })
	case what == "mode 0444":
		if err := os.WriteFile(full, nil, 0o444); err != nil {
			t.Fatal(err)
		}
	default:
		return false
	}
	return true
}

// The path corpus, but for rows of the sandbox, of the product's own files, and
// of a mount.
func TestPaths(t *testing.T) {
	ws := workspace(t, "")
	top := filepath.Dir(ws)
	data, err := os.ReadFile("testdata/path.tsv")
	if err != nil {
		t.Fatal(err)
	}
	ran, benign, asked := 0, 0, 0
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		f := strings.Split(line, "\t")
		t.Run(strconv.Itoa(i+2), func(t *testing.T) {
			path, err := strconv.Unquote(f[2])
			if err != nil {
				t.Fatal(err)
			}
			tool := f[1]
			if tool == "internal" || tool == "Bash cwd" || strings.Contains(f[0], "sandbox") || !plant(t, ws, path, f[3]) {
				t.Skip("needs more than a decision: " + f[3])
			}
			r := Rules{Cwd: ws, Home: filepath.Join(top, "home")}
			if strings.HasSuffix(f[3], "(trailing slash)") {
				r.Home += "/"
			}
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
			for from, to := range map[string]string{"/w/proj": top + "/proj", "/home/u": top + "/home", "/W/PROJ": strings.ToUpper(top) + "/PROJ"} {
				path = strings.Replace(path, from, to, 1)
			}
			if path == "/w" {
				path = top
			}
			field := map[string]string{"Glob": "pattern", "TaskOutput": "task_id"}[tool]
			if field == "" {
				field = "file_path"
			}
			got := gate(t, r).Decide(call(tool, field, path))
			if f[4] == "allow" {
				benign++
				if got.Decision == Ask {
					asked++
					t.Logf("asked: %s %q: %s", tool, path, got.Reason)
					return
				}
			}
			if want := Outcome(f[4]); got.Decision != want && !(want == Ask && got.Decision == Deny) {
				t.Errorf("%s %q under %q: %s (%s); want %s: %s", tool, path, f[0], got.Decision, got.Reason, want, f[5])
			}
		})
	}
	if ran < 90 || asked*100 > benign*3 {
		t.Errorf("%d rows ran; %d of %d harmless ones were asked about", ran, asked, benign)
	}
	t.Logf("%d rows; %d of %d harmless ones were asked about", ran, asked, benign)
}
