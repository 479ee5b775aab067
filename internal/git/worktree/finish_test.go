package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// TestStates crosses what an agent did to files with what it did to commits, and
// looks with the user's git at what is left.
func TestStates(t *testing.T) {
	files := map[string]struct {
		do    func(t *testing.T, dir string)
		dirty bool
	}{
		"none":      {func(*testing.T, string) {}, false},
		"ignored":   {func(t *testing.T, dir string) { put(t, dir, "x.o", "o"); put(t, dir, "out/y", "y") }, false},
		"modified":  {func(t *testing.T, dir string) { put(t, dir, "a", "changed\n") }, true},
		"untracked": {func(t *testing.T, dir string) { put(t, dir, "deep/er/näw\nfile", "new\n") }, true},
	}
	commits := map[string]struct {
		do   func(t *testing.T, repo, dir string)
		only int // commits that nobody else has
	}{
		"none": {func(*testing.T, string, string) {}, 0},
		"committed": {func(t *testing.T, _, dir string) {
			sh(t, dir, "commit", "-q", "--allow-empty", "-m", "1")
			sh(t, dir, "commit", "-q", "--allow-empty", "-m", "2")
		}, 2},
		"merged": {func(t *testing.T, repo, dir string) {
			sh(t, dir, "commit", "-q", "--allow-empty", "-m", "1")
			sh(t, repo, "merge", "-q", "--ff-only", sh(t, dir, "rev-parse", "HEAD"))
		}, 0},
		"detached": {func(t *testing.T, _, dir string) {
			sh(t, dir, "checkout", "-q", "--detach")
			sh(t, dir, "commit", "-q", "--allow-empty", "-m", "1")
		}, 1},
	}
	for fname, f := range files {
		for cname, c := range commits {
			t.Run(fname+"/"+cname, func(t *testing.T) {
				repo := repository(t, filepath.Join(t.TempDir(), "r"))
				s := Open(filepath.Join(t.TempDir(), "w"))
				tree := create(t, s, repo)
				c.do(t, repo, tree.Path)
				f.do(t, tree.Path)
				head, before := sh(t, tree.Path, "rev-parse", "HEAD"), sh(t, tree.Path, "status", "--porcelain")
				o, err := s.Finish(t.Context(), tree)
				must(t, err)
				if want := !f.dirty && c.only == 0; o.Removed != want || o.Commits != c.only || (o.Files > 0) != f.dirty {
					t.Fatalf("Finish = %+v", o)
				}
				if strings.Contains(o.Text, "\n") || o.Text == "" {
					t.Errorf("text %q", o.Text)
				}
				if o.Removed {
					if got := traces(t, s, repo); got != "" {
						t.Errorf("left behind: %s", got)
					}
					return
				}
				if sh(t, tree.Path, "rev-parse", "HEAD") != head || sh(t, tree.Path, "status", "--porcelain") != before {
					t.Error("the kept tree is not as it was")
				}
				if !strings.Contains(o.Text, o.Path) || o.Path != tree.Path || c.only > 0 && !strings.Contains(o.Text, "commit") {
					t.Errorf("outcome %+v", o)
				}
				rescued(t, repo, tree, o, f.dirty || cname == "detached")
				sh(t, repo, "worktree", "remove", "-f", tree.Path) // it is the user's now
			})
		}
	}
}

