package merge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

// TestMain gives git a user of its own. The test binary also plays a merge that is killed:
// its words are the folder of the test, the step to die behind, and what to do.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "merge" {
		play(os.Args[2], os.Args[3], os.Args[4])
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "merge-test-")
	if err != nil {
		panic(err)
	}
	config := filepath.Join(dir, "gitconfig")
	err = os.WriteFile(config, []byte("[user]\n name = u\n email = u@localhost\n[init]\n defaultBranch = main\n templateDir =\n"),
		0o600)
	for _, kv := range [][2]string{{"HOME", dir}, {"GIT_CONFIG_GLOBAL", config}, {"GIT_CONFIG_NOSYSTEM", "1"}} {
		err = errors.Join(err, os.Setenv(kv[0], kv[1]))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const worker = task.ID("a0000000a")

// play is a merge of the worker's change that dies behind a step.
func play(dir, at, what string) {
	s := Open(filepath.Join(dir, "state", "merges"), worktree.Open(filepath.Join(dir, "state", "worktrees")))
	s.after = func(step string) {
		fmt.Println(step)
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx := context.Background()
	var err error
	if what == "recover" {
		_, err = s.Recover(ctx)
	} else {
		_, err = mergeOne(ctx, s, dir, worker)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
}

func mergeOne(ctx context.Context, s *Store, dir string, id task.ID) ([]string, error) {
	c, err := worktree.Open(filepath.Join(dir, "state", "worktrees")).Change(ctx, id, filepath.Join(dir, "repo"))
	if err != nil {
		return nil, err
	}
	t, err := s.Begin(ctx, Request{Folder: filepath.Join(dir, "repo")})
	if err != nil {
		return nil, err
	}
	oid, err := t.Rebase(ctx, c, "work")
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	files, err := t.Land(ctx, oid, "drover: merge")
	return files, errors.Join(err, t.Close())
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func save(t testing.TB, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a repository with a branch that is checked out, and a worktree of a worker.
type world struct {
	dir, repo string
	store     *Store
	trees     *worktree.Store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &world{dir: dir, repo: filepath.Join(dir, "repo")}
	must(t, os.MkdirAll(filepath.Join(dir, "state"), 0o700))
	w.trees = worktree.Open(filepath.Join(dir, "state", "worktrees"))
	w.store = Open(filepath.Join(dir, "state", "merges"), w.trees)
	must(t, os.MkdirAll(w.repo, 0o755))
	git(t, w.repo, "init", "-q")
	save(t, w.repo, "a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "dir/old", "old\n", "gone/x", "x\n", "same", "same\n")
	git(t, w.repo, "add", ".")
	git(t, w.repo, "commit", "-qm", "first")
	return w
}

// worker makes a worktree, changes it and lets go of it.
func (w *world) worker(t testing.TB, id task.ID, do func(dir string)) {
	t.Helper()
	tree, err := w.trees.Create(t.Context(), worktree.Request{Folder: w.repo, Task: id, Session: "s00000001"})
	must(t, err)
	do(tree.Path)
	_, err = w.trees.Finish(t.Context(), tree)
	must(t, err)
}

// usual is a change with a commit and more: changed, new and removed files, a folder
// that becomes a file and the other way round.
func usual(t testing.TB) func(dir string) {
	return func(dir string) {
		save(t, dir, "a", "one\n2\n3\n4\n5\n6\n7\n8\n9\n")
		git(t, dir, "commit", "-qam", "mine")
		save(t, dir, "new/file", strings.Repeat("new\n", 1000), "dir2", "text")
		must(t, os.RemoveAll(filepath.Join(dir, "gone")))
		must(t, os.WriteFile(filepath.Join(dir, "gone"), []byte("a file now\n"), 0o755))
		must(t, os.Remove(filepath.Join(dir, "same")))
		save(t, dir, "same/inside", "x\n")
	}
}

// state is what the user sees of a work tree, and nothing of Drover's.
func (w *world) state(t testing.TB) string {
	t.Helper()
	head, _ := os.ReadFile(filepath.Join(w.repo, ".git", "HEAD"))
	return git(t, w.repo, "rev-parse", "HEAD^{tree}") + "\n" + git(t, w.repo, "status", "--porcelain", "--untracked-files=all") +
		"\n" + string(head)
}

// A merge reads and makes checkouts of a repository in its turn: a git that reads what another has half
// made or half removed fails.
func TestBeginTakesATurn(t *testing.T) {
	w := newWorld(t)
	turn, err := w.trees.Turn(t.Context())
	must(t, err)
	enough := errors.New("enough")
	ctx, done := context.WithTimeoutCause(t.Context(), time.Second, enough)
	defer done()
	w.store.after = func(step string) { t.Errorf("%s in the turn of another", step) }
	if _, err := w.store.Begin(ctx, Request{Folder: w.repo}); !errors.Is(err, enough) {
		t.Errorf("Begin = %v", err)
	}
	w.store.after = nil
	must(t, turn.Close())
	train, err := w.store.Begin(t.Context(), Request{Folder: w.repo})
	must(t, err)
	must(t, train.Close())
}

func TestMerge(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	w.worker(t, "a0000000b", func(dir string) {
		save(t, dir, "a", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n")
		git(t, dir, "commit", "-qam", "also mine")
	})
	save(t, w.repo, "untracked", "mine\n", "more", "more\n")
	git(t, w.repo, "add", "more")
	git(t, w.repo, "commit", "-qm", "meanwhile")
	for _, id := range []task.ID{worker, "a0000000b"} {
		left, err := mergeOne(t.Context(), w.store, w.dir, id)
		if err != nil || len(left) > 0 {
			t.Fatalf("merge of %s: %v, left %v", id, err, left)
		}
	}
	if got := git(t, w.repo, "status", "--porcelain"); got != "?? untracked" {
		t.Errorf("status %q", got)
	}
	if got := git(t, w.repo, "log", "--format=%s %an"); got != "also mine u\nwork u\nmine u\nmeanwhile u\nfirst u" {
		t.Errorf("log %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(w.repo, "a")); string(got) != "one\n2\n3\n4\n5\n6\n7\n8\nnine\n" {
		t.Errorf("a is %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(w.repo, "gone")); string(got) != "a file now\n" {
		t.Errorf("gone is %q", got)
	}
	if got := git(t, w.repo, "worktree", "list"); strings.Contains(got, "drover-merge") {
		t.Errorf("left %s", got)
	}
	if _, err := mergeOne(t.Context(), w.store, w.dir, worker); !errors.Is(err, ErrNothing) {
		t.Errorf("again: %v", err)
	}
}

func TestConflict(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	save(t, w.repo, "a", "uno\n2\n3\n4\n5\n6\n7\n8\n9\n")
	git(t, w.repo, "commit", "-qam", "theirs")
	before := w.state(t)
	_, err := mergeOne(t.Context(), w.store, w.dir, worker)
	var c *Conflict
	if !errors.As(err, &c) || !slices.Equal(c.Files, []string{"a"}) || !strings.Contains(c.Text, "uno") {
		t.Errorf("%v %+v", err, c)
	}
	if got := w.state(t); got != before {
		t.Errorf("state %s, was %s", got, before)
	}
}

// What the user has and git does not, and a branch that cannot move, are left alone.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, w *world)
		want    string
	}{
		"changed":   {func(t *testing.T, w *world) { save(t, w.repo, "dir/old", "mine\n") }, "changes that are not committed, in dir/old (commit"},
		"untracked": {func(t *testing.T, w *world) { save(t, w.repo, "new/file", "mine\n") }, "would be overwritten: new/file (move"},
		"parent":    {func(t *testing.T, w *world) { save(t, w.repo, "new", "mine\n") }, "would be overwritten: new (move"},
		"inside":    {func(t *testing.T, w *world) { save(t, w.repo, "gone/mine", "mine\n") }, "would be overwritten: gone/mine (move"},
		"ignored": {func(t *testing.T, w *world) {
			c, err := w.trees.Change(t.Context(), worker, w.repo)
			must(t, err)
			git(t, c.Path, "add", "-A")
			git(t, c.Path, "commit", "-qm", "all")
			save(t, w.repo, ".git/info/exclude", "dir2\n", "dir2", "mine\n")
		}, "would be overwritten: dir2 (move"},
		"hidden": {func(t *testing.T, w *world) {
			git(t, w.repo, "update-index", "--assume-unchanged", "a")
			save(t, w.repo, "a", "mine\n")
		}, "--skip-worktree: a (unmark"},
		"locked":   {func(t *testing.T, w *world) { save(t, w.repo, ".git/index.lock", "") }, "git is at work"},
		"merging":  {func(t *testing.T, w *world) { save(t, w.repo, ".git/MERGE_HEAD", "") }, "in the middle of something"},
		"detached": {func(t *testing.T, w *world) { git(t, w.repo, "checkout", "-q", "--detach") }, "--into"},
		"driver":   {func(t *testing.T, w *world) { git(t, w.repo, "config", "merge.x.driver", "touch run") }, "sets merge.x.driver"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.worker(t, worker, usual(t))
			c.prepare(t, w)
			before := w.state(t)
			_, err := mergeOne(t.Context(), w.store, w.dir, worker)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want %q", err, c.want)
			}
			if name == "locked" {
				must(t, os.Remove(filepath.Join(w.repo, ".git", "index.lock")))
			}
			if got := w.state(t); got != before {
				t.Errorf("state %s, was %s", got, before)
			}
		})
	}
}

// A branch that is checked out nowhere moves alone.
func TestElsewhere(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	git(t, w.repo, "branch", "release")
	save(t, w.repo, "dir/old", "mine\n")
	before := w.state(t)
	c, err := w.trees.Change(t.Context(), worker, w.repo)
	must(t, err)
	train, err := w.store.Begin(t.Context(), Request{Folder: w.repo, Branch: "release"})
	must(t, err)
	oid, err := train.Rebase(t.Context(), c, "work")
	must(t, err)
	_, err = train.Land(t.Context(), oid, "note")
	must(t, errors.Join(err, train.Close()))
	if git(t, w.repo, "rev-parse", "release") != oid || w.state(t) != before {
		t.Errorf("state %s, was %s", w.state(t), before)
	}
}

// Somebody else moves the branch between the check and the move.
func TestMoved(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	c, err := w.trees.Change(t.Context(), worker, w.repo)
	must(t, err)
	train, err := w.store.Begin(t.Context(), Request{Folder: w.repo})
	must(t, err)
	oid, err := train.Rebase(t.Context(), c, "work")
	must(t, err)
	git(t, w.repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
	if _, err = train.Land(t.Context(), oid, "note"); !errors.Is(err, ErrMoved) {
		t.Fatalf("Land = %v", err)
	}
	must(t, train.Refresh(t.Context()))
	oid, err = train.Rebase(t.Context(), c, "work")
	must(t, err)
	_, err = train.Land(t.Context(), oid, "note")
	must(t, errors.Join(err, train.Close()))
	if got := git(t, w.repo, "log", "--format=%s"); got != "work\nmine\nmeanwhile\nfirst" {
		t.Errorf("log %q", got)
	}
}

// TestKilled kills a merge behind each of its steps, and its recovery too: the branch and
// the work tree are then as before or as after.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	before := w.state(t)
	out, err := exec.Command(os.Args[0], "merge", w.dir, "never", "merge").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := w.state(t)
	steps := strings.Fields(strings.ReplaceAll(string(out), " ", "_"))
	if len(steps) < 12 {
		t.Fatalf("steps %q", steps)
	}
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.worker(t, worker, usual(t))
			kill(t, w, step, "merge")
			if step == "files" || step == "index" {
				// Half of a file that git was writing, and one that the user has changed since.
				must(t, os.MkdirAll(filepath.Join(w.repo, "new"), 0o755))
				must(t, os.WriteFile(filepath.Join(w.repo, "new", "file"), []byte("new\nnew\nne"), 0o644))
			}
			said, err := w.store.Recover(t.Context())
			must(t, err)
			want := before
			if i >= slices.Index(steps, "moved") {
				want = after
			}
			if got := w.state(t); got != want {
				t.Errorf("killed behind %s: state %s\nwant %s\nsaid %q", step, got, want, said)
			}
			left, err := mergeOne(t.Context(), w.store, w.dir, worker)
			if want == after && errors.Is(err, ErrNothing) {
				err = nil
			}
			if err != nil || len(left) > 0 || w.state(t) != after {
				t.Errorf("then: %v, left %v, state %s", err, left, w.state(t))
			}
			if _, err := os.Stat(filepath.Join(w.repo, ".git", "index.lock")); err == nil {
				t.Error("the lock of the index is left")
			}
		})
	}
	for _, step := range []string{"index", "files", "index_written", "index_replaced", "unlocked"} {
		t.Run("recover-"+step, func(t *testing.T) {
			w := newWorld(t)
			w.worker(t, worker, usual(t))
			kill(t, w, "moved", "merge")
			kill(t, w, step, "recover")
			_, err := w.store.Recover(t.Context())
			if err != nil || w.state(t) != after {
				t.Errorf("%v, state %s", err, w.state(t))
			}
		})
	}
}

// kill runs a merge that dies behind a step.
func kill(t *testing.T, w *world, step, what string) {
	t.Helper()
	c := exec.Command(os.Args[0], "merge", w.dir, strings.ReplaceAll(step, "_", " "), what)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
}

// What the user has changed since the crash stays.
func TestRecoverKeeps(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, usual(t))
	kill(t, w, "moved", "merge")
	save(t, w.repo, "a", "mine\n", "new/file", "mine\n")
	said, err := w.store.Recover(t.Context())
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "left as they are: a, new/file") {
		t.Fatalf("said %q, %v", said, err)
	}
	if got := git(t, w.repo, "status", "--porcelain"); got != "M a\n M new/file" && got != " M a\n M new/file" {
		t.Errorf("status %q", got)
	}
}

