package folder

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// object stores an object without any check of its content.
func object(t testing.TB, dir, kind string, content []byte) string {
	t.Helper()
	c := exec.Command("git", "hash-object", "-t", kind, "-w", "--stdin", "--literally")
	c.Dir, c.Stdin = dir, bytes.NewReader(content)
	out, err := c.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// entry is one of a tree.
func entry(t testing.TB, mode, name, id string) []byte {
	t.Helper()
	var raw []byte
	_, err := fmt.Sscanf(id, "%x", &raw)
	must(t, err)
	return append([]byte(mode+" "+name+"\x00"), raw...)
}

// plant makes a commit of a tree on top of HEAD.
func plant(t testing.TB, dir string, tree []byte) string {
	t.Helper()
	id := object(t, dir, "tree", tree)
	return object(t, dir, "commit", []byte("tree "+id+"\nparent "+sh(t, dir, "rev-parse", "HEAD")+
		"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nplanted\n"))
}

// packOf is what git makes of some objects.
func packOf(t testing.TB, dir, revs string) []byte {
	t.Helper()
	c := exec.Command("git", "pack-objects", "--stdout", "--revs", "-q")
	c.Dir, c.Stdin = dir, strings.NewReader(revs)
	out, err := c.Output()
	must(t, err)
	return out
}

// offer is the manifest of a commit that a stranger sends as a pack.
func offer(t testing.TB, home, commit string, pack []byte, s *memory) Manifest {
	t.Helper()
	m, err := Pack(t.Context(), home, Choice{}, newMemory())
	must(t, err)
	m.Commit, m.Snapshot, m.Index = commit, commit, ""
	m.Parts, err = send(t.Context(), s, bytes.NewReader(pack))
	must(t, err)
	return m
}

// rawPack makes a pack by hand: of each object the header, and what follows it.
func rawPack(objects ...[]byte) []byte {
	out := []byte("PACK\x00\x00\x00\x02")
	out = binary.BigEndian.AppendUint32(out, uint32(len(objects)))
	return append(append(out, bytes.Join(objects, nil)...), make([]byte, 20)...)
}

func rawObject(kind byte, claimed uint64, before, content []byte) []byte {
	b := kind<<4 | byte(claimed&15)
	var out []byte
	for claimed >>= 4; claimed > 0; claimed >>= 7 {
		out = append(out, b|0x80)
		b = byte(claimed & 0x7f)
	}
	out = append(append(out, b), before...)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content)
	_ = w.Close()
	return append(out, z.Bytes()...)
}

