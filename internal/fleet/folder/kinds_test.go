package folder

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/git/gitrun"
)

func hasNote(notes []string, words string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, words) })
}

// Kinds of checkouts that travel: on the worker git shows the same, and what the task
// adds comes back.
func TestKinds(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		make  func(t *testing.T, home string) string // returns the folder of the task
		note  string
		apart bool // statusOf differs, for the reason that the note tells
	}{
		"detached": {make: func(t *testing.T, home string) string {
			sh(t, home, "checkout", "-q", "--detach", "HEAD~1")
			return home
		}},
		"subdir": {make: func(t *testing.T, home string) string { return filepath.Join(home, "sub") }},
		"linked worktree": {make: func(t *testing.T, home string) string {
			dir := filepath.Join(t.TempDir(), "linked")
			sh(t, home, "worktree", "add", "-q", "-b", "side", dir)
			write(t, dir, "a.txt", "changed\n")
			return dir
		}},
		"shallow": {note: "shallow", make: func(t *testing.T, home string) string {
			for range 5 {
				sh(t, home, "commit", "-q", "--allow-empty", "-m", "more")
			}
			dir := filepath.Join(t.TempDir(), "clone")
			sh(t, home, "clone", "-q", "--depth=2", "file://"+home, dir)
			write(t, dir, "a.txt", "changed\n")
			return dir
		}},
		"merge": {note: "a merge is in progress", make: func(t *testing.T, home string) string {
			sh(t, home, "checkout", "-q", "-b", "other", "HEAD~1")
			write(t, home, "other", "x\n")
			sh(t, home, "add", ".")
			sh(t, home, "commit", "-qm", "other")
			sh(t, home, "checkout", "-q", "main")
			sh(t, home, "merge", "-q", "--no-commit", "--no-ff", "other")
			return home
		}},
		"submodule": {note: "submodule", make: func(t *testing.T, home string) string {
			module := newRepository(t)
			sh(t, home, "submodule", "add", "-q", module, "module")
			sh(t, home, "commit", "-qm", "module")
			return home
		}},
		"submodule moved": {note: "submodule", apart: true, make: func(t *testing.T, home string) string {
			module := newRepository(t)
			sh(t, home, "submodule", "add", "-q", module, "module")
			sh(t, home, "commit", "-qm", "module")
			sh(t, filepath.Join(home, "module"), "checkout", "-q", "HEAD~1")
			return home
		}},
		"sparse": {note: "sparse", apart: true, make: func(t *testing.T, home string) string {
			write(t, home, "left/out", "x\n")
			sh(t, home, "add", ".")
			sh(t, home, "commit", "-qm", "left out")
			sh(t, home, "sparse-checkout", "set", "--cone", "--sparse-index", "sub")
			write(t, home, "sub/b.txt", "changed\n")
			return home
		}},
		"nested": {note: "repositories of their own", apart: true, make: func(t *testing.T, home string) string {
			dir := filepath.Join(home, "nested")
			must(t, os.Mkdir(dir, 0o755))
			sh(t, dir, "init", "-q")
			sh(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
			write(t, home, "beside", "x\n")
			return home
		}},
		"file and folder": {make: func(t *testing.T, home string) string {
			must(t, os.Remove(filepath.Join(home, "gone.txt")))
			write(t, home, "gone.txt/now", "a folder\n")
			must(t, os.RemoveAll(filepath.Join(home, "sub")))
			write(t, home, "sub", "a file\n")
			return home
		}},
		"folder and link": {make: func(t *testing.T, home string) string {
			must(t, os.Rename(filepath.Join(home, "sub"), filepath.Join(home, "moved")))
			must(t, os.Symlink("moved", filepath.Join(home, "sub")))
			return home
		}},
		"split index": {make: func(t *testing.T, home string) string {
			sh(t, home, "config", "core.splitIndex", "true")
			sh(t, home, "update-index", "--split-index")
			dirty(t, home)
			sh(t, home, "rm", "-q", "--cached", "later")
			return home
		}},
		"line ends": {make: func(t *testing.T, home string) string {
			write(t, home, ".gitattributes", "*.txt text eol=crlf\n")
			sh(t, home, "add", ".gitattributes")
			sh(t, home, "commit", "-qm", "eol")
			write(t, home, "a.txt", "one\r\nchanged\r\n")
			return home
		}},
		"lfs": {note: "pointers", make: func(t *testing.T, home string) string {
			write(t, home, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
			write(t, home, "x.bin", "version https://git-lfs.github.com/spec/v1\n")
			sh(t, home, "add", ".")
			sh(t, home, "commit", "-qm", "lfs")
			return home
		}},
		"hidden": {note: "assume-unchanged", apart: true, make: func(t *testing.T, home string) string {
			sh(t, home, "update-index", "--assume-unchanged", "a.txt")
			write(t, home, "a.txt", "hidden\n")
			return home
		}},
		"partial": {note: "no history before commit", apart: true, make: func(t *testing.T, home string) string {
			sh(t, home, "config", "uploadpack.allowFilter", "true")
			write(t, home, "a.txt", "other\n")
			sh(t, home, "commit", "-qam", "other")
			dir := filepath.Join(t.TempDir(), "clone")
			sh(t, home, "clone", "-q", "--filter=blob:none", "file://"+home, dir)
			write(t, dir, "a.txt", "changed\n")
			return dir
		}},
		"sha256": {make: func(t *testing.T, _ string) string {
			dir := t.TempDir()
			sh(t, dir, "init", "-q", "--object-format=sha256")
			for _, f := range []string{"a.txt", "sub/b.txt"} {
				write(t, dir, f, strings.Repeat(f+"\n", 30))
			}
			sh(t, dir, "add", ".")
			sh(t, dir, "commit", "-qm", "first")
			write(t, dir, "a.txt", strings.Repeat("a.txt\n", 31))
			return dir
		}},
		"alternates": {make: func(t *testing.T, home string) string {
			dir := filepath.Join(t.TempDir(), "a \"quoted\": name", "clone")
			sh(t, home, "clone", "-q", "--shared", home, dir)
			write(t, dir, "a.txt", "changed\n")
			return dir
		}},
		"fsmonitor and hooks": {make: func(t *testing.T, home string) string {
			trap(t, home)
			return home
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			home := kind.make(t, newRepository(t))
			c, s := newCache(t), newMemory()
			shown := statusOf(t, home)
			trapped := filepath.Join(home, "trapped")
			_ = os.Remove(trapped) // the user's own git has run it
			before := state(t, home)
			m, dir := there(t, home, c, Choice{AllUntracked: true}, s)
			if state(t, home) != before {
				t.Error("the repository at home is not as it was")
			}
			if got := statusOf(t, filepath.Join(dir, m.Subdir)); got != shown && !kind.apart {
				t.Errorf("at home:\n%q\non the worker:\n%q", shown, got)
			}
			if kind.note == "" && len(m.Notes) > 0 || kind.note != "" && !hasNote(m.Notes, kind.note) {
				t.Errorf("notes %q, want %q", m.Notes, kind.note)
			}
			write(t, dir, "made", "by the task\n")
			got := back(t, home, dir, c, m, s)
			if _, err := os.Lstat(trapped); err == nil {
				t.Error("a program of the repository's configuration has run")
			}
			if got.Files != 1 || got.Added != 1 {
				t.Errorf("received %+v", got)
			}
			sh(t, home, "update-ref", "-d", got.Ref)
			_ = os.Remove(trapped)
			if state(t, home) != before {
				t.Error("the repository at home is not as it was, after the return")
			}
		})
	}
}

// trap names a program wherever a repository can, but in filters.
func trap(t testing.TB, dir string) {
	t.Helper()
	script := filepath.Join(dir, ".git", "trap")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\ntouch '"+filepath.Join(dir, "trapped")+"'\n"), 0o755))
	for _, hook := range []string{"pre-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"} {
		must(t, os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755))
		data, err := os.ReadFile(script)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, ".git", "hooks", hook), data, 0o755))
	}
	data := read(t, dir, ".git/config")
	must(t, os.WriteFile(filepath.Join(dir, ".git", "config"), []byte(data+"[diff]\n external = "+script+"\n[core]\n pager = "+script+"\n"), 0o644))
}

