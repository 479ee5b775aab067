package sandboxes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/waittest"
)

// names are the paths that a command is said to have made or changed.
func names(made []string) (out []string) {
	for _, m := range made {
		name, _, _ := strings.Cut(m, " (")
		out = append(out, name)
	}
	return out
}

// Nothing appears in a workspace because a command runs. What a command makes or changes of the files that other programs
// obey is named, however it does that; what was there before, and what is no such file, is not.
func TestMade(t *testing.T) {
	s := New(config(t))
	defer s.Close()
	for name, c := range map[string]struct {
		before, line string
		want         []string
	}{
		"nothing":              {"", "ls -A; echo x > file", nil},
		"file":                 {"", "echo {} > .mcp.json", []string{".mcp.json"}},
		"in a folder":          {"", "mkdir .vscode; echo {} > .vscode/tasks.json", []string{".vscode/tasks.json"}},
		"another in a folder":  {"", "mkdir .idea; echo x > .idea/workspace.xml", nil},
		"folder is moved":      {"mkdir old; touch old/tasks.json", "mv old .vscode", []string{".vscode/tasks.json"}},
		"file is moved":        {"touch old", "mv old .envrc", []string{".envrc"}},
		"hard link":            {"touch old", "ln old .envrc", []string{".envrc"}},
		"symlink":              {"touch old", "ln -s old .envrc", []string{".envrc"}},
		"symlink to a folder":  {"mkdir old; touch old/settings.json", "ln -s old .claude", []string{".claude/settings.json"}},
		"symlink in a folder":  {"mkdir old", "mkdir .claude; ln -s ../old .claude/agents", []string{".claude/agents/"}},
		"entry of a folder":    {"", "mkdir -p .claude/agents; touch .claude/agents/x.md", []string{".claude/agents/"}},
		"many":                 {"", "touch .npmrc .envrc", []string{".envrc", ".npmrc"}},
		"with an older time":   {"", "touch -d 2001-01-01 .envrc", []string{".envrc"}},
		"removed again":        {"", "touch .envrc; rm .envrc", nil},
		"clone":                {"git init -q -b main ../r; cd ../r; mkdir .vscode; touch a .mcp.json .vscode/tasks.json; git add .; git -c user.name=x -c user.email=x commit -qm x", "git clone -q ../r . && ls a", []string{".mcp.json", ".vscode/tasks.json"}},
		"file of a repository": {"git init -q", "echo . > .git/commondir", []string{".git/commondir"}},
	} {
		t.Run(name, func(t *testing.T) {
			work := filepath.Join(folder(t, nil), "work")
			if err := os.Mkdir(work, 0o700); err != nil {
				t.Fatal(err)
			}
			outside := trial{ctx: t.Context(), work: work}
			if ok, out := outside.run("true;" + c.before); !ok {
				t.Fatal(out)
			}
			was, _ := filepath.Glob(work + "/.*")
			start, err := s.Command(Wish{Folders: []string{work}})
			if err != nil || s.why != nil {
				t.Skipf("SKIPPED: no room on this machine: %v, %v", err, s.why)
			}
			pass() // what was made before is older than the command
			inside := trial{ctx: t.Context(), work: work, fork: start.Fork}
			if ok, out := inside.run(c.line); !ok {
				t.Errorf("%s: %s", c.line, out)
			}
			if got := names(start.Made()); !slices.Equal(got, c.want) {
				t.Errorf("named %q, want %q", got, c.want)
			}
			if now, _ := filepath.Glob(work + "/.*"); name == "nothing" && !slices.Equal(was, now) {
				t.Errorf("in the folder: %q", now)
			}
			again, err := s.Command(Wish{Folders: []string{work}})
			if err != nil {
				t.Fatal(err)
			}
			pass()
			inside.fork = again.Fork
			if ok, out := inside.run("true"); !ok || again.Made() != nil {
				t.Errorf("the next command is said to have made %q: %s", again.Made(), out)
			}
			inside.fork = start.Fork
			for _, name := range c.want {
				if ok, out := inside.run(fmt.Sprintf("echo x >> %q || rm -r %q", name, strings.TrimSuffix(name, "/"))); !ok && !strings.HasPrefix(name, ".git") {
					t.Errorf("what a command has made cannot be changed: %s: %s", name, out)
				}
			}
		})
	}
}

// pass waits until the clock of the file system has gone on.
func pass() {
	begun := time.Now()
	waittest.Until(time.Minute, func() bool { return time.Since(begun) > 2*clockTick })
}

// BenchmarkMade looks at a folder with many entries when a command has ended.
func BenchmarkMade(b *testing.B) {
	work := b.TempDir()
	for i := range 10_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/file%d", work, i), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	l := &look{s: New(Config{}), folders: []string{work}}
	l.begin()
	for b.Loop() {
		l.made()
	}
}