// What a stranger sends is refused by name, on both sides, and nothing of it stays.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	limits := Limits{PackedBytes: 1 << 20, UnpackedBytes: 1 << 20, Files: 1000}
	for name, c := range map[string]struct {
		make  func(t *testing.T, evil string) (commit string, pack []byte)
		words []string
	}{
		"climbing": {func(t *testing.T, evil string) (string, []byte) {
			id := plant(t, evil, entry(t, "100644", "../x", object(t, evil, "blob", []byte("x"))))
			return id, packOf(t, evil, id+"\n")
		}, []string{"fullPathname"}},
		"dot-dot": {func(t *testing.T, evil string) (string, []byte) {
			sub := object(t, evil, "tree", entry(t, "100644", "x", object(t, evil, "blob", []byte("x"))))
			id := plant(t, evil, entry(t, "40000", "..", sub))
			return id, packOf(t, evil, id+"\n")
		}, []string{"hasDotdot"}},
		"dot-git": {func(t *testing.T, evil string) (string, []byte) {
			sub := object(t, evil, "tree", entry(t, "100644", "config", object(t, evil, "blob", []byte("[core]\n"))))
			id := plant(t, evil, entry(t, "40000", ".GIT", sub))
			return id, packOf(t, evil, id+"\n")
		}, []string{"hasDotgit"}},
		"absolute": {func(t *testing.T, evil string) (string, []byte) {
			id := plant(t, evil, entry(t, "100644", "/etc/x", object(t, evil, "blob", []byte("x"))))
			return id, packOf(t, evil, id+"\n")
		}, []string{"fullPathname"}},
		"gitmodules": {func(t *testing.T, evil string) (string, []byte) {
			blob := object(t, evil, "blob", []byte("[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch\n"))
			id := plant(t, evil, entry(t, "100644", ".gitmodules", blob))
			return id, packOf(t, evil, id+"\n")
		}, []string{"gitmodules"}},
		"bomb-of-trees": {func(t *testing.T, evil string) (string, []byte) {
			id, mode := object(t, evil, "blob", []byte("x")), "100644"
			var tree []byte
			for range 10 {
				tree = nil
				for i := range 10 {
					tree = append(tree, entry(t, mode, fmt.Sprint(i), id)...)
				}
				id, mode = object(t, evil, "tree", tree), "40000"
			}
			commit := plant(t, evil, tree)
			return commit, packOf(t, evil, commit+"\n")
		}, []string{"more than 1000 files"}},
		"bomb": {func(t *testing.T, evil string) (string, []byte) {
			id := plant(t, evil, entry(t, "100644", "zeros", object(t, evil, "blob", make([]byte, 50<<20))))
			return id, packOf(t, evil, id+"\n")
		}, []string{"unpacks to 50.0 MiB", "the limit is 1.0 MiB"}},
		"many-bombs": {func(t *testing.T, evil string) (string, []byte) {
			var tree []byte
			for i := range 40 {
				zeros := make([]byte, 1<<20)
				zeros[0] = byte(i)
				tree = append(tree, entry(t, "100644", fmt.Sprintf("%02d", i), object(t, evil, "blob", zeros))...)
			}
			id := plant(t, evil, tree)
			c := exec.Command("git", "pack-objects", "--stdout", "--revs", "-q", "--window=0")
			c.Dir, c.Stdin = evil, strings.NewReader(id+"\n")
			out, err := c.Output()
			must(t, err)
			return id, out
		}, []string{"unpack to more than 16.0 MiB"}},
		"large-files": {func(t *testing.T, evil string) (string, []byte) {
			zeros := object(t, evil, "blob", make([]byte, 500<<10))
			var tree []byte
			for i := range 9 {
				tree = append(tree, entry(t, "100644", fmt.Sprint(i), zeros)...)
			}
			id := plant(t, evil, tree)
			return id, packOf(t, evil, id+"\n")
		}, []string{"more than 1.0 MiB"}},
		"claims-more": {func(_ *testing.T, _ string) (string, []byte) {
			return strings.Repeat("a", 40), rawPack(rawObject(3, 10<<30, nil, []byte("x")))
		}, []string{"unpacks to 10.0 GiB"}},
		"claims-less": {func(_ *testing.T, _ string) (string, []byte) {
			return strings.Repeat("a", 40), rawPack(rawObject(3, 10, nil, make([]byte, 5<<20)))
		}, []string{"longer than the 10 bytes"}},
		"delta": {func(_ *testing.T, _ string) (string, []byte) {
			delta := binary.AppendUvarint(binary.AppendUvarint(nil, 10), 100<<30)
			return strings.Repeat("a", 40), rawPack(rawObject(7, uint64(len(delta)), make([]byte, 20), delta))
		}, []string{"unpacks to 100.0 GiB"}},
		"too-many": {func(_ *testing.T, _ string) (string, []byte) {
			pack := rawPack()
			binary.BigEndian.PutUint32(pack[8:], 1<<31)
			return strings.Repeat("a", 40), pack
		}, []string{"2147483648 objects", "the limit is 10000"}},
		"no-pack": {func(_ *testing.T, _ string) (string, []byte) {
			return strings.Repeat("a", 40), []byte("#!/bin/sh and something more\n")
		}, []string{"not a git pack"}},
		"cut": {func(t *testing.T, evil string) (string, []byte) {
			pack := packOf(t, evil, "HEAD\n")
			return sh(t, evil, "rev-parse", "HEAD"), pack[:len(pack)/2]
		}, []string{"check the pack: object"}},
		"damaged": {func(t *testing.T, evil string) (string, []byte) {
			pack := packOf(t, evil, "HEAD\n")
			pack[len(pack)-1] ^= 1
			return sh(t, evil, "rev-parse", "HEAD"), pack
		}, []string{"check the objects"}},
		"other-commit": {func(t *testing.T, evil string) (string, []byte) {
			return strings.Repeat("ab", 20), packOf(t, evil, "HEAD\n")
		}, []string{"commit abababababab is not in the pack"}},
		"missing-object": {func(t *testing.T, evil string) (string, []byte) {
			id := plant(t, evil, entry(t, "100644", "x", strings.Repeat("ab", 20)))
			c := exec.Command("git", "pack-objects", "--stdout", "-q")
			c.Dir, c.Stdin = evil, strings.NewReader(id+"\n"+sh(t, evil, "rev-parse", id+"^{tree}")+"\n")
			out, err := c.Output()
			must(t, err)
			return id, out
		}, []string{"check the objects"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, evil := newRepository(t), newRepository(t)
			commit, pack := c.make(t, evil)

			s, cache := newMemory(), newCache(t)
			m := offer(t, home, commit, pack, s)
			dir := filepath.Join(t.TempDir(), "work")
			_, err := cache.Unpack(t.Context(), m, limits, s, dir)
			wantError(t, err, append(c.words, dir)...)
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v, %v are left in the folder", left, err)
			}
			if have, err := cache.Have(t.Context(), m.Repo); err != nil || len(have) > 0 {
				t.Errorf("the cache has %v, %v", have, err)
			}

			// The same from a worker.
			sent, err := Pack(t.Context(), home, Choice{}, newMemory())
			must(t, err)
			r := Return{V: version, Commit: sent.Commit, Snapshot: sent.Snapshot, Result: commit, Parts: m.Parts}
			before := state(t, home)
			files := filesOf(t, filepath.Join(home, ".git"))
			_, err = Receive(t.Context(), home, sent, r, "refs/drover/tasks/x", limits, s)
			wantError(t, err, append(c.words, home)...)
			if state(t, home) != before || names(filesOf(t, filepath.Join(home, ".git"))) != names(files) {
				t.Error("the repository at home is not as it was")
			}
		})
	}
}