// rescued compares a rescue with the files of the kept tree.
func rescued(t *testing.T, repo string, tree *Tree, o Outcome, want bool) {
	t.Helper()
	if !want {
		if o.Rescue != "" {
			t.Errorf("nothing was to be rescued: %+v", o)
		}
		return
	}
	if o.Rescue != "refs/drover/rescue/"+string(tree.Task) || !strings.Contains(o.Text, o.Rescue) {
		t.Fatalf("rescue %q, text %q", o.Rescue, o.Text)
	}
	if got, head := sh(t, repo, "rev-parse", o.Rescue+"^1"), sh(t, tree.Path, "rev-parse", "HEAD"); got != head {
		t.Errorf("the rescue stands on %s, not on %s", got, head)
	}
	names := strings.Split(sh(t, tree.Path, "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00")
	for _, name := range names {
		if name == "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(tree.Path, name))
		if got, err2 := try(repo, "show", o.Rescue+":"+name); err != nil || err2 != nil || got != string(data) {
			t.Errorf("%q: rescued %q, %v; have %q, %v", name, got, err2, data, err)
		}
	}
}

// TestFinish has what an agent may do beside that.
func TestFinish(t *testing.T) {
	commit := func(t *testing.T, dir string) { sh(t, dir, "commit", "-q", "--allow-empty", "-m", "c") }
	const removed, keeps = true, false
	for _, c := range []struct {
		name    string
		do      func(t *testing.T, repo, dir string)
		removed bool
		branch  string // "own": that of the tree
		rescue  bool
	}{
		{"staged-only", func(t *testing.T, _, dir string) {
			put(t, dir, "a", "staged\n")
			sh(t, dir, "add", "a")
			put(t, dir, "a", "one\n")
		}, keeps, "own", true},
		{"deleted", func(t *testing.T, _, dir string) { must(t, os.Remove(filepath.Join(dir, "a"))) }, keeps, "own", true},
		{"conflict", func(t *testing.T, _, dir string) {
			put(t, dir, "a", "x\n")
			sh(t, dir, "commit", "-qam", "x")
			sh(t, dir, "checkout", "-q", "-b", "drover/other", "HEAD~1")
			put(t, dir, "a", "y\n")
			sh(t, dir, "commit", "-qam", "y")
			_, _ = try(dir, "merge", "HEAD@{2}")
		}, keeps, "own", true},
		{"assume-unchanged", func(t *testing.T, _, dir string) {
			sh(t, dir, "update-index", "--assume-unchanged", "a")
			put(t, dir, "a", "hidden\n")
		}, keeps, "own", true},
		{"skip-worktree", func(t *testing.T, _, dir string) {
			sh(t, dir, "update-index", "--skip-worktree", "a")
			put(t, dir, "a", "hidden\n")
		}, keeps, "own", true},
		{"sparse", func(t *testing.T, _, dir string) { sh(t, dir, "sparse-checkout", "set", "--no-cone", "/a") }, removed, "", false},
		{"tagged", func(t *testing.T, _, dir string) { commit(t, dir); sh(t, dir, "tag", "v1") }, removed, "", false},
		{"pushed", func(t *testing.T, repo, dir string) {
			commit(t, dir)
			sh(t, dir, "update-ref", "refs/remotes/origin/x", "HEAD")
		}, removed, "", false},
		{"own-branch", func(t *testing.T, _, dir string) { sh(t, dir, "checkout", "-qb", "feature"); commit(t, dir) }, removed, "feature", false},
		{"renamed", func(t *testing.T, _, dir string) { sh(t, dir, "branch", "-m", "drover/new"); commit(t, dir) }, keeps, "drover/new", false},
		{"stayed-behind", func(t *testing.T, _, dir string) { commit(t, dir); sh(t, dir, "checkout", "-q", "--detach", "HEAD~1") }, keeps, "own", false},
		{"of-worktree", func(t *testing.T, _, dir string) {
			commit(t, dir)
			sh(t, dir, "update-ref", "refs/worktree/x", "HEAD")
			sh(t, dir, "reset", "-q", "--hard", "HEAD~1")
		}, keeps, "own", false},
		{"orphan", func(t *testing.T, _, dir string) { sh(t, dir, "checkout", "-q", "--orphan", "drover/o") }, keeps, "own", true},
		{"amended", func(t *testing.T, repo, dir string) {
			commit(t, dir)
			sh(t, dir, "commit", "-q", "--amend", "--allow-empty", "-m", "better")
			sh(t, repo, "merge", "-q", "--ff-only", sh(t, dir, "rev-parse", "HEAD"))
		}, removed, "", false},
		{"nested", func(t *testing.T, _, dir string) { repository(t, filepath.Join(dir, "inner")); put(t, dir, "w", "w") }, keeps, "own", true},
		{"nested-ignored", func(t *testing.T, _, dir string) { repository(t, filepath.Join(dir, "out/inner")) }, keeps, "own", false},
		{"nested-bare-name", func(t *testing.T, _, dir string) { put(t, dir, "out/.git/config", "") }, keeps, "own", false},
		{"locked-index", func(t *testing.T, _, dir string) {
			put(t, sh(t, dir, "rev-parse", "--absolute-git-dir"), "index.lock", "")
			put(t, dir, "n", "n")
		}, keeps, "own", true},
		{"locked-index-clean", func(t *testing.T, _, dir string) {
			put(t, sh(t, dir, "rev-parse", "--absolute-git-dir"), "index.lock", "")
		}, removed, "", false},
		{"git-file", func(t *testing.T, _, dir string) { put(t, dir, ".git", "gitdir: /nowhere\n") }, removed, "", false},
		{"link-out", func(t *testing.T, _, dir string) {
			must(t, os.MkdirAll(filepath.Join(dir, "out"), 0o755))
			must(t, os.Symlink(filepath.Dir(os.Getenv("GIT_CONFIG_GLOBAL")), filepath.Join(dir, "out/link")))
		}, removed, "", false},
		{"read-only", func(t *testing.T, _, dir string) {
			put(t, dir, "out/mod/x", "x")
			must(t, os.Chmod(filepath.Join(dir, "out/mod"), 0o500))
		}, removed, "", false},
		{"gone", func(t *testing.T, _, dir string) { must(t, os.RemoveAll(dir)) }, removed, "", false},
		{"gone-with-commit", func(t *testing.T, _, dir string) { commit(t, dir); must(t, os.RemoveAll(dir)) }, keeps, "own", false},
		{"gone-detached", func(t *testing.T, _, dir string) {
			sh(t, dir, "checkout", "-q", "--detach")
			commit(t, dir)
			must(t, os.RemoveAll(dir))
		}, keeps, "own", true},
		{"gone-by-git", func(t *testing.T, repo, dir string) { sh(t, repo, "worktree", "remove", "-f", "-f", dir) }, removed, "", false},
		{"repository-gone", func(t *testing.T, repo, dir string) { must(t, os.RemoveAll(dir)); must(t, os.RemoveAll(repo)) }, removed, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := repository(t, filepath.Join(t.TempDir(), "r"))
			s := Open(filepath.Join(t.TempDir(), "w"))
			tree := create(t, s, repo)
			c.do(t, repo, tree.Path)
			o, err := s.Finish(t.Context(), tree)
			must(t, err)
			want := c.branch
			if want == "own" {
				want = tree.Branch
			}
			if o.Removed != c.removed || o.Branch != want || (o.Rescue != "") != c.rescue {
				t.Fatalf("Finish = %+v", o)
			}
			if left, _ := os.ReadDir(s.root); (len(left) == 0) != c.removed {
				t.Errorf("left in the store: %v", left)
			}
			if o.Removed || strings.HasPrefix(c.name, "gone") || strings.HasPrefix(c.name, "nested") {
				return
			}
			if c.rescue && c.name != "staged-only" {
				if diff, err := try(tree.Path, "diff", "--no-ext-diff", "--stat", o.Rescue, "--", "sub", ".gitignore"); err != nil || diff != "" {
					t.Errorf("the rescue differs: %s, %v", diff, err)
				}
				want, _ := os.ReadFile(filepath.Join(tree.Path, "a"))
				if got, _ := try(repo, "show", o.Rescue+":a"); len(want) > 0 && got != string(want) {
					t.Errorf("rescued %q, have %q", got, want)
				}
			}
		})
	}
}

