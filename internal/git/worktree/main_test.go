package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/task"
)

// TestMain gives git a user of its own. The test binary also plays a host that
// crashes: its words are a store, a folder, a task, what to do and where to die.
func TestMain(m *testing.M) {
	if len(os.Args) == 7 && os.Args[1] == "host" {
		play(os.Args[2], os.Args[3], task.ID(os.Args[4]), os.Args[5], os.Args[6])
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "worktree-test-")
	if err != nil {
		panic(err)
	}
	config := filepath.Join(dir, "gitconfig")
	err = os.WriteFile(config, []byte("[user]\n name = u\n email = u@localhost\n[init]\n defaultBranch = main\n templateDir =\n"+
		"[protocol \"file\"]\n allow = always\n"), 0o600)
	for _, kv := range [][2]string{{"HOME", dir}, {"GIT_CONFIG_GLOBAL", config}, {"GIT_CONFIG_NOSYSTEM", "1"}, {"XDG_CONFIG_HOME", dir}} {
		if e := os.Setenv(kv[0], kv[1]); e != nil {
			err = e
		}
	}
	if err == nil {
		err = template(filepath.Join(dir, "template"))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// play is the life of a host up to its death at a step.
func play(store, folder string, id task.ID, what, at string) {
	die := func(step string) {
		fmt.Println(step)
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	s := Open(store)
	s.after = die
	ctx := context.Background()
	t, err := s.Create(ctx, Request{Folder: folder, Task: id})
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	if what == "dirty" {
		err = os.WriteFile(filepath.Join(t.Path, "new"), []byte("work"), 0o600)
	}
	fmt.Println("work")
	if err == nil {
		_, err = s.Finish(ctx, t)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(4)
	}
}

// sh is the user's git, in a folder.
func sh(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := try(dir, args...)
	if err != nil {
		t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

func try(dir string, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

// repository makes one with two commits and a folder: a copy of that of TestMain.
func repository(t testing.TB, dir string) string {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join(os.Getenv("HOME"), "template"))))
	return dir
}

func template(dir string) error {
	for _, f := range [][2]string{{"a", "one\n"}, {".gitignore", "*.o\nout/\n"}, {"sub/b", "b\n"}} {
		path := filepath.Join(dir, f[0])
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(f[1]), 0o644)); err != nil {
			return err
		}
	}
	for _, args := range []string{"init -q", "add a", "commit -qm first", "add .", "commit -qm second"} {
		if out, err := try(dir, strings.Fields(args)...); err != nil {
			return fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	return nil
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, s *Store, folder string) *Tree {
	t.Helper()
	tree, err := s.Create(t.Context(), Request{Folder: folder, Task: task.NewID(task.LocalAgent), Session: "s00000001", Name: "docs"})
	must(t, err)
	t.Cleanup(tree.Release)
	return tree
}

// traces is what a repository and a store know of checkouts.
func traces(t testing.TB, s *Store, repo string) string {
	t.Helper()
	var all []string
	for _, dir := range []string{s.root, filepath.Join(sh(t, repo, "rev-parse", "--path-format=absolute", "--git-common-dir"), "worktrees")} {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			all = append(all, filepath.Join(filepath.Base(dir), e.Name()))
		}
	}
	all = append(all, strings.Fields(sh(t, repo, "for-each-ref", "--format=%(refname)", "refs/heads/drover", "refs/drover"))...)
	return strings.Join(all, " ")
}