// names are the paths of a listing.
func names(list string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(list, "\n") {
		path, _, _ := strings.Cut(line, " ")
		b.WriteString(path + "\n")
	}
	return b.String()
}

// Parts that are missing or changed are refused by name.
func TestHostileParts(t *testing.T) {
	t.Parallel()
	home, s := newRepository(t), newMemory()
	m, err := Pack(t.Context(), home, Choice{}, s)
	must(t, err)
	good := s.parts[m.Parts[0].Digest]
	for name, c := range map[string]struct {
		part  []byte
		words []string
	}{
		"missing": {nil, []string{"part 1 of 1", ErrMissing.Error()}},
		"changed": {append([]byte{good[0] ^ 1}, good[1:]...), []string{"part 1 of 1", "another digest"}},
		"longer":  {append(slices.Clone(good), 0), []string{"part 1 of 1", "the manifest says"}},
		"empty":   {[]byte{}, []string{"part 1 of 1", "it has 0 bytes"}},
	} {
		if s.parts[m.Parts[0].Digest] = c.part; c.part == nil {
			delete(s.parts, m.Parts[0].Digest)
		}
		_, err := newCache(t).Unpack(t.Context(), m, Limits{}, s, filepath.Join(t.TempDir(), "work"))
		wantError(t, err, c.words...)
		if name == "missing" && !errors.Is(err, ErrMissing) {
			t.Error("it is not ErrMissing")
		}
	}
}