// TestSameSecond changes a file within the second in which it was checked out,
// without changing its size: the rescue must hold the new text.
func TestSameSecond(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	sh(t, repo, "config", "core.trustctime", "false") // as if that had been the same second too
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	file, index := filepath.Join(tree.Path, "a"), filepath.Join(tree.receipt.admin(), "index")
	info, err := os.Stat(file)
	must(t, err)
	put(t, tree.Path, "a", "two\n")
	must(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	must(t, os.Chtimes(index, info.ModTime(), info.ModTime()))
	o, err := s.Finish(t.Context(), tree)
	must(t, err)
	if got := sh(t, repo, "show", o.Rescue+":a"); got != "two" {
		t.Errorf("the rescue holds %q", got)
	}
}

// TestAgain finishes a kept tree again: nothing is copied twice, earlier copies stay
// reachable, and merged work goes.
func TestAgain(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	put(t, tree.Path, "new", "1\n")
	o, err := s.Finish(t.Context(), tree)
	must(t, err)
	first := sh(t, repo, "rev-parse", o.Rescue)
	for range 2 {
		list, err := s.Sweep(t.Context(), nil)
		if err != nil || len(list) != 1 || list[0].Removed || sh(t, repo, "rev-parse", o.Rescue) != first {
			t.Fatalf("Sweep = %+v, %v", list, err)
		}
	}
	put(t, tree.Path, "new", "2\n")
	if _, err := s.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, repo, "show", o.Rescue+":new") + sh(t, repo, "show", first+":new"); got != "21" ||
		sh(t, repo, "merge-base", o.Rescue, first) != first {
		t.Errorf("the copies hold %q", got)
	}
	if list, err := s.Sweep(t.Context(), func(id task.ID) bool { return id == tree.Task }); err != nil || len(list) != 0 {
		t.Errorf("one that is needed: %+v, %v", list, err)
	}
	sh(t, tree.Path, "add", ".")
	sh(t, tree.Path, "commit", "-qm", "done")
	sh(t, repo, "merge", "-q", "--no-ff", "-m", "m", tree.Branch)
	list, err := s.Sweep(t.Context(), nil)
	if err != nil || len(list) != 1 || !list[0].Removed {
		t.Fatalf("Sweep = %+v, %v", list, err)
	}
	if got := traces(t, s, repo); got != o.Rescue {
		t.Errorf("left: %s", got)
	}
}

