package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/task"
)

func TestCreate(t *testing.T) {
	for _, c := range []struct {
		name, repo, store string
		prepare           func(t *testing.T, repo string) (folder string)
		uncommitted       int
	}{
		{name: "plain"},
		{name: "sub", prepare: func(t *testing.T, repo string) string { return filepath.Join(repo, "sub") }},
		{name: "new-folder", uncommitted: 1, prepare: func(t *testing.T, repo string) string {
			put(t, repo, "fresh/deep/x", "x")
			return filepath.Join(repo, "fresh/deep")
		}},
		{name: "names", repo: "a b\nc Größe'\"$(x)", store: "s p\na ç\tce"},
		{name: "link", prepare: func(t *testing.T, repo string) string {
			link := filepath.Join(t.TempDir(), "link")
			must(t, os.Symlink(filepath.Join(repo, "sub"), link))
			return link
		}},
		{name: "detached", prepare: func(t *testing.T, repo string) string {
			sh(t, repo, "checkout", "-q", "--detach", "HEAD~1")
			return repo
		}},
		{name: "dirty", uncommitted: 2, prepare: func(t *testing.T, repo string) string {
			put(t, repo, "a", "mine")
			put(t, repo, "new", "mine")
			return repo
		}},
		{name: "locked-index", prepare: func(t *testing.T, repo string) string { put(t, repo, ".git/index.lock", ""); return repo }},
		{name: "linked", prepare: func(t *testing.T, repo string) string {
			other := filepath.Join(t.TempDir(), "other")
			sh(t, repo, "worktree", "add", "-qb", "other", other)
			put(t, other, "o", "o")
			sh(t, other, "add", ".")
			sh(t, other, "commit", "-qm", "other")
			return other
		}},
		{name: "shallow", prepare: func(t *testing.T, repo string) string {
			clone := filepath.Join(t.TempDir(), "clone")
			sh(t, repo, "clone", "-q", "--depth=1", "file://"+repo, clone)
			return clone
		}},
		{name: "submodule", prepare: func(t *testing.T, repo string) string {
			outer := repository(t, filepath.Join(t.TempDir(), "outer"))
			sh(t, outer, "submodule", "-q", "add", repo, "mod")
			return filepath.Join(outer, "mod")
		}},
		{name: "with-submodule", uncommitted: 1, prepare: func(t *testing.T, repo string) string {
			outer := repository(t, filepath.Join(t.TempDir(), "outer"))
			sh(t, outer, "submodule", "-q", "add", repo, "mod")
			sh(t, outer, "commit", "-qm", "with")
			sh(t, filepath.Join(outer, "mod"), "checkout", "-q", "HEAD~1")
			return outer
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := repository(t, filepath.Join(t.TempDir(), "r"+c.repo))
			folder := repo
			if c.prepare != nil {
				folder = c.prepare(t, repo)
			}
			head, branches := sh(t, folder, "rev-parse", "HEAD"), sh(t, folder, "for-each-ref", "--format=%(refname) %(objectname)")
			where, _ := try(folder, "status", "--porcelain=v2", "--branch")
			s := Open(filepath.Join(t.TempDir(), "state"+c.store, "worktrees"))
			tree := create(t, s, folder)

			if got := sh(t, tree.Path, "rev-parse", "HEAD"); got != head || tree.Base != head {
				t.Errorf("it is at %s, base %s; want %s", got, tree.Base, head)
			}
			if got := sh(t, tree.Dir, "symbolic-ref", "--short", "HEAD"); got != "drover/"+string(tree.Task) || tree.Branch != got {
				t.Errorf("branch %s, tree says %s", got, tree.Branch)
			}
			if got, want := sh(t, tree.Dir, "rev-parse", "--show-prefix"), sh(t, folder, "rev-parse", "--show-prefix"); got != want {
				t.Errorf("folder %q, want %q", got, want)
			}
			if tree.Uncommitted != c.uncommitted {
				t.Errorf("%d uncommitted, want %d", tree.Uncommitted, c.uncommitted)
			}
			if got := sh(t, tree.Path, "status", "--porcelain"); got != "" {
				t.Errorf("not clean: %s", got)
			}
			info, err := os.Stat(filepath.Join(s.root, string(tree.Task), "receipt.json"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("receipt: %v, %v", info, err)
			}
			o, err := s.Finish(t.Context(), tree)
			if err != nil || !o.Removed || o.Path != "" || o.Branch != "" {
				t.Errorf("Finish = %+v, %v", o, err)
			}
			if got, _ := try(folder, "status", "--porcelain=v2", "--branch"); got != where {
				t.Errorf("the user's work tree has changed: %s", got)
			}
			if got := sh(t, folder, "for-each-ref", "--format=%(refname) %(objectname)"); got != branches {
				t.Errorf("refs are %s, were %s", got, branches)
			}
			if left, _ := os.ReadDir(s.root); len(left) != 0 {
				t.Errorf("left in the store: %v", left)
			}
		})
	}
}

func TestBase(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree, err := s.Create(t.Context(), Request{Folder: filepath.Join(repo, "sub"), Task: "a0000000b", Base: "main~1"})
	must(t, err)
	if want := sh(t, repo, "rev-parse", "HEAD~1"); tree.Base != want {
		t.Errorf("base %s, want %s", tree.Base, want)
	}
	if info, err := os.Stat(tree.Dir); err != nil || !info.IsDir() || filepath.Base(tree.Dir) != "sub" {
		t.Errorf("the folder, which the commit does not have: %v, %v", info, err)
	}
	if o, err := s.Finish(t.Context(), tree); err != nil || !o.Removed {
		t.Errorf("Finish = %+v, %v", o, err)
	}
}

func TestRefused(t *testing.T) {
	plain := func(t *testing.T) Request { return Request{Folder: repository(t, filepath.Join(t.TempDir(), "r"))} }
	with := func(change func(t *testing.T, q *Request)) func(t *testing.T) Request {
		return func(t *testing.T) Request { q := plain(t); change(t, &q); return q }
	}
	for _, c := range []struct {
		name, want string
		request    func(t *testing.T) Request
	}{
		{"no-repository", "not in a git repository", func(t *testing.T) Request { return Request{Folder: t.TempDir()} }},
		{"no-folder", "no such file", func(t *testing.T) Request { return Request{Folder: filepath.Join(t.TempDir(), "x")} }},
		{"relative", "not an absolute path", func(t *testing.T) Request { return Request{Folder: "."} }},
		{"bare", "bare repository", func(t *testing.T) Request {
			dir := t.TempDir()
			sh(t, dir, "init", "-q", "--bare")
			return Request{Folder: dir}
		}},
		{"empty", "no commit yet", func(t *testing.T) Request {
			dir := t.TempDir()
			sh(t, dir, "init", "-q")
			return Request{Folder: dir}
		}},
		{"inside-git", "repository's own files", with(func(t *testing.T, q *Request) { q.Folder += "/.git" })},
		{"task", "not a task ID", with(func(t *testing.T, q *Request) { q.Task = "../../x" })},
		{"base", "no commit", with(func(t *testing.T, q *Request) { q.Base = "nowhere" })},
		{"base-option", "no commit", with(func(t *testing.T, q *Request) { q.Base = "--all" })},
		{"branch", "has a branch drover/a0000000a", with(func(t *testing.T, q *Request) { sh(t, q.Folder, "branch", "drover/a0000000a") })},
		{"branch-drover", "rename it", with(func(t *testing.T, q *Request) { sh(t, q.Folder, "branch", "drover") })},
		{"filter", "sets filter.x.smudge", with(func(t *testing.T, q *Request) { sh(t, q.Folder, "config", "filter.x.smudge", "cat") })},
		{"filter-included", "sets filter.a.b.process", with(func(t *testing.T, q *Request) {
			put(t, q.Folder, "more", "[filter \"a.b\"]\n process = cat\n")
			sh(t, q.Folder, "config", "include.path", "../more")
		})},
		{"filter-of-worktree", "sets filter.x.clean", with(func(t *testing.T, q *Request) {
			sh(t, q.Folder, "config", "extensions.worktreeConfig", "true")
			sh(t, q.Folder, "config", "--worktree", "filter.x.clean", "cat")
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := c.request(t)
			if q.Task == "" {
				q.Task = "a0000000a"
			}
			s := Open(filepath.Join(t.TempDir(), "w"))
			tree, err := s.Create(t.Context(), q)
			if err == nil || tree != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Create = %+v, %v; want something about %q", tree, err, c.want)
			}
			if list, _ := os.ReadDir(s.root); len(list) != 0 {
				t.Errorf("left behind: %v", list)
			}
		})
	}
	for name, plant := range map[string]func(t *testing.T, dir string){
		"open-store":   func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)); must(t, os.Chmod(dir, 0o777)) },
		"linked-store": func(t *testing.T, dir string) { must(t, os.Symlink(t.TempDir(), dir)) },
		"task-there":   func(t *testing.T, dir string) { must(t, os.MkdirAll(filepath.Join(dir, "a0000000a"), 0o700)) },
		"task-linked": func(t *testing.T, dir string) {
			must(t, os.MkdirAll(dir, 0o700))
			must(t, os.Symlink(t.TempDir(), filepath.Join(dir, "a0000000a")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := plain(t)
			q.Task = "a0000000a"
			s := Open(filepath.Join(t.TempDir(), "w"))
			plant(t, s.root)
			if tree, err := s.Create(t.Context(), q); err == nil {
				t.Errorf("made %s", tree.Path)
			}
			if got := sh(t, q.Folder, "worktree", "list"); strings.Contains(got, "\n") {
				t.Errorf("worktrees: %s", got)
			}
		})
	}
}