// Manifests that nobody of ours makes are refused before anything is done.
func TestHostileManifest(t *testing.T) {
	t.Parallel()
	home := newRepository(t)
	good, err := Pack(t.Context(), home, Choice{}, newMemory())
	must(t, err)
	part := good.Parts[0]
	for name, c := range map[string]struct {
		change func(m *Manifest)
		words  string
	}{
		"version":   {func(m *Manifest) { m.V = 9 }, "its format is 9"},
		"repo":      {func(m *Manifest) { m.Repo = "../../etc" }, "no object ID"},
		"commit":    {func(m *Manifest) { m.Commit = "--upload-pack=x" }, "no object ID"},
		"snapshot":  {func(m *Manifest) { m.Snapshot = strings.ToUpper(m.Snapshot) + "" }, "no object ID"},
		"index":     {func(m *Manifest) { m.Index = "HEAD" }, "no object ID"},
		"format":    {func(m *Manifest) { m.Format = "md5" }, "object format"},
		"needs":     {func(m *Manifest) { m.Needs = []string{"-x"} }, "needs lists"},
		"many":      {func(m *Manifest) { m.Needs = make([]string, 65) }, "the limit is 64"},
		"shallow":   {func(m *Manifest) { m.Shallow = make([]string, 1001) }, "the limit is 1000"},
		"subdir":    {func(m *Manifest) { m.Subdir = "../x" }, "subdirectory"},
		"absolute":  {func(m *Manifest) { m.Subdir = "/etc" }, "subdirectory"},
		"git":       {func(m *Manifest) { m.Subdir = ".git/hooks" }, "subdirectory"},
		"branch":    {func(m *Manifest) { m.Branch = "../../config" }, "branch"},
		"option":    {func(m *Manifest) { m.Branch = "-x" }, "branch"},
		"lock":      {func(m *Manifest) { m.Branch = "x.lock" }, "branch"},
		"user":      {func(m *Manifest) { m.Name = "x\n[core]\nfsmonitor=x" }, "no name"},
		"digest":    {func(m *Manifest) { m.Parts[0].Digest = "../x" }, "part 1 has no valid digest"},
		"large":     {func(m *Manifest) { m.Parts[0].Bytes = 10 << 30 }, "part 1 of 1 claims to have 10737418240 bytes"},
		"negative":  {func(m *Manifest) { m.Parts[0].Bytes = -1 }, "claims to have -1 bytes"},
		"overflow":  {func(m *Manifest) { m.Parts = slices.Repeat([]Part{{part.Digest, PartBytes}}, 1000) }, "3.9 GiB, the limit is 2.0 GiB"},
		"notes":     {func(m *Manifest) { m.Notes = make([]string, 1000) }, "1000 notes"},
		"long-note": {func(m *Manifest) { m.Notes = []string{strings.Repeat("x", 1000)} }, "1000 bytes"},
		"chain":     {func(m *Manifest) { m.Commit = strings.Repeat("ab", 20) }, "is not on top of"},
		"index-off": {func(m *Manifest) { m.Index = m.Repo }, "is not on top of"},
	} {
		s := newMemory()
		m, err := Pack(t.Context(), home, Choice{}, s)
		must(t, err)
		m.Parts = slices.Clone(m.Parts)
		c.change(&m)
		dir := filepath.Join(t.TempDir(), "work")
		_, err = newCache(t).Unpack(t.Context(), m, Limits{}, s, dir)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(c.words, "on top") {
			continue
		}
		data, err := json.Marshal(m)
		must(t, err)
		if _, err := ReadManifest(data, Limits{}); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s, read: %v", name, err)
		}
	}
	data, err := json.Marshal(good)
	must(t, err)
	if back, err := ReadManifest(data, Limits{}); err != nil || back.Snapshot != good.Snapshot {
		t.Errorf("%+v, %v", back, err)
	}
	for _, text := range []string{"", "[]", "{}", string(data) + "{}", strings.Repeat(" ", MaxManifest+1)} {
		if _, err := ReadManifest([]byte(text), Limits{}); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}