// TestMoved has a kept tree that the user takes elsewhere.
func TestMoved(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	put(t, tree.Path, "new", "1\n")
	if _, err := s.Finish(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "mine")
	sh(t, repo, "worktree", "move", tree.Path, to)
	list, err := s.Sweep(t.Context(), nil)
	if err != nil || len(list) != 1 || list[0].Removed || list[0].Path != to {
		t.Fatalf("Sweep = %+v, %v", list, err)
	}
	if got := sh(t, to, "status", "--porcelain", "--branch"); !strings.Contains(got, tree.Branch) || !strings.Contains(got, "new") {
		t.Errorf("the moved tree: %s", got)
	}
	if left, _ := os.ReadDir(s.root); len(left) != 0 {
		t.Errorf("left in the store: %v", left)
	}
}

// TestPrograms has everything in a repository that makes git run something.
func TestPrograms(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "ran")
	touch := "touch '" + canary + "'; cat; exit 0"
	clean := func(t *testing.T, what string) {
		t.Helper()
		if _, err := os.Lstat(canary); err == nil {
			t.Errorf("%s has run a program of the repository", what)
			must(t, os.Remove(canary))
		}
	}
	arm := func(t *testing.T, repo string) {
		hooks := filepath.Join(sh(t, repo, "rev-parse", "--path-format=absolute", "--git-common-dir"), "hooks")
		for _, h := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "fsmonitor-watchman"} {
			put(t, hooks, h, "#!/bin/sh\n"+touch+"\n")
			must(t, os.Chmod(filepath.Join(hooks, h), 0o755))
		}
		for _, key := range []string{"core.fsmonitor", "diff.external", "gpg.program", "core.pager", "core.editor", "core.sshCommand", "core.askPass"} {
			sh(t, repo, "config", key, touch)
		}
		sh(t, repo, "config", "commit.gpgSign", "true")
	}
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	arm(t, repo)
	_ = os.Remove(canary) // arming may have set it off
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	clean(t, "Create")

	inner := repository(t, filepath.Join(tree.Path, "inner"))
	arm(t, inner)
	sh(t, inner, "config", "filter.x.clean", touch)
	put(t, inner, ".gitattributes", "* filter=x\n")
	put(t, tree.Path, "a", "changed\n")
	// A checkout whose .git was made into another repository, by an agent that may
	// write files and nothing else.
	must(t, os.Rename(filepath.Join(inner, ".git"), filepath.Join(tree.Path, "evil")))
	put(t, tree.Path, ".git", "gitdir: evil\n")
	must(t, os.CopyFS(filepath.Join(tree.Path, "inner/.git"), os.DirFS(filepath.Join(tree.Path, "evil"))))
	_ = os.Remove(canary)
	o, err := s.Finish(t.Context(), tree)
	clean(t, "Finish")
	if err != nil || o.Removed || o.Rescue == "" {
		t.Fatalf("Finish = %+v, %v", o, err)
	}
	if got, err := try(repo, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "show", o.Rescue+":a"); err != nil || got != "changed\n" {
		t.Errorf("rescued %q, %v", got, err)
	}

	sh(t, repo, "-c", "core.hooksPath=/dev/null", "config", "filter.x.clean", touch)
	put(t, tree.Path, ".gitattributes", "* filter=x\n")
	_ = os.Remove(canary)
	list, err := s.Sweep(t.Context(), nil)
	clean(t, "Sweep")
	if err == nil || !strings.Contains(err.Error(), "filter.x.clean") || len(list) != 1 || list[0].Removed || list[0].Path != tree.Path {
		t.Errorf("Sweep = %+v, %v", list, err)
	}
}