// TestFailed ends git in the middle of a checkout, by a filter that the user has
// asked for.
func TestFailed(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	user(t, "[filter \"die\"]\n smudge = kill -9 $PPID\n")
	put(t, repo, ".git/info/attributes", "sub/b filter=die\n")
	s := Open(filepath.Join(t.TempDir(), "w"))
	before := traces(t, s, repo)
	if tree, err := s.Create(t.Context(), Request{Folder: repo, Task: "a0000000a"}); err == nil {
		t.Errorf("made %+v", tree)
	}
	if after := traces(t, s, repo); after != before {
		t.Errorf("left behind: %s", after)
	}
}

// user adds to the user's own configuration.
func user(t *testing.T, text string) {
	t.Helper()
	old, err := os.ReadFile(os.Getenv("GIT_CONFIG_GLOBAL"))
	must(t, err)
	path := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(path, append(old, text...), 0o600))
	t.Setenv("GIT_CONFIG_GLOBAL", path)
}

func TestRaces(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	root := filepath.Join(t.TempDir(), "w")
	const each = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range each {
		wg.Go(func() {
			s := Open(root)
			tree, err := s.Create(t.Context(), Request{Folder: repo, Task: task.NewID(task.LocalAgent)})
			if err != nil {
				t.Error(err)
				return
			}
			put(t, tree.Path, "mine", string(tree.Task))
			if _, err := Open(root).Sweep(t.Context(), nil); err != nil {
				t.Errorf("sweep beside: %v", err)
			}
			if data, err := os.ReadFile(filepath.Join(tree.Path, "mine")); err != nil || string(data) != string(tree.Task) {
				t.Errorf("a sweep has touched a tree that is in use: %v", err)
			}
			if o, err := s.Finish(t.Context(), tree); err != nil || o.Removed {
				t.Errorf("Finish = %+v, %v", o, err)
			}
		})
		wg.Go(func() { // all for one task
			tree, err := Open(root).Create(t.Context(), Request{Folder: repo, Task: "a0000000a"})
			if err != nil {
				t.Logf("not made: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			won++
			t.Cleanup(tree.Release)
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d have made the tree of one task", won)
	}
}

// TestClaim has sweeps take the folder of a task away while it is being claimed.
func TestClaim(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "w"))
	must(t, s.open())
	s.after = func(step string) {
		if step == "folder" {
			s.after = nil
			if _, err := Open(s.root).Sweep(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
	}
	lock, err := s.claim(t.Context(), "a0000000a")
	must(t, err)
	defer func() { must(t, lock.Close()) }()
	if _, err := s.hold("a0000000a"); !errors.Is(err, ErrBusy) {
		t.Errorf("claimed, and not held: %v", err)
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.Sweep(t.Context(), nil)
			}
		}
	})
	for range 300 {
		id := task.NewID(task.LocalAgent)
		lock, err := s.claim(t.Context(), id)
		if err != nil {
			t.Error(err)
			break
		}
		must(t, os.Remove(s.dir(id)))
		must(t, lock.Close())
	}
	close(stop)
	wg.Wait()
}

// TestEnviron starts git of ours, and of an agent, where variables point elsewhere.
func TestEnviron(t *testing.T) {
	other := repository(t, filepath.Join(t.TempDir(), "other"))
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	head := sh(t, other, "rev-parse", "HEAD")
	for name, value := range map[string]string{"GIT_DIR": other + "/.git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other + "/.git/index",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "true"} {
		t.Setenv(name, value)
	}
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, filepath.Join(repo, "sub"))
	if tree.Repo != repo || strings.Contains(strings.Join(gitrun.Environ(os.Environ()), "\n"), other) {
		t.Errorf("made from %s; environment %q", tree.Repo, gitrun.Environ(os.Environ()))
	}
	if got, ok := tree.Map(filepath.Join(repo, "sub/x")); !ok || got != filepath.Join(tree.Dir, "x") {
		t.Errorf("Map = %q, %v", got, ok)
	}
	if got, ok := tree.Map(repo + "-other"); ok {
		t.Errorf("outside: %q", got)
	}
	put(t, tree.Path, "n", "n")
	if o, err := s.Finish(t.Context(), tree); err != nil || o.Files != 1 || o.Rescue == "" {
		t.Errorf("Finish = %+v, %v", o, err)
	}
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT"} {
		must(t, os.Unsetenv(name))
	}
	if got := sh(t, other, "status", "--porcelain"); got != "" || sh(t, other, "rev-parse", "HEAD") != head {
		t.Errorf("the other repository was changed: %s", got)
	}
}

