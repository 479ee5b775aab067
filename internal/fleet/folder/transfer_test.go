package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// large makes a repository whose pack has several parts.
func large(t testing.TB) string {
	t.Helper()
	home := newRepository(t)
	write(t, home, ".gitattributes", "large* -delta\n") // saves git the search for what is not there
	for i := range 3 {
		write(t, home, fmt.Sprintf("large%d", i), random(3<<20, i))
	}
	sh(t, home, "add", ".")
	sh(t, home, "commit", "-qm", "large")
	dirty(t, home)
	return home
}

// Wherever a transfer is cut, the next attempt sends and fetches only the rest.
func TestResume(t *testing.T) {
	t.Parallel()
	home := large(t)
	whole := newMemory()
	m, err := Pack(t.Context(), home, Choice{}, whole)
	must(t, err)
	if len(m.Parts) < 3 {
		t.Fatalf("%d parts", len(m.Parts))
	}
	for _, cut := range []int{1, 2, len(m.Parts)} {
		s, c := newMemory(), newCache(t)
		s.fail = failAt("put", cut)
		_, err := Pack(t.Context(), home, Choice{}, s)
		if !errors.Is(err, errCut) || s.puts != cut-1 {
			t.Fatalf("cut at part %d: %v, and %d parts were sent", cut, err, s.puts)
		}
		s.fail = nil
		again, err := Pack(t.Context(), home, Choice{}, s)
		must(t, err)
		if s.puts != len(m.Parts) || !slices.Equal(again.Parts, m.Parts) {
			t.Errorf("cut at part %d: %d parts were sent in all, %d are needed", cut, s.puts, len(m.Parts))
		}
		dir := filepath.Join(t.TempDir(), "work")
		s.fail = failAt("get", cut)
		if _, err := c.Unpack(t.Context(), again, Limits{}, s, dir); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v, %v are left in the folder", left, err)
		}
		s.fail = nil
		_, err = c.Unpack(t.Context(), again, Limits{}, s, dir)
		must(t, err)
		if s.gets != len(m.Parts) {
			t.Errorf("cut at part %d: %d parts were fetched in all", cut, s.gets)
		}
		if left, err := os.ReadDir(filepath.Join(c.Dir, partsName)); err != nil || len(left) > 0 {
			t.Errorf("%v, %v are left of what came in", left, err)
		}
	}
}

// The way back is resumed as well.
func TestResumeBack(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, dir := there(t, home, c, Choice{}, s)
	write(t, dir, "made", random(10<<20, 1))
	end := Ending{Time: time.Unix(1_800_000_000, 0)}
	s.puts, s.fail = 0, failAt("put", 2)
	if _, err := c.Collect(t.Context(), dir, m, end, Limits{}, s); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	s.fail = nil
	r, err := c.Collect(t.Context(), dir, m, end, Limits{}, s)
	must(t, err)
	if s.puts != len(r.Parts) || len(r.Parts) < 3 {
		t.Errorf("%d parts were sent for %d", s.puts, len(r.Parts))
	}
	before := state(t, home)
	s.fail = failAt("get", 3)
	if _, err := Receive(t.Context(), home, m, r, "refs/drover/tasks/x", Limits{}, s); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if state(t, home) != before {
		t.Error("a return that was cut has changed the repository")
	}
	s.fail = nil
	for range 2 { // a second time changes nothing
		got, err := Receive(t.Context(), home, m, r, "refs/drover/tasks/x", Limits{}, s)
		must(t, err)
		if got.Files != 1 || sh(t, home, "rev-parse", got.Ref) != r.Result {
			t.Errorf("%+v", got)
		}
	}
	if text := sh(t, home, "reflog", "refs/drover/tasks/x"); strings.Count(text, "\n") > 0 {
		t.Errorf("the ref was moved twice:\n%s", text)
	}
}