// Checkouts that cannot travel are refused by name, and nothing is sent.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make  func(t *testing.T, home string) string
		pick  Choice
		words []string
	}{
		"no-commit": {make: func(t *testing.T, _ string) string {
			dir := t.TempDir()
			sh(t, dir, "init", "-q")
			return dir
		}, words: []string{"no commit"}},
		"bare": {make: func(t *testing.T, home string) string {
			dir := filepath.Join(t.TempDir(), "bare")
			sh(t, home, "clone", "-q", "--bare", home, dir)
			return dir
		}, words: []string{"work tree"}},
		"conflict": {make: func(t *testing.T, home string) string {
			sh(t, home, "checkout", "-q", "-b", "other", "HEAD~1")
			write(t, home, "a.txt", "theirs\n")
			sh(t, home, "commit", "-qam", "theirs")
			sh(t, home, "checkout", "-q", "main")
			write(t, home, "a.txt", "ours\n")
			sh(t, home, "commit", "-qam", "ours")
			if out, err := exec.Command("git", "-C", home, "merge", "other").CombinedOutput(); err == nil {
				t.Fatalf("%s", out)
			}
			return home
		}, words: []string{"conflicts", `"a.txt"`, "git add"}},
		"filter": {make: func(t *testing.T, home string) string {
			sh(t, home, "config", "filter.x.clean", "cat")
			return home
		}, words: []string{"filter.x.clean"}},
		"partial": {make: func(t *testing.T, home string) string {
			sh(t, home, "config", "uploadpack.allowFilter", "true")
			dir := filepath.Join(t.TempDir(), "clone")
			sh(t, home, "clone", "-q", "--filter=blob:none", "--sparse", "file://"+home, dir)
			return dir
		}, words: []string{"partial clone", "2 objects", "git fetch --refetch --no-filter"}},
		"too-large": {make: func(t *testing.T, home string) string {
			write(t, home, "big", random(300<<10, 1))
			sh(t, home, "add", "big")
			sh(t, home, "commit", "-qm", "big")
			return home
		}, pick: Choice{Limits: Limits{PackedBytes: 100 << 10}}, words: []string{"KiB would have to travel", "the limit is 100.0 KiB"}},
		"change-too-large": {make: func(t *testing.T, home string) string {
			write(t, home, "a.txt", random(300<<10, 1))
			return home
		}, pick: Choice{Limits: Limits{UnpackedBytes: 100 << 10}}, words: []string{`"a.txt"`, "300.0 KiB", "100.0 KiB"}},
		"untracked-too-large": {make: func(t *testing.T, home string) string {
			write(t, home, "data", random(300<<10, 1))
			return home
		}, pick: Choice{AllUntracked: true, Limits: Limits{UnpackedBytes: 100 << 10}}, words: []string{`"data"`, "300.0 KiB", "100.0 KiB"}},
		"too-many-files": {make: func(t *testing.T, home string) string { return home },
			pick: Choice{Limits: Limits{Files: 5}}, words: []string{"more than 5 files"}},
		"climbing-pattern": {make: func(t *testing.T, home string) string { return home },
			pick: Choice{Untracked: []string{"../x"}}, words: []string{`"../x"`, "does not stay"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, s := c.make(t, newRepository(t)), newMemory()
			admin := sh(t, home, "rev-parse", "--absolute-git-dir")
			before := filesOf(t, admin)
			_, err := Pack(t.Context(), home, c.pick, s)
			wantError(t, err, append(c.words, home)...)
			if s.puts != 0 || filesOf(t, admin) != before {
				t.Errorf("%d parts were sent, or something was written", s.puts)
			}
		})
	}
	if _, err := Pack(t.Context(), t.TempDir(), Choice{}, newMemory()); !errors.Is(err, gitrun.ErrNone) {
		t.Errorf("without a repository: %v", err)
	}
}