// An agent that has merged the branch into its own brings only what is its own.
func TestMergedInto(t *testing.T) {
	w := newWorld(t)
	w.worker(t, worker, func(dir string) {
		save(t, dir, "a", "one\n2\n3\n4\n5\n6\n7\n8\n9\n")
		git(t, dir, "commit", "-qam", "mine")
		save(t, w.repo, "a", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n", "theirs", "x\n")
		git(t, w.repo, "add", ".")
		git(t, w.repo, "commit", "-qm", "theirs")
		git(t, dir, "merge", "-q", "--no-edit", "main")
		save(t, dir, "theirs", "x\nmine\n")
	})
	save(t, w.repo, "later", "x\n")
	git(t, w.repo, "add", ".")
	git(t, w.repo, "commit", "-qm", "later")
	left, err := mergeOne(t.Context(), w.store, w.dir, worker)
	if err != nil || len(left) > 0 {
		t.Fatalf("%v, left %v", err, left)
	}
	if got := git(t, w.repo, "log", "--format=%s"); got != "work\nmine\nlater\ntheirs\nfirst" {
		t.Errorf("log %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(w.repo, "a")); string(got) != "one\n2\n3\n4\n5\n6\n7\n8\nnine\n" {
		t.Errorf("a is %q", got)
	}
	if got := git(t, w.repo, "status", "--porcelain"); got != "" {
		t.Errorf("status %q", got)
	}
}
