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
		"nothing":             {"", "ls -A; echo x > file", nil},
		"file":                {"", "echo {} > .mcp.json", []string{".mcp.json"}},
		"in a folder":         {"", "mkdir .vscode; echo {} > .vscode/tasks.json", []string{".vscode/tasks.json"}},
		"another in a folder": {"", "mkdir .idea; echo x > .idea/workspace.xml", nil},
		"folder is moved":     {"mkdir old; touch old/tasks.json", "mv old .vscode", []string{".vscode/tasks.json"}},
		"file is moved":       {"touch old", "mv old .envrc", []string{".envrc"}},
		"hard link":           {"touch old", "ln old .envrc", []string{".envrc"}},
		"symlink":             {"touch old", "ln -s old .envrc", []string{".envrc"}},
		"symlink to a folder": {"mkdir old; touch old/settings.json", "ln -s old .claude", []string{".claude/settings.json"}},
		"symlink in a folder": {"mkdir old", "mkdir .claude; ln -s ../old .claude/agents", []string{".claude/agents/"}},
		"entry of a folder":   {"", "mkdir -p .claude/agents; touch .claude/agents/x.md", []string{".claude/agents/"}},
		"many":                {"", "touch .npmrc .envrc", []string{".envrc", ".npmrc"}},
		"with an older time":  {"", "touch -d 2001-01-01 .envrc", []string{".envrc"}},
		"removed again":       {"", "touch .envrc; rm .envrc", nil},
		"clone":               {"git init -q -b main ../r; cd ../r; mkdir .vscode; touch a .mcp.json .vscode/tasks.json; git add .; git -c user.name=x -c user.email=x commit -qm x", "git clone -q ../r . && ls a", []string{".mcp.json", ".vscode/tasks.json"}},
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

// Of a repository commands write what git needs in everyday work. Other checkouts are not theirs; what git outside would
// follow or run is taken back and said, and what the user has made before is not.
func TestGit(t *testing.T) {
	s := New(config(t))
	defer s.Close()
	const user = "git config user.name x; git config user.email x@example.org; "
	for name, c := range map[string]struct {
		before, line, after string // after is tried outside and must succeed
		said                string
	}{
		"everyday": {"", `echo b >> a && git commit -qam two && git checkout -qb b && echo c >> a && git stash -q && git stash pop -q && git commit -qam three &&
			git rebase -q HEAD~2 && git tag x && git gc -q && git worktree add -q ../work/w2 && git fetch -q . HEAD && git reset -q --hard`, "git fsck 2>&1 && test -d w2", ""},
		"commondir":            {"", "echo ../evil > .git/commondir", "git status >/dev/null && test ! -e .git/commondir", ".git/commondir"},
		"config of a worktree": {"", "echo '[core]' > .git/config.worktree", "test ! -e .git/config.worktree", ".git/config.worktree"},
		"hooks":                {"rm -r .git/hooks", "mkdir .git/hooks; echo true > .git/hooks/pre-commit", "test ! -e .git/hooks", ".git/hooks"},
		"attributes":           {"rm -rf .git/info; mkdir .git/info", "echo '* filter=x' > .git/info/attributes", "test ! -e .git/info/attributes", ".git/info/attributes"},
		"symlinked log":        {"", "rm -r .git/logs; mkdir ../work/out; ln -s ../out .git/logs", "test ! -L .git/logs", ".git/logs (a symlink to ../out)"},
		"symlinked ref":        {"", "ln -s ../../../../out .git/refs/heads/x", "test ! -L .git/refs/heads/x", ".git/refs/heads/x (a symlink"},
		"moved symlink":        {"ln -s / old", "mv old .git/objects/aa", "test ! -L .git/objects/aa", ".git/objects/aa (a symlink"},
		"moved folder":         {"mkdir old; ln -s / old/x", "mv old .git/refs/old", "test ! -L .git/refs/old/x", ".git/refs/old/x (a symlink to /)"},
		"moved rebase": {"mkdir old; printf 'pick HEAD\nexec touch evil\n' > old/git-rebase-todo", "mv old .git/rebase-merge",
			"! grep evil .git/rebase-merge/git-rebase-todo", "(its exec lines)"},
		"moved attributes":    {"rm -rf .git/info; mkdir old; echo '* filter=x' > old/attributes", "mv old .git/info", "test ! -e .git/info/attributes", ".git/info/attributes"},
		"beside a symlink":    {"ln -s ../x .git/refs/mine", "touch .git/refs/new", "test -L .git/refs/mine", ""},
		"symlink of the user": {"ln -s ../x .git/mine", "echo x >> a", "test -L .git/mine", ""},
		"exec of a rebase": {"", "mkdir .git/rebase-merge; printf 'pick HEAD\n exec touch evil\nx\ttouch evil\n' > .git/rebase-merge/git-rebase-todo",
			"! grep evil .git/rebase-merge/git-rebase-todo && grep pick .git/rebase-merge/git-rebase-todo", "(its exec lines)"},
		"another checkout": {"git worktree add -q ../wt", "echo $PWD/e > .git/worktrees/wt/commondir; mv .git/worktrees/wt .git/worktrees/x; rm -rf .git/worktrees/wt",
			"cd ../wt && git status && grep -q ../.. ../work/.git/worktrees/wt/commondir", ""},
	} {
		t.Run(name, func(t *testing.T) {
			work := filepath.Join(folder(t, nil), "work")
			if err := os.Mkdir(work, 0o700); err != nil {
				t.Fatal(err)
			}
			outside := trial{ctx: t.Context(), work: work}
			if ok, out := outside.run("git init -q; " + user + "touch a; git add a; git commit -qm one;" + c.before); !ok {
				t.Fatal(out)
			}
			pass()
			start, err := s.Command(Wish{Folders: []string{work}})
			if err != nil || s.why != nil {
				t.Skipf("SKIPPED: no room on this machine: %v, %v", err, s.why)
			}
			inside := trial{ctx: t.Context(), work: work, fork: start.Fork}
			if ok, out := inside.run(c.line); !ok && name != "another checkout" {
				t.Errorf("%s: %s", c.line, out)
			}
			said := strings.Join(start.Made(), "; ")
			if c.said == "" && said != "" || !strings.Contains(said, c.said) {
				t.Errorf("said %q, want %q", said, c.said)
			}
			if ok, out := outside.run(c.after); !ok {
				t.Errorf("after that outside: %s: %s", c.after, out)
			}
			pass()
			again, err := s.Command(Wish{Folders: []string{work}}) // folders that have not changed are not read again
			if err != nil {
				t.Fatal(err)
			}
			inside.fork = again.Fork
			if ok, out := inside.run("ln -s / .git/refs/tags/y"); !ok {
				t.Error(out)
			}
			if said := strings.Join(again.Made(), "; "); !strings.Contains(said, ".git/refs/tags/y (a symlink to /)") {
				t.Errorf("the next command made a symlink, and said %q", said)
			}
		})
	}
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