// A partial clone travels when it has all that is needed.
func TestPartial(t *testing.T) {
	t.Parallel()
	home := newRepository(t)
	sh(t, home, "config", "uploadpack.allowFilter", "true")
	dir := filepath.Join(t.TempDir(), "clone")
	sh(t, home, "clone", "-q", "--filter=blob:none", "file://"+home, dir)
	c, s := newCache(t), newMemory()
	m, work := there(t, dir, c, Choice{}, s)
	write(t, work, "made", "x\n")
	if got := back(t, dir, work, c, m, s); got.Files != 1 {
		t.Errorf("received %+v", got)
	}
}

// Chosen patterns are relative to the folder, and one that matches nothing is told.
func TestPatterns(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	for _, f := range []string{"sub/x.env", "sub/deep/y.env", "top.env", "sub/other", "sub/data/1", "sub/data/2.o"} {
		write(t, home, f, f+"\n")
	}
	m, dir := there(t, filepath.Join(home, "sub"), c, Choice{Untracked: []string{"**/*.env", "data", "nothing*"}}, s)
	got := sh(t, dir, "ls-files", "--others")
	if want := "sub/data/1\nsub/data/2.o\nsub/deep/y.env\nsub/x.env"; got != want {
		t.Errorf("travelled:\n%s\nwant:\n%s", got, want)
	}
	if !hasNote(m.Notes, `"nothing*"`) || m.Subdir != "sub" {
		t.Errorf("%q, %q", m.Notes, m.Subdir)
	}
}

