package folder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// statusOf is what git status and git diff show.
func statusOf(t testing.TB, dir string) string {
	t.Helper()
	// A remote is no part of what travels.
	status := slices.DeleteFunc(strings.Split(sh(t, dir, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"), "\x00"),
		func(line string) bool {
			return strings.HasPrefix(line, "# branch.upstream") || strings.HasPrefix(line, "# branch.ab")
		})
	return strings.Join([]string{
		strings.Join(status, "\x00"),
		sh(t, dir, "diff", "--binary"),
		sh(t, dir, "diff", "--cached", "--binary"),
		sh(t, dir, "log", "--format=%H %an %s"),
	}, "\n")
}

// On the worker git shows what it showed at home: staged, unstaged, untracked; and at home
// nothing is other than before.
func TestThere(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	dirty(t, home)
	_ = statusOf(t, home) // it may write the index
	before, files := state(t, home), filesOf(t, filepath.Join(home, ".git"))
	m, dir := there(t, home, c, Choice{AllUntracked: true, Untracked: []string{".env"}}, s)
	if state(t, home) != before {
		t.Error("the repository at home is not as it was")
	}
	if now := filesOf(t, filepath.Join(home, ".git")); now != files {
		t.Error("files of the repository at home are not as they were:")
		for line := range strings.SplitSeq(now, "\n") {
			if !strings.Contains(files, line+"\n") {
				t.Error(line)
			}
		}
	}
	// A file that git add -N named is untracked there: a commit cannot say more of it.
	sh(t, home, "rm", "-q", "--cached", "later")
	shown := statusOf(t, home)
	if got := statusOf(t, dir); got != shown {
		t.Errorf("at home:\n%q\non the worker:\n%q", shown, got)
	}
	if !m.Changes() || m.Branch != "main" || m.Index == "" {
		t.Errorf("manifest %+v", m)
	}
	if _, err := os.Lstat(filepath.Join(dir, "x.o")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an ignored file that nobody chose has travelled")
	}
	if got := read(t, dir, ".env"); got != "SECRET=1\n" {
		t.Errorf("the chosen ignored file is %q", got)
	}
	if got := read(t, dir, "latin-\xe9"); got != "a name that is not UTF-8\n" {
		t.Errorf("%q", got)
	}
	if name := sh(t, dir, "config", "user.name"); name != "Ada" {
		t.Errorf("user %q", name)
	}
	sh(t, dir, "fsck", "--strict")
}

// What the task changed comes back under the ref, alone, and nothing else at home changes.
func TestBack(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	dirty(t, home)
	m, dir := there(t, home, c, Choice{}, s)
	before := state(t, home)

	write(t, dir, "a.txt", "one\nstaged\nunstaged\nby the task\n")
	write(t, dir, "made/by-task", "new\n")
	write(t, dir, "made/out.o", "ignored\n")
	must(t, os.Remove(filepath.Join(dir, "sub/b.txt")))

	got := back(t, home, dir, c, m, s)
	if got.Files != 3 || got.Added != 2 || got.Removed != 1 || got.Base != m.Snapshot {
		t.Errorf("received %+v", got)
	}
	diff := sh(t, home, "diff", "--name-status", got.Base, got.Ref)
	if want := "M\ta.txt\nA\tmade/by-task\nD\tsub/b.txt"; diff != want {
		t.Errorf("the ref has\n%s\nwant\n%s", diff, want)
	}
	if text := sh(t, home, "log", "-1", "--format=%s", got.Ref); text != "Work of b1" {
		t.Errorf("commit %q", text)
	}
	sh(t, home, "update-ref", "-d", got.Ref)
	if state(t, home) != before {
		t.Error("more than the ref has changed at home")
	}
	sh(t, home, "fsck", "--strict")
}

// Without changes of the user, the commits of the task come back as a straight line on top of
// HEAD, and what it left uncommitted is one more commit.
func TestCommits(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		home, c, s := newRepository(t), newCache(t), newMemory()
		m, dir := there(t, home, c, Choice{}, s)
		write(t, dir, "x", "1\n")
		sh(t, dir, "add", "x")
		sh(t, dir, "commit", "-qm", "by the task")
		want := "by the task\nsecond\nfirst"
		if left {
			write(t, dir, "y", "2\n")
			want = "Work of b1\n" + want
		}
		got := back(t, home, dir, c, m, s)
		if log := sh(t, home, "log", "--format=%s", got.Ref); log != want {
			t.Errorf("commits:\n%s\nwant\n%s", log, want)
		}
		sh(t, home, "merge", "-q", "--ff-only", got.Ref)
	}
}

// A commit of the task has the user's changes in it if it was made with git add -A; the one that comes
// back tells the two apart all the same.
func TestMixed(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	dirty(t, home)
	m, dir := there(t, home, c, Choice{}, s)
	write(t, dir, "x", "1\n")
	sh(t, dir, "add", "-A")
	sh(t, dir, "commit", "-qm", "all")
	got := back(t, home, dir, c, m, s)
	if got.Files != 1 || got.Added != 1 {
		t.Errorf("received %+v", got)
	}
	if diff := sh(t, home, "diff", "--name-only", got.Ref+"^1", got.Ref); diff != "x" {
		t.Errorf("changed against the snapshot: %s", diff)
	}
	if text := sh(t, home, "log", "-1", "--format=%s", got.Ref+"^2"); text != "all" {
		t.Errorf("the second parent is %q", text)
	}
}

func TestNothing(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	dirty(t, home)
	m, dir := there(t, home, c, Choice{AllUntracked: true}, s)
	write(t, dir, "only.o", "ignored\n")
	before := state(t, home)
	got := back(t, home, dir, c, m, s)
	if got.Ref != "" || got.Files != 0 || state(t, home) != before {
		t.Errorf("received %+v", got)
	}
}

// The second task receives what is new and no more, and the one after it nothing.
func TestSecond(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	write(t, home, "large", strings.Repeat("0123456789abcdef\n", 10)+random(3<<20, 1))
	sh(t, home, "add", "large")
	sh(t, home, "commit", "-qm", "large")
	m, _ := there(t, home, c, Choice{}, s)
	first := m.Bytes()
	write(t, home, "a.txt", "changed\n")
	m, _ = there(t, home, c, Choice{}, s)
	if first < 3<<20 || m.Bytes() > 1000 || m.Bytes() == 0 {
		t.Errorf("%d bytes first, %d bytes for one line", first, m.Bytes())
	}
	sent := s.sent
	m, dir := there(t, home, c, Choice{}, s)
	if s.sent != sent {
		t.Errorf("the same again sent %d bytes", s.sent-sent)
	}
	write(t, dir, "a.txt", "changed\nby the task\n")
	got := back(t, home, dir, c, m, s)
	if back := s.sent - sent; back > 1500 || got.Files != 1 {
		t.Errorf("one line came back as %d bytes: %+v", back, got)
	}
}

// random is text that cannot be packed.
func random(n, seed int) string {
	b, x := make([]byte, n), uint64(88172645463325252+seed)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}