// A return that belongs to something else is refused.
func TestHostileReturn(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	dirty(t, home)
	m, dir := there(t, home, c, Choice{}, s)
	write(t, dir, "made", "x\n")
	good, err := c.Collect(t.Context(), dir, m, Ending{Time: time.Unix(1, 0)}, Limits{}, s)
	must(t, err)
	other := t.TempDir()
	sh(t, other, "init", "-q")
	write(t, other, "other", "x\n")
	sh(t, other, "add", ".")
	sh(t, other, "commit", "-qm", "another repository")
	for name, try := range map[string]struct {
		home   string
		change func(m *Manifest, r *Return)
		ref    string
		words  string
	}{
		"unrelated":  {other, func(m *Manifest, r *Return) {}, "", "it is another repository"},
		"branch":     {home, func(m *Manifest, r *Return) {}, "refs/heads/main", "not one below refs/drover/"},
		"climbing":   {home, func(m *Manifest, r *Return) {}, "refs/drover/../heads/main", "not one below refs/drover/"},
		"base":       {home, func(m *Manifest, r *Return) { r.Snapshot = m.Repo }, "", "were sent"},
		"not-on-top": {home, func(m *Manifest, r *Return) { r.Result = m.Commit }, "", "is not on top of"},
		"head":       {home, func(m *Manifest, r *Return) { r.Head = strings.Repeat("ab", 20) }, "", "not in the pack"},
		"empty":      {home, func(m *Manifest, r *Return) { r.Result = "" }, "", "1 parts and the result"},
		"limit":      {home, func(m *Manifest, r *Return) { r.Parts = slices.Repeat([]Part{{r.Parts[0].Digest, PartBytes}}, 600) }, "", "the limit"},
	} {
		m, r := m, good
		try.change(&m, &r)
		if try.ref == "" {
			try.ref = "refs/drover/tasks/x"
		}
		before := state(t, try.home)
		_, err := Receive(t.Context(), try.home, m, r, try.ref, Limits{}, s)
		if err == nil || !strings.Contains(err.Error(), try.words) {
			t.Errorf("%s: %v", name, err)
		}
		if state(t, try.home) != before {
			t.Errorf("%s: the repository at home is not as it was", name)
		}
	}
	data, err := json.Marshal(good)
	must(t, err)
	if r, err := ReadReturn(data, Limits{}); err != nil || r.Result != good.Result {
		t.Errorf("%+v, %v", r, err)
	}
}

// Whatever a task does to the repository in its folder, its files come back, and none of its
// programs runs.
func TestTampered(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, ".git"))) },
		"new": func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, ".git")))
			sh(t, dir, "init", "-q")
		},
		"file": func(t *testing.T, dir string) { swap(t, dir); write(t, dir, ".git", "gitdir: /nowhere\n") },
		"link": func(t *testing.T, dir string) { swap(t, dir); must(t, os.Symlink("/", filepath.Join(dir, ".git"))) },
		"pipe": func(t *testing.T, dir string) {
			must(t, exec.Command("mkfifo", filepath.Join(dir, ".git", "shallow"), filepath.Join(dir, ".git", "objects/info/alternates")).Run())
		},
		"config":   func(t *testing.T, dir string) { write(t, dir, ".git/config", "[broken\n") },
		"branch":   func(t *testing.T, dir string) { sh(t, dir, "checkout", "-q", "--orphan", "new") },
		"assume":   func(t *testing.T, dir string) { sh(t, dir, "update-index", "--assume-unchanged", "a.txt") },
		"programs": func(t *testing.T, dir string) { trap(t, dir) },
		"filter": func(t *testing.T, dir string) {
			sh(t, dir, "config", "filter.x.clean", "touch trapped; cat")
			write(t, dir, ".gitattributes", "* filter=x\n")
		},
		"gc": func(t *testing.T, dir string) { sh(t, dir, "gc", "-q", "--prune=now") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, c, s := newRepository(t), newCache(t), newMemory()
			write(t, home, "gone.txt", "changed by the user\n")
			m, dir := there(t, home, c, Choice{}, s)
			do(t, dir)
			_ = os.Remove(filepath.Join(dir, "trapped"))
			write(t, dir, "a.txt", "by the task\n")
			got := back(t, home, dir, c, m, s)
			if text := sh(t, home, "show", got.Ref+":a.txt"); text != "by the task" {
				t.Errorf("a.txt is %q", text)
			}
			if names := sh(t, home, "diff", "--name-only", got.Base, got.Ref, "--", ":!.gitattributes"); names != "a.txt" {
				t.Errorf("changed: %s", names)
			}
			if _, err := os.Lstat(filepath.Join(dir, "trapped")); err == nil {
				t.Error("a program of the task's configuration has run")
			}
			sh(t, home, "fsck", "--strict")
		})
	}
}

func swap(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Rename(filepath.Join(dir, ".git"), filepath.Join(t.TempDir(), "git")))
}

