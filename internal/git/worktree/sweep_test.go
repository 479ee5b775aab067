package worktree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/task"
)

// host is a host process that does something and dies at a step.
func host(t *testing.T, s *Store, repo string, id task.ID, what, at string) *exec.Cmd {
	t.Helper()
	return exec.Command(os.Args[0], "host", s.root, repo, string(id), what, at)
}

// settled waits until nobody, also no git that outlived its host, holds a task.
func settled(t *testing.T, s *Store, id task.ID) {
	t.Helper()
	f, err := os.Open(s.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
}

// TestCrash dies at each step of a life.
func TestCrash(t *testing.T) {
	for _, c := range []struct{ what, at string }{
		{"clean", "folder"}, {"clean", "receipt"}, {"clean", "checkout"}, {"clean", "ready"},
		{"clean", "gone"}, {"clean", "wiped"}, {"clean", "forgotten"}, {"clean", "receipt removed"},
		{"dirty", "ready"}, {"dirty", "rescue"}, {"dirty", "never"},
	} {
		t.Run(c.what+"/"+strings.ReplaceAll(c.at, " ", "-"), func(t *testing.T) {
			repo := repository(t, filepath.Join(t.TempDir(), "r"))
			s := Open(filepath.Join(t.TempDir(), "w"))
			out, err := host(t, s, repo, "a0000000a", c.what, c.at).CombinedOutput()
			var exit *exec.ExitError
			if died := errors.As(err, &exit) && exit.ExitCode() == -1; died == (c.at == "never") {
				t.Fatalf("the host was to die at %q: %v, %s", c.at, err, out)
			}
			settled(t, s, "a0000000a")
			if c.at == "gone" { // and some of it was removed
				must(t, os.Remove(filepath.Join(s.dir("a0000000a"), "gone", "a")))
			}
			list, err := s.Sweep(t.Context(), nil)
			if err != nil {
				t.Fatalf("Sweep: %v", err)
			}
			if c.what == "clean" || c.at == "ready" {
				if got := traces(t, s, repo); got != "" {
					t.Errorf("left: %s, outcomes %+v", got, list)
				}
				return
			}
			if len(list) != 1 || list[0].Removed || sh(t, repo, "show", list[0].Rescue+":new") != "work" {
				t.Errorf("Sweep = %+v", list)
			}
			if data, err := os.ReadFile(filepath.Join(list[0].Path, "new")); err != nil || string(data) != "work" {
				t.Errorf("kept %q, %v", data, err)
			}
		})
	}
}

// TestKilled kills hosts whenever it happens, with gits of theirs at work.
func TestKilled(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	for i := range 12 {
		id := task.ID(fmt.Sprintf("a000000%02d", i))
		what := []string{"clean", "dirty"}[i%2]
		h := host(t, s, repo, id, what, "")
		out, err := h.StdoutPipe()
		must(t, err)
		must(t, h.Start())
		until := []string{"receipt", "work"}[i/2%2] // git is at work behind both
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != until {
		}
		for range rand.IntN(4000) { // some of the way further
			_, _ = os.Lstat(s.root)
		}
		_ = h.Process.Kill()
		_ = h.Wait()
		settled(t, s, id)
		list, err := s.Sweep(t.Context(), nil)
		if err != nil {
			t.Fatalf("%s: Sweep: %v", id, err)
		}
		if what == "dirty" && until == "work" {
			if data, err := os.ReadFile(filepath.Join(s.dir(id), "r-"+string(id), "new")); err != nil || string(data) != "work" {
				t.Errorf("%s: work was lost: %q, %v; %+v", id, data, err, list)
			}
		} else if what == "clean" && strings.Contains(traces(t, s, repo), string(id)) {
			t.Errorf("%s: left %s", id, traces(t, s, repo))
		}
	}
	if got := sh(t, repo, "fsck", "--strict"); strings.Contains(got, "error") {
		t.Errorf("the repository is damaged: %s", got)
	}
}

// TestHalfMade dies together with its git, in the middle of a checkout.
func TestHalfMade(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	if runtime.GOOS != "linux" {
		t.Skip("parents are found by /proc")
	}
	script := filepath.Join(t.TempDir(), "die")
	must(t, os.WriteFile(script, []byte(`p=$PPID
while [ "$p" -gt 1 ] && [ "$p" != "$TEST_PID" ]; do
	chain="$p $chain"
	read -r _ _ _ p _ </proc/$p/stat
done
kill -9 $chain
`), 0o600))
	user(t, "[filter \"die\"]\n smudge = sh '"+script+"'\n")
	t.Setenv("TEST_PID", fmt.Sprint(os.Getpid()))
	put(t, repo, ".git/info/attributes", "sub/b filter=die\n")
	s := Open(filepath.Join(t.TempDir(), "w"))
	if out, err := host(t, s, repo, "a0000000a", "clean", "").CombinedOutput(); err == nil || strings.Contains(string(out), "ready") {
		t.Fatalf("the host was to die: %s", out)
	}
	settled(t, s, "a0000000a")
	if got := traces(t, s, repo); !strings.Contains(got, "w/a0000000a") || !strings.Contains(got, "worktrees/r-a0000000a") {
		t.Fatalf("half made: %s", got)
	}
	if _, err := s.Resume(t.Context(), "a0000000a"); !errors.Is(err, ErrGone) {
		t.Errorf("half made, and resumed: %v", err)
	}
	if list, err := s.Sweep(t.Context(), nil); err != nil || len(list) != 0 || traces(t, s, repo) != "" {
		t.Errorf("Sweep = %+v, %v; left %s", list, err, traces(t, s, repo))
	}
}

// TestOutlived kills a host whose git goes on: until that has ended the checkout is
// nobody else's.
func TestOutlived(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	there, on := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "on")
	must(t, unix.Mkfifo(there, 0o600))
	must(t, unix.Mkfifo(on, 0o600))
	user(t, "[filter \"wait\"]\n smudge = \"cat >/dev/null; echo >'"+there+"'; cat '"+on+"'\"\n")
	put(t, repo, ".git/info/attributes", "sub/b filter=wait\n")
	s := Open(filepath.Join(t.TempDir(), "w"))
	h := host(t, s, repo, "a0000000a", "clean", "")
	must(t, h.Start())
	_, err := os.ReadFile(there) // git is in the middle of the checkout
	must(t, err)
	must(t, h.Process.Kill())
	_ = h.Wait()
	before := traces(t, s, repo)
	if list, err := s.Sweep(t.Context(), nil); err != nil || len(list) != 0 || traces(t, s, repo) != before {
		t.Errorf("swept under a git at work: %+v, %v", list, err)
	}
	must(t, os.WriteFile(on, []byte("b\n"), 0o600))
	settled(t, s, "a0000000a")
	if _, err := s.Sweep(t.Context(), nil); err != nil || traces(t, s, repo) != "" {
		t.Errorf("Sweep: %v; left %s", err, traces(t, s, repo))
	}
}