// TestSubmodule has a submodule that was filled by the agent, with a program that
// git would run to see whether it is clean.
func TestSubmodule(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "ran")
	repo := repository(t, filepath.Join(t.TempDir(), "outer"))
	sh(t, repo, "submodule", "-q", "add", repository(t, filepath.Join(t.TempDir(), "r")), "mod")
	sh(t, repo, "commit", "-qm", "with")
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	sh(t, tree.Path, "submodule", "-q", "update", "--init")
	mod := filepath.Join(tree.Path, "mod")
	sh(t, mod, "config", "filter.x.clean", "touch '"+canary+"'; cat")
	put(t, mod, ".gitattributes", "* filter=x\n")
	put(t, mod, "a", "changed\n")
	put(t, tree.Path, "n", "n\n")
	o, err := s.Finish(t.Context(), tree)
	if err != nil || o.Removed || o.Files != 1 || !strings.Contains(o.Text, "other repositories") {
		t.Errorf("Finish = %+v, %v", o, err)
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Error("a program of the submodule has run")
	}
	if got := sh(t, repo, "show", o.Rescue+":n"); got != "n" {
		t.Errorf("rescued %q", got)
	}
}

// TestStopped ends the context: nothing may be lost by that.
func TestStopped(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, repo)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("closing"))
	o, err := s.Finish(ctx, tree)
	if err == nil || !strings.Contains(err.Error(), "closing") || o.Removed || o.Path != tree.Path {
		t.Errorf("Finish = %+v, %v", o, err)
	}
	if _, err := s.Create(ctx, Request{Folder: repo, Task: "a0000000a"}); err == nil {
		t.Error("made in spite of it")
	}
	list, err := s.Sweep(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(list, func(o Outcome) bool { return o.Removed }) || traces(t, s, repo) != "" {
		t.Errorf("Sweep = %+v, %v; left %s", list, err, traces(t, s, repo))
	}
}

// After a merge the checkout is at the merged commit, and nothing of it is left to keep.
func TestMerged(t *testing.T) {
	repo := repository(t, t.TempDir())
	s := Open(filepath.Join(t.TempDir(), "worktrees"))
	tree := create(t, s, repo)
	put(t, tree.Path, "new", "new\n")
	if _, err := s.Finish(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	c, err := s.Change(t.Context(), tree.Task, repo)
	must(t, err)
	put(t, repo, "new", "new\n")
	put(t, repo, "other", "other\n")
	sh(t, repo, "add", ".")
	sh(t, repo, "commit", "-qm", "merged")
	oid := sh(t, repo, "rev-parse", "HEAD")

	put(t, tree.Path, "later", "the agent has gone on\n")
	if all, err := s.Merged(t.Context(), c, oid); all || err != nil {
		t.Fatalf("Merged = %v, %v with a change that is not merged", all, err)
	}
	must(t, os.Remove(filepath.Join(tree.Path, "later")))
	if all, err := s.Merged(t.Context(), c, oid); !all || err != nil {
		t.Fatalf("Merged = %v, %v", all, err)
	}
	now, err := s.Change(t.Context(), tree.Task, repo)
	if err != nil || !now.Clean || now.Base != oid || now.Head != oid {
		t.Errorf("then %+v, %v", now, err)
	}
	if _, err := s.Sweep(t.Context(), nil); err != nil || traces(t, s, repo) != "" {
		t.Errorf("left %s, %v", traces(t, s, repo), err)
	}
}