// Tasks of one repository pack, unpack and come back at the same time.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	home, c, s := large(t), newCache(t), newMemory()
	before := state(t, home)
	var wg sync.WaitGroup
	for i := range 4 {
		dir := filepath.Join(t.TempDir(), "work")
		wg.Go(func() {
			if err := trip(t.Context(), home, dir, fmt.Sprintf("refs/drover/tasks/b%d", i), c, s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		sh(t, home, "update-ref", "-d", fmt.Sprintf("refs/drover/tasks/b%d", i))
	}
	if state(t, home) != before {
		t.Error("the repository at home is not as it was")
	}
	sh(t, home, "fsck", "--strict")
	m, err := Pack(t.Context(), home, Choice{}, newMemory())
	must(t, err)
	if most := len(m.Parts) + 4*2; s.gets > most { // and those of four returns
		t.Errorf("%d parts were fetched: each should have been fetched once", s.gets)
	}
}

func trip(ctx context.Context, home, dir, ref string, c *Cache, s Store) error {
	m, err := Pack(ctx, home, Choice{}, s)
	if err != nil {
		return err
	}
	if _, err := c.Unpack(ctx, m, Limits{}, s, dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "made"), []byte("x\n"), 0o600); err != nil {
		return err
	}
	r, err := c.Collect(ctx, dir, m, Ending{}, Limits{}, s)
	if err != nil {
		return err
	}
	got, err := Receive(ctx, home, m, r, ref, Limits{}, s)
	if err == nil && got.Files != 1 {
		err = fmt.Errorf("received %+v", got)
	}
	return err
}

// A cache that was trimmed says so, and the manifest is made anew. Work trees outlive it.
func TestTrim(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, dir := there(t, home, c, Choice{}, s)
	id := m.Repo
	have, err := c.Have(t.Context(), id)
	must(t, err)
	if !slices.Equal(have, []string{m.Commit}) {
		t.Errorf("has %v", have)
	}
	if left, err := c.Trim(t.Context()); err != nil || left == 0 {
		t.Errorf("%d, %v", left, err)
	}
	m2, err := Pack(t.Context(), home, Choice{Have: have}, s)
	must(t, err)
	c.MaxBytes = 1
	if left, err := c.Trim(t.Context()); err != nil || left != 0 {
		t.Errorf("%d, %v", left, err)
	}
	if _, err := c.Unpack(t.Context(), m2, Limits{}, s, filepath.Join(t.TempDir(), "work")); !errors.Is(err, ErrLacks) {
		t.Errorf("unpack on an empty cache: %v", err)
	}
	sh(t, dir, "fsck", "--strict")
	write(t, dir, "made", "x\n")
	if got := back(t, home, dir, c, m, s); got.Files != 1 {
		t.Errorf("%+v", got)
	}
	if have, err := c.Have(t.Context(), id); err != nil || len(have) != 0 {
		t.Errorf("has %v, %v", have, err)
	}
}

// The cache names a bounded number of commits and keeps its packs few, whatever comes.
func TestManyTrips(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	for i := range maxPacks*2 + 5 {
		write(t, home, "a.txt", fmt.Sprintf("%d\n", i))
		m, dir := there(t, home, c, Choice{}, s)
		must(t, os.RemoveAll(dir))
		if i%10 == 0 {
			sh(t, home, "commit", "-qam", "more")
		}
		have, err := c.Have(t.Context(), m.Repo)
		must(t, err)
		if len(have) > maxHave || !slices.Contains(have, m.Commit) {
			t.Fatalf("has %d commits", len(have))
		}
	}
	packs, err := filepath.Glob(filepath.Join(c.Dir, "*", "*", "git", "objects", "pack", "*.pack"))
	must(t, err)
	if len(packs) > maxPacks {
		t.Errorf("%d packs", len(packs))
	}
}

// A repository in the cache that a crash left half made is made anew.
func TestHalfMade(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, err := Pack(t.Context(), home, Choice{}, s)
	must(t, err)
	write(t, c.path(reposName, m.Repo, bareName), "HEAD", "")
	dir := filepath.Join(t.TempDir(), "work")
	_, err = c.Unpack(t.Context(), m, Limits{}, s, dir)
	must(t, err)
	sh(t, dir, "fsck", "--strict")
}

// A manifest cannot cut a history that is in the cache.
func TestShallowKept(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, _ := there(t, home, c, Choice{}, s)
	m.Shallow, m.Parts = []string{m.Commit}, nil
	dir := filepath.Join(t.TempDir(), "work")
	_, err := c.Unpack(t.Context(), m, Limits{}, s, dir)
	must(t, err)
	if log := sh(t, dir, "log", "--format=%s"); log != "second\nfirst" {
		t.Errorf("the worker has the commits\n%s", log)
	}
}