// What a task left that is too large is refused by name, and the folder stays as it is.
func TestLeftTooMuch(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, dir := there(t, home, c, Choice{}, s)
	write(t, dir, "out/core", random(2<<20, 1))
	_, err := c.Collect(t.Context(), dir, m, Ending{}, Limits{UnpackedBytes: 1 << 20}, s)
	wantError(t, err, dir, `"out/core"`, "2.0 MiB", ".gitignore")
	_, err = c.Collect(t.Context(), dir, m, Ending{}, Limits{PackedBytes: 1 << 20}, s)
	wantError(t, err, dir, "2.0 MiB would have to travel")
	if info, err := os.Stat(filepath.Join(dir, "out/core")); err != nil || info.Size() != 2<<20 {
		t.Error(err)
	}
}

// A failure behind the checkout leaves an empty folder too.
func TestNowhere(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, err := Pack(t.Context(), home, Choice{}, s)
	must(t, err)
	m.Subdir = "no/where"
	dir := filepath.Join(t.TempDir(), "work")
	_, err = c.Unpack(t.Context(), m, Limits{}, s, dir)
	wantError(t, err, `"no/where"`)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// The folder of the task is no way out of the work tree.
func TestSubdirOut(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	out := t.TempDir()
	must(t, os.Mkdir(filepath.Join(out, "secret"), 0o755))
	must(t, os.Symlink(out, filepath.Join(home, "way")))
	sh(t, home, "add", ".")
	m, err := Pack(t.Context(), home, Choice{}, s)
	must(t, err)
	for _, sub := range []string{"way/secret", "way"} {
		m.Subdir = sub
		_, err = c.Unpack(t.Context(), m, Limits{}, s, filepath.Join(t.TempDir(), "work"))
		wantError(t, err, fmt.Sprintf("%q", sub), "symbolic link")
	}
}

// A folder with something in it is not written to.
func TestOccupied(t *testing.T) {
	t.Parallel()
	home, c, s := newRepository(t), newCache(t), newMemory()
	m, err := Pack(t.Context(), home, Choice{}, s)
	must(t, err)
	dir := t.TempDir()
	write(t, dir, "mine", "x\n")
	_, err = c.Unpack(t.Context(), m, Limits{}, s, dir)
	wantError(t, err, "not empty", `"mine"`)
	if read(t, dir, "mine") != "x\n" {
		t.Error("the file is not as it was")
	}
}

func FuzzScan(f *testing.F) {
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, 10), 20)
	f.Add(rawPack(rawObject(3, 5, nil, []byte("hello")), rawObject(6, uint64(len(delta)), []byte{0x81, 3}, delta)))
	f.Add(rawPack(rawObject(7, uint64(len(delta)), make([]byte, 20), delta)))
	f.Add(rawPack(rawObject(3, 10<<40, nil, nil)))
	f.Add([]byte("PACK"))
	l := Limits{PackedBytes: 1 << 20, UnpackedBytes: 1 << 16, Files: 100}
	f.Fuzz(func(t *testing.T, pack []byte) {
		in := &counter{r: bytes.NewReader(pack)}
		if err := scan(in, 20, l); err == nil && len(pack) < 12 {
			t.Errorf("%x is a pack", pack)
		}
	})
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func FuzzManifest(f *testing.F) {
	id := strings.Repeat("ab", 20)
	good, err := json.Marshal(Manifest{V: 1, Repo: id, Format: "sha1", Commit: id, Snapshot: id, Branch: "a/b", Subdir: "x/y",
		Parts: []Part{{strings.Repeat("ab", 32), 5}}})
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadManifest(data, Limits{})
		if err != nil {
			return
		}
		if m.Bytes() < 0 || m.Bytes() > 2<<30 || !filepath.IsLocal(filepath.Join("x", m.Subdir)) || strings.Contains(m.Branch, "..") {
			t.Errorf("%+v", m)
		}
		if m.Branch != "" {
			if out, err := exec.Command("git", "check-ref-format", "refs/heads/"+m.Branch).CombinedOutput(); err != nil {
				t.Errorf("branch %q: %s", m.Branch, out)
			}
		}
	})
}