func TestResume(t *testing.T) {
	repo := repository(t, filepath.Join(t.TempDir(), "r"))
	s := Open(filepath.Join(t.TempDir(), "w"))
	tree := create(t, s, filepath.Join(repo, "sub"))
	soon, stop := context.WithCancelCause(t.Context())
	stop(ErrBusy)
	if _, err := s.Resume(soon, tree.Task); !errors.Is(err, ErrBusy) {
		t.Errorf("one that is in use: %v", err)
	}
	put(t, tree.Path, "new", "1")
	if o, err := s.Finish(t.Context(), tree); err != nil || o.Removed {
		t.Fatalf("Finish = %+v, %v", o, err)
	}
	if _, err := s.Finish(t.Context(), tree); err == nil {
		t.Error("finished twice")
	}
	again, err := s.Resume(t.Context(), tree.Task)
	must(t, err)
	if again.Path != tree.Path || again.Dir != tree.Dir || again.Base != tree.Base || again.Repo != repo {
		t.Errorf("resumed %+v, was %+v", again, tree)
	}
	if got := sh(t, repo, "worktree", "list", "--porcelain"); !strings.Contains(got, "locked in use by drover task "+string(tree.Task)) {
		t.Errorf("in use, and not locked: %s", got)
	}
	must(t, os.Remove(filepath.Join(tree.Path, "new")))
	if o, err := s.Finish(t.Context(), again); err != nil || !o.Removed || o.Rescue != rescueOf(tree.Task) {
		t.Fatalf("Finish = %+v, %v", o, err)
	}
	renewed, err := s.Create(t.Context(), Request{Folder: repo, Task: tree.Task})
	must(t, err)
	if renewed.Path != tree.Path {
		t.Errorf("made again at %s, was at %s", renewed.Path, tree.Path)
	}
	if o, err := s.Finish(t.Context(), renewed); err != nil || !o.Removed {
		t.Fatalf("Finish = %+v, %v", o, err)
	}
	for _, id := range []task.ID{tree.Task, "a0000000a"} {
		if _, err := s.Resume(t.Context(), id); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("one that is gone: %v", err)
		}
	}
	other := create(t, s, repo)
	other.Release()
	sh(t, repo, "worktree", "remove", "-f", "-f", other.Path)
	if _, err := s.Resume(t.Context(), other.Task); !errors.Is(err, ErrGone) {
		t.Errorf("one that the user has removed: %v", err)
	}
	if _, err := s.Resume(t.Context(), "../x"); err == nil {
		t.Error("a path was taken for a task")
	}
}
