package folder

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree lists a folder with the content of its files.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch d.Type() {
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			fmt.Fprintf(&b, "%q -> %q\n", rel, to)
			return err
		case fs.ModeDir:
			fmt.Fprintf(&b, "%q/\n", rel)
		case 0:
			data, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%q %v %d %s\n", rel, info.Mode()&0o100 != 0, len(data), short(digestOf(data)))
			return err
		}
		return nil
	}))
	return b.String()
}

// newPlain makes a folder with everything that a folder can have.
func newPlain(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plain")
	for i := range 200 {
		write(t, dir, fmt.Sprintf("src/%d/file%d.txt", i%7, i), random(2000, i))
	}
	write(t, dir, "large", random(7<<20, 1))
	write(t, dir, "exact", random(3<<20, 2))
	write(t, dir, "empty", "")
	write(t, dir, "new\nline", "n\n")
	write(t, dir, "latin-\xe9", "l\n")
	write(t, dir, "run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	write(t, dir, "hollow/inner/x", "x\n")
	must(t, os.Symlink("../large", filepath.Join(dir, "src", "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	write(t, dir, "zz-last-empty", "")
	return dir
}

// A folder without git arrives as it is, and what was changed comes back into a new folder.
func TestPlain(t *testing.T) {
	t.Parallel()
	home, c, s := newPlain(t), newCache(t), newMemory()
	before := tree(t, home)
	p, err := Pack(t.Context(), home, Choice{Plain: true}, s)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	unpacked(t, c, p, s, dir)
	if got := tree(t, dir); got != before {
		t.Errorf("at home:\n%s\non the worker:\n%s", before, got)
	}
	if len(p.Notes) > 0 {
		t.Errorf("notes %q", p.Notes)
	}

	nothing, err := c.Collect(t.Context(), dir, p, Ending{}, Limits{}, s)
	must(t, err)
	if nothing.Result != "" {
		t.Errorf("nothing was changed: %+v", nothing)
	}

	write(t, dir, "src/3/file3.txt", "changed\n")
	write(t, dir, "made/new", "new\n")
	must(t, os.Remove(filepath.Join(dir, "empty")))
	must(t, os.Remove(filepath.Join(dir, "latin-\xe9")))
	must(t, os.Chmod(filepath.Join(dir, "exact"), 0o755))
	must(t, os.Remove(filepath.Join(dir, "dangling")))
	write(t, dir, "dangling", "a file now\n")
	r, err := c.Collect(t.Context(), dir, p, Ending{}, Limits{}, s)
	must(t, err)
	into := filepath.Join(t.TempDir(), "back")
	got, err := ReceivePlain(t.Context(), p, r, Limits{}, s, into)
	must(t, err)
	if want := []string{"dangling", "exact", "made/new", "src/3/file3.txt"}; !slices.Equal(got.Files, want) {
		t.Errorf("changed %q, want %q", got.Files, want)
	}
	if want := []string{"empty", "latin-\xe9"}; !slices.Equal(got.Deleted, want) {
		t.Errorf("deleted %q, want %q", got.Deleted, want)
	}
	if read(t, into, "files/src/3/file3.txt") != "changed\n" || tree(t, home) != before {
		t.Error("the change has not arrived, or the folder at home is not as it was")
	}
	if _, err := ReceivePlain(t.Context(), p, r, Limits{}, s, home); err == nil || tree(t, home) != before {
		t.Errorf("a change was written over the folder: %v", err)
	}
}

// A second trip sends and fetches the parts of what has changed, and a cut one only the rest.
func TestPlainSecond(t *testing.T) {
	t.Parallel()
	home, c, s := newPlain(t), newCache(t), newMemory()
	s.fail = failAt("put", 3)
	if _, err := Pack(t.Context(), home, Choice{Plain: true}, s); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	s.fail = nil
	p, err := Pack(t.Context(), home, Choice{Plain: true}, s)
	must(t, err)
	if all := len(p.Parts); s.puts != all {
		t.Errorf("%d parts were sent of %d", s.puts, all)
	}
	dir := filepath.Join(t.TempDir(), "work")
	s.fail = failAt("get", 5)
	if _, err := c.Unpack(t.Context(), p, Limits{}, s, dir); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if tree(t, dir) != "" {
		t.Errorf("left:\n%s", tree(t, dir))
	}
	s.fail = nil
	unpacked(t, c, p, s, dir)
	if all := len(p.Parts); s.gets != all {
		t.Errorf("%d parts were fetched of %d", s.gets, all)
	}

	write(t, home, "src/3/file3.txt", "changed\n")
	sent, gets := s.sent, s.gets
	p, err = Pack(t.Context(), home, Choice{Plain: true}, s)
	must(t, err)
	dir = filepath.Join(t.TempDir(), "work")
	unpacked(t, c, p, s, dir)
	if s.sent-sent > sent/2 || s.gets-gets > len(p.Parts)/2 {
		t.Errorf("one small file sent %d bytes of %d, and fetched %d parts of %d", s.sent-sent, sent, s.gets-gets, len(p.Parts))
	}
	if tree(t, dir) != tree(t, home) {
		t.Error("the second trip has other files")
	}
}

// What cannot travel of a folder is left out and told.
func TestPlainNotes(t *testing.T) {
	t.Parallel()
	home, c, s := newPlain(t), newCache(t), newMemory()
	sh(t, filepath.Join(home, "hollow"), "init", "-q")
	must(t, os.Symlink("/etc/passwd", filepath.Join(home, "src", "absolute")))
	must(t, os.Symlink("../../out", filepath.Join(home, "src", "climbing")))
	must(t, os.Symlink("link/../../..", filepath.Join(home, "src", "sly")))
	must(t, syscall.Mkfifo(filepath.Join(home, "pipe"), 0o600))
	p, err := Pack(t.Context(), home, Choice{Plain: true}, s)
	must(t, err)
	for _, words := range []string{`git repositories in the folder do not travel, only their files: "hollow"`,
		`"src/absolute", "src/climbing", "src/sly"`, `"pipe"`} {
		if !hasNote(p.Notes, words) {
			t.Errorf("notes %q do not tell %q", p.Notes, words)
		}
	}
	dir := filepath.Join(t.TempDir(), "work")
	unpacked(t, c, p, s, dir)
	for _, name := range []string{"hollow/.git", "src/absolute", "src/sly", "pipe"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s has travelled", name)
		}
	}
	if r, err := c.Collect(t.Context(), dir, p, Ending{}, Limits{}, s); err != nil || r.Result != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPlainLimits(t *testing.T) {
	t.Parallel()
	home := newPlain(t)
	for want, l := range map[string]Limits{
		"more than 10 files":     {Files: 10},
		"would have to travel":   {PackedBytes: 1 << 20},
		`"large" with 7.0 MiB`:   {UnpackedBytes: 5 << 20},
		"have more than 5.0 MiB": {UnpackedBytes: 5 << 20},
	} {
		_, err := Pack(t.Context(), home, Choice{Plain: true, Limits: l}, newMemory())
		wantError(t, err, want, home)
	}
}

// unpacked makes the folder of a manifest.
func unpacked(t testing.TB, c *Cache, m Manifest, s Store, dir string) {
	t.Helper()
	_, err := c.Unpack(t.Context(), m, Limits{}, s, dir)
	must(t, err)
}

// forged is a manifest, and what comes back of it, with files that no sender of ours takes: entries of an index, whose
// IDs stand for the content of their files.
func forged(t testing.TB, s Store, entries ...string) (Manifest, Return) {
	t.Helper()
	tmp, remove, err := temporary()
	must(t, err)
	defer remove()
	g, err := ours(t.Context(), filepath.Join(tmp, "git"), tmp)
	must(t, err)
	var trees func(entries []string) string
	trees = func(entries []string) string {
		var lines strings.Builder
		below := map[string][]string{}
		for _, e := range entries {
			f := strings.SplitN(e, " ", 3) // mode, name and content
			if top, rest, deep := strings.Cut(f[1], "|"); deep {
				below[top] = append(below[top], f[0]+" "+rest+" "+f[2])
				continue
			}
			var id bytes.Buffer
			must(t, g.Stream(t.Context(), strings.NewReader(f[2]), &id, "hash-object", "-w", "--stdin"))
			fmt.Fprintf(&lines, "%s blob %s\t%s\x00", f[0], strings.TrimSpace(id.String()), f[1])
		}
		for name, list := range below {
			fmt.Fprintf(&lines, "040000 tree %s\t%s\x00", trees(list), name)
		}
		var id bytes.Buffer
		must(t, g.Stream(t.Context(), strings.NewReader(lines.String()), &id, "mktree", "-z"))
		return strings.TrimSpace(id.String())
	}
	m := Manifest{V: plainVersion, Format: "sha1", Plain: true}
	m.Commit, err = commit(t.Context(), g, trees(entries), "Files", time.Unix(0, 0))
	must(t, err)
	m.Repo, m.Snapshot = m.Commit, m.Commit
	m.Parts, err = sendPack(t.Context(), g, []string{m.Commit}, nil, tmp, Limits{}.orDefault(), s)
	must(t, err)
	return m, Return{V: version, Commit: m.Commit, Snapshot: m.Commit, Result: m.Commit, Parts: m.Parts}
}

// Files that lead anywhere are refused by name, and nothing is written.
func TestHostilePlain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry, words string
	}{
		"climbing":      {"100644 a|..|x x", "hasDotdot"},
		"git":           {"100644 a|.git|config x", "hasDotgit"},
		"git-case":      {"100644 .GiT|hooks|x x", "hasDotgit"},
		"long":          {"100644 " + strings.Repeat("x", 300) + " x", "more than 255 bytes"},
		"link-out":      {"120000 a|l ../../etc", `"a/l" leads out of the folder: "../../etc"`},
		"link-absolute": {"120000 l /etc", `absolute path "/etc"`},
		"link-sly":      {"120000 l a/../../x", "down and up again"},
		"link-empty":    {"120000 l ", "no valid target"},
	} {
		for _, back := range []bool{false, true} {
			s := newMemory()
			entry := c.entry
			if mode, rest, _ := strings.Cut(entry, " "); back {
				entry = mode + " files|" + rest
			}
			m, r := forged(t, s, entry, "100644 zz x")
			if back {
				m, r = forged(t, s, entry)
			}
			top := t.TempDir()
			dir := filepath.Join(top, "work")
			var err error
			if back {
				_, err = ReceivePlain(t.Context(), m, r, Limits{}, s, dir)
			} else {
				_, err = newCache(t).Unpack(t.Context(), m, Limits{}, s, dir)
			}
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s, back: %v: %v", name, back, err)
			}
			if got := strings.TrimSuffix(tree(t, top), "\"work\"/\n"); got != "" {
				t.Errorf("%s, back: %v: left\n%s", name, back, got)
			}
		}
	}
	for name, c := range map[string]struct {
		entries []string
		words   string
	}{
		"other name": {[]string{"100644 elsewhere x"}, `"elsewhere" is not one of what comes back`},
		"deleted":    {[]string{"100644 deleted ../../x\x00"}, `"../../x" leads out`},
		"a link":     {[]string{"120000 deleted /etc/passwd"}, `"deleted" is not one of what comes back`},
	} {
		s := newMemory()
		m, r := forged(t, s, c.entries...)
		dir := filepath.Join(t.TempDir(), "work")
		_, err := ReceivePlain(t.Context(), m, r, Limits{}, s, dir)
		wantError(t, err, c.words)
		if got := tree(t, dir); got != "" {
			t.Errorf("%s: left\n%s", name, got)
		}
	}
	m, r := forged(t, newMemory(), "100644 x x")
	for name, change := range map[string]func(*Manifest){
		"its format is 1": func(m *Manifest) { m.V = version },
		"10737418240":     func(m *Manifest) { m.Parts = []Part{{m.Parts[0].Digest, 10 << 30}} },
		"this part":       func(m *Manifest) { m.Parts = []Part{{strings.Repeat("ab", 32), 5}} },
	} {
		other := m
		change(&other)
		_, err := newCache(t).Unpack(t.Context(), other, Limits{}, newMemory(), filepath.Join(t.TempDir(), "work"))
		wantError(t, err, name)
	}
	r.Commit = strings.Repeat("a", 40)
	_, err := ReceivePlain(t.Context(), m, r, Limits{}, newMemory(), filepath.Join(t.TempDir(), "work"))
	wantError(t, err, "were sent")
}

// The content of files arrives as it is, whatever attributes a folder has.
func TestPlainAttributes(t *testing.T) {
	t.Parallel()
	home, c, s := t.TempDir(), newCache(t), newMemory()
	write(t, home, ".gitattributes", "* text=auto eol=crlf ident\n*.bin working-tree-encoding=UTF-16\n")
	write(t, home, ".gitignore", "*\n")
	write(t, home, "a.txt", "one\r\ntwo\n$Id$\n")
	write(t, home, "b.bin", "three\n")
	m, err := Pack(t.Context(), home, Choice{Plain: true}, s)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	unpacked(t, c, m, s, dir)
	if got, want := tree(t, dir), tree(t, home); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