// TestPlanted puts into the store what nobody of ours has made.
func TestPlanted(t *testing.T) {
	edit := func(change func(r map[string]any)) func(t *testing.T, s *Store, tree *Tree) {
		return func(t *testing.T, s *Store, tree *Tree) {
			path := filepath.Join(s.dir(tree.Task), receiptName)
			data, err := os.ReadFile(path)
			must(t, err)
			r := map[string]any{}
			must(t, json.Unmarshal(data, &r))
			change(r)
			data, err = json.Marshal(r)
			must(t, err)
			must(t, os.WriteFile(path, data, 0o600))
		}
	}
	victim := filepath.Join(t.TempDir(), "victim")
	for _, c := range []struct {
		name, want string
		plant      func(t *testing.T, s *Store, tree *Tree)
	}{
		{"path", "names another path", edit(func(r map[string]any) { r["path"] = victim })},
		{"path-dots", "names another path", edit(func(r map[string]any) { r["path"] = fmt.Sprint(r["path"], "/../../../victim") })},
		{"path-making", "names another path", edit(func(r map[string]any) { r["path"], r["state"] = victim, "making" })},
		{"prefix", "leads out", edit(func(r map[string]any) { r["prefix"] = "../.." })},
		{"task", "another task", edit(func(r map[string]any) { r["task_id"] = "a0000000z" })},
		{"branch", "another task", edit(func(r map[string]any) { r["branch"] = "main" })},
		{"rescue", "another task", edit(func(r map[string]any) { r["rescue_ref"] = "refs/heads/main" })},
		{"base", "damaged", edit(func(r map[string]any) { r["base_commit"] = "--output=" + victim })},
		{"version", "format 2", edit(func(r map[string]any) { r["v"] = 2 })},
		{"repository", "does not know it", edit(func(r map[string]any) { r["common_dir"] = filepath.Join(victim, ".git") })},
		{"no-json", "receipt", func(t *testing.T, s *Store, tree *Tree) { put(t, s.dir(tree.Task), receiptName, "{") }},
		{"linked-receipt", "symbolic link", func(t *testing.T, s *Store, tree *Tree) {
			path := filepath.Join(s.dir(tree.Task), receiptName)
			must(t, os.Rename(path, filepath.Join(s.dir(tree.Task), "r")))
			must(t, os.Symlink("r", path))
		}},
		{"pipe", "regular file", func(t *testing.T, s *Store, tree *Tree) {
			path := filepath.Join(s.dir(tree.Task), receiptName)
			must(t, os.Remove(path))
			must(t, unix.Mkfifo(path, 0o600))
		}},
		{"no-receipt", "no receipt", func(t *testing.T, s *Store, tree *Tree) {
			must(t, os.Remove(filepath.Join(s.dir(tree.Task), receiptName)))
		}},
		{"linked-tree", "not a folder", func(t *testing.T, s *Store, tree *Tree) {
			must(t, os.RemoveAll(tree.Path))
			must(t, os.Symlink(victim, tree.Path))
		}},
		{"linked-task", "not ours", func(t *testing.T, s *Store, tree *Tree) {
			must(t, os.Rename(s.dir(tree.Task), filepath.Join(filepath.Dir(s.root), "moved")))
			must(t, os.Symlink(filepath.Join(filepath.Dir(s.root), "moved"), s.dir(tree.Task)))
		}},
		{"stranger", "not ours", func(t *testing.T, s *Store, tree *Tree) { put(t, s.root, "mine/precious", "x") }},
		{"open-store", "written to by others", func(t *testing.T, s *Store, tree *Tree) { must(t, os.Chmod(s.root, 0o777)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, os.RemoveAll(victim))
			repository(t, victim)
			repo := repository(t, filepath.Join(t.TempDir(), "r"))
			s := Open(filepath.Join(t.TempDir(), "w"))
			tree := create(t, s, repo)
			put(t, tree.Path, "new", "work")
			tree.Release()
			c.plant(t, s, tree)
			before := listing(t, filepath.Dir(s.root), victim)
			_, err := s.Sweep(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Sweep: %v; want something about %q", err, c.want)
			}
			if c.name == "stranger" { // ours beside it is still looked after
				before = strings.ReplaceAll(before, `"ready"`, `"kept"`)
				if got := listing(t, filepath.Join(s.root, "mine"), victim); !strings.Contains(before, got[:20]) {
					t.Errorf("a stranger was touched: %s", got)
				}
				return
			}
			if after := listing(t, filepath.Dir(s.root), victim); after != before {
				t.Errorf("something was changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

// listing is the names and sizes of everything below some folders.
func listing(t *testing.T, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && !d.IsDir() {
				fmt.Fprintln(&b, path, info.Mode(), info.Size())
			}
			return err
		}))
	}
	return b.String()
}

// TestLeftovers sweeps what a crash leaves half written.
func TestLeftovers(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "w"))
	if list, err := s.Sweep(t.Context(), nil); err != nil || list != nil {
		t.Errorf("before anything: %v, %v", list, err)
	}
	put(t, s.dir("a0000000a"), ".receipt.json.tmp-123", "{")
	must(t, os.Chmod(filepath.Join(s.dir("a0000000a"), ".receipt.json.tmp-123"), 0o400))
	must(t, os.Chmod(s.root, 0o700))
	if _, err := s.Sweep(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if list, _ := os.ReadDir(s.root); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
}
