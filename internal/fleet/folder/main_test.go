package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain gives git a user of its own.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "folder-test-")
	if err != nil {
		panic(err)
	}
	config := filepath.Join(dir, "gitconfig")
	err = os.WriteFile(config, []byte("[user]\n name = Ada\n email = ada@localhost\n[init]\n defaultBranch = main\n templateDir =\n"+
		"[protocol \"file\"]\n allow = always\n[filter \"lfs\"]\n clean = cat\n smudge = echo smudged\n required = true\n"), 0o600)
	for _, kv := range [][2]string{{"HOME", dir}, {"GIT_CONFIG_GLOBAL", config}, {"GIT_CONFIG_NOSYSTEM", "1"}, {"XDG_CONFIG_HOME", dir}, {"TMPDIR", dir}} {
		if e := os.Setenv(kv[0], kv[1]); e != nil {
			err = e
		}
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// memory is a store for tests.
type memory struct {
	mu    sync.Mutex
	parts map[string][]byte
	puts  int // that were stored
	gets  int
	sent  int64 // bytes
	fail  func(what string, n int) error
	calls int
}

func newMemory() *memory { return &memory{parts: map[string][]byte{}} }

var errCut = errors.New("the line is cut")

// failAt fails the nth call of one kind and those after it.
func failAt(kind string, n int) func(string, int) error {
	seen := 0
	return func(what string, _ int) error {
		if what != kind {
			return nil
		}
		if seen++; seen >= n {
			return errCut
		}
		return nil
	}
}

func (s *memory) enter(what string) error {
	s.calls++
	if s.fail != nil {
		return s.fail(what, s.calls)
	}
	return nil
}

func (s *memory) Has(_ context.Context, digest string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.parts[digest]
	return ok, s.enter("has")
}

func (s *memory) Put(_ context.Context, digest string, part []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter("put"); err != nil {
		return err
	}
	s.puts++
	s.sent += int64(len(part))
	s.parts[digest] = append([]byte(nil), part...)
	return nil
}

func (s *memory) Get(_ context.Context, digest string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter("get"); err != nil {
		return nil, err
	}
	s.gets++
	part, ok := s.parts[digest]
	if !ok {
		return nil, fmt.Errorf("memory: %w", ErrMissing)
	}
	return append([]byte(nil), part...), nil
}

// sh is the user's git, in a folder.
func sh(t testing.TB, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return string(data)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails unless an error tells all of some words.
func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// repository makes one with two commits.
func newRepository(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home repo")
	must(t, os.Mkdir(dir, 0o755))
	sh(t, dir, "init", "-q")
	write(t, dir, "a.txt", "one\ntwo\nthree\n")
	write(t, dir, "old name.txt", strings.Repeat("a line of the renamed file\n", 20))
	write(t, dir, "gone.txt", "gone\n")
	write(t, dir, "run.sh", "#!/bin/sh\n")
	write(t, dir, "sub/b.txt", "b\n")
	write(t, dir, ".gitignore", "*.o\n.env\n")
	must(t, os.Symlink("a.txt", filepath.Join(dir, "link")))
	sh(t, dir, "add", ".")
	sh(t, dir, "commit", "-qm", "first")
	write(t, dir, "sub/c.txt", "c\n")
	sh(t, dir, "add", ".")
	sh(t, dir, "commit", "-qm", "second")
	return dir
}

// dirty changes a repository in every way that a user does.
func dirty(t testing.TB, dir string) {
	t.Helper()
	write(t, dir, "a.txt", "one\nstaged\nthree\n")
	sh(t, dir, "add", "a.txt")
	write(t, dir, "a.txt", "one\nstaged\nunstaged\n")
	sh(t, dir, "mv", "old name.txt", "new name.txt")
	sh(t, dir, "rm", "-q", "gone.txt")
	must(t, os.Remove(filepath.Join(dir, "sub/c.txt")))
	must(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	must(t, os.Remove(filepath.Join(dir, "link")))
	must(t, os.Symlink("sub/b.txt", filepath.Join(dir, "link")))
	write(t, dir, "binary", "\x00\x01\x02\xff")
	sh(t, dir, "add", "binary")
	write(t, dir, "later", "to be added\n")
	sh(t, dir, "add", "-N", "later")
	write(t, dir, "new\nline", "a name with a newline\n")
	write(t, dir, "latin-\xe9", "a name that is not UTF-8\n")
	write(t, dir, "x.o", "ignored\n")
	write(t, dir, ".env", "SECRET=1\n")
}

// state is all that Pack and Receive must leave as it is.
func state(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	admin := sh(t, dir, "rev-parse", "--absolute-git-dir")
	for _, name := range []string{"index", "HEAD", "config", "logs/HEAD", "packed-refs"} {
		data, _ := os.ReadFile(filepath.Join(admin, name))
		fmt.Fprintf(&b, "%s: %x\n", name, data)
	}
	b.WriteString(sh(t, dir, "for-each-ref"))
	c := exec.Command("git", "status", "--porcelain=v2", "--branch", "-z", "--ignored")
	c.Dir, c.Env = dir, append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
	out, err := c.Output()
	must(t, err)
	b.Write(out)
	return b.String()
}

// filesOf lists all files of a repository.
func filesOf(t testing.TB, admin string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.Walk(admin, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			when := info.ModTime().String()
			if strings.Contains(path, "/objects/") {
				when = "" // git renews the time of an object that it finds where it would write it
			}
			fmt.Fprintln(&b, path, info.Size(), when)
		}
		return err
	}))
	return b.String()
}

func newCache(t testing.TB) *Cache { return &Cache{Dir: filepath.Join(t.TempDir(), "cache")} }

// there packs a folder and unpacks it on a worker.
func there(t testing.TB, home string, c *Cache, ch Choice, s Store) (Manifest, string) {
	t.Helper()
	ctx := t.Context()
	id, err := Identify(ctx, home)
	must(t, err)
	ch.Have, err = c.Have(ctx, id)
	must(t, err)
	m, err := Pack(ctx, home, ch, s)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	work, err := c.Unpack(ctx, m, Limits{}, s, dir)
	must(t, err)
	if want := filepath.Join(dir, m.Subdir); work != want {
		t.Errorf("the task works in %s, want %s", work, want)
	}
	return m, dir
}

// back collects what was changed and receives it at home.
func back(t testing.TB, home, dir string, c *Cache, m Manifest, s Store) Received {
	t.Helper()
	r, err := c.Collect(t.Context(), dir, m, Ending{Message: "Work of b1", Time: time.Unix(1_800_000_000, 0)}, Limits{}, s)
	must(t, err)
	got, err := Receive(t.Context(), home, m, r, "refs/drover/tasks/b1", Limits{}, s)
	must(t, err)
	return got
}