// A history that is larger than the limit stays at home; the next trip builds on what the worker has.
func TestHistory(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	write(t, home, "big", random(600<<10, 1))
	sh(t, home, "add", "big")
	sh(t, home, "commit", "-qm", "big")
	sh(t, home, "rm", "-q", "big")
	sh(t, home, "commit", "-qm", "removed")
	dirty(t, home)
	l := Limits{PackedBytes: 100 << 10}
	m, dir := there(t, home, c, Choice{Limits: l}, s)
	if !hasNote(m.Notes, "no history before commit") || s.sent > 20<<10 {
		t.Errorf("%d bytes were sent; notes %q", s.sent, m.Notes)
	}
	if log := sh(t, dir, "log", "--format=%s"); log != "removed" {
		t.Errorf("the worker has the commits\n%s", log)
	}
	sh(t, dir, "fsck", "--strict")
	write(t, dir, "x", "1\n")
	sh(t, dir, "add", "x")
	sh(t, dir, "commit", "-qm", "by the task")
	if got := back(t, home, dir, c, m, s); got.Files != 1 {
		t.Errorf("received %+v", got)
	}
	sh(t, home, "fsck", "--strict")

	sh(t, home, "commit", "-qam", "next")
	m, dir = there(t, home, c, Choice{Limits: l}, s)
	if log := sh(t, dir, "log", "--format=%s"); log != "next\nremoved" || hasNote(m.Notes, "history") {
		t.Errorf("notes %q, and the worker has the commits\n%s", m.Notes, log)
	}
}

// A submodule travels as the commit that was added, whatever is checked out in it.
func TestSubmodule(t *testing.T) {
	t.Parallel()
	home, module := newRepository(t), newRepository(t)
	sh(t, home, "submodule", "add", "-q", module, "module")
	sh(t, home, "commit", "-qm", "module")
	sh(t, filepath.Join(home, "module"), "checkout", "-q", "HEAD~1")
	m, dir := there(t, home, newCache(t), Choice{AllUntracked: true}, newMemory())
	if m.Changes() {
		t.Errorf("the snapshot has changes: %s", sh(t, dir, "diff-tree", "-r", m.Commit, m.Snapshot))
	}
	if left, err := os.ReadDir(filepath.Join(dir, "module")); err != nil || len(left) > 0 {
		t.Errorf("the folder of the submodule has %v, %v", left, err)
	}
}
