package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
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
	write(t, dir, "exact", random(pieceBytes, 2))
	write(t, dir, "empty", "")
	write(t, dir, "new\nline", "n\n")
	write(t, dir, "latin-\xe9", "l\n")
	write(t, dir, "run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(dir, "run.sh"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "hollow", "inner"), 0o755))
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
	p, err := PackPlain(t.Context(), home, PlainChoice{}, s)
	must(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	must(t, c.UnpackPlain(t.Context(), p, Limits{}, s, dir))
	if got := tree(t, dir); got != before {
		t.Errorf("at home:\n%s\non the worker:\n%s", before, got)
	}
	if len(p.Notes) > 0 {
		t.Errorf("notes %q", p.Notes)
	}

	nothing, err := c.CollectPlain(t.Context(), dir, p, Limits{}, s)
	must(t, err)
	if !nothing.Empty() {
		t.Errorf("nothing was changed: %+v", nothing)
	}

	write(t, dir, "src/3/file3.txt", "changed\n")
	write(t, dir, "made/new", "new\n")
	must(t, os.Remove(filepath.Join(dir, "empty")))
	must(t, os.Remove(filepath.Join(dir, "latin-\xe9")))
	must(t, os.Chmod(filepath.Join(dir, "exact"), 0o755))
	must(t, os.Remove(filepath.Join(dir, "dangling")))
	write(t, dir, "dangling", "a file now\n")
	r, err := c.CollectPlain(t.Context(), dir, p, Limits{}, s)
	must(t, err)
	into := filepath.Join(t.TempDir(), "back")
	got, err := ReceivePlain(t.Context(), r, Limits{}, s, into)
	must(t, err)
	if want := []string{"dangling", "exact", "made/new", "src/3/file3.txt"}; !slices.Equal(got.Files, want) {
		t.Errorf("changed %q, want %q", got.Files, want)
	}
	if want := []string{"empty", "latin-\xe9"}; !slices.Equal(got.Deleted, want) {
		t.Errorf("deleted %q, want %q", got.Deleted, want)
	}
	if read(t, into, "src/3/file3.txt") != "changed\n" || tree(t, home) != before {
		t.Error("the change has not arrived, or the folder at home is not as it was")
	}
	if _, err := ReceivePlain(t.Context(), r, Limits{}, s, home); err == nil || tree(t, home) != before {
		t.Errorf("a change was written over the folder: %v", err)
	}
}

// A second trip sends and fetches the parts of what has changed, and a cut one only the rest.
func TestPlainSecond(t *testing.T) {
	t.Parallel()
	home, c, s := newPlain(t), newCache(t), newMemory()
	s.fail = failAt("put", 3)
	if _, err := PackPlain(t.Context(), home, PlainChoice{}, s); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	s.fail = nil
	p, err := PackPlain(t.Context(), home, PlainChoice{}, s)
	must(t, err)
	if all := len(p.Parts) + len(p.List); s.puts != all {
		t.Errorf("%d parts were sent of %d", s.puts, all)
	}
	dir := filepath.Join(t.TempDir(), "work")
	s.fail = failAt("get", 5)
	if err := c.UnpackPlain(t.Context(), p, Limits{}, s, dir); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if tree(t, dir) != "" {
		t.Errorf("left:\n%s", tree(t, dir))
	}
	s.fail = nil
	must(t, c.UnpackPlain(t.Context(), p, Limits{}, s, dir))
	if all := len(p.Parts) + len(p.List); s.gets != all {
		t.Errorf("%d parts were fetched of %d", s.gets, all)
	}

	write(t, home, "src/3/file3.txt", "changed\n")
	sent, gets := s.sent, s.gets
	p, err = PackPlain(t.Context(), home, PlainChoice{}, s)
	must(t, err)
	dir = filepath.Join(t.TempDir(), "work")
	must(t, c.UnpackPlain(t.Context(), p, Limits{}, s, dir))
	if s.sent-sent > 400_000 || s.gets-gets != 2 {
		t.Errorf("one small file sent %d bytes of %d, and fetched %d parts", s.sent-sent, sent, s.gets-gets)
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
	write(t, home, "node_modules/x/y.js", "left out\n")
	p, err := PackPlain(t.Context(), home, PlainChoice{Exclude: []string{"**/node_modules"}}, s)
	must(t, err)
	for _, words := range []string{`git repositories in the folder do not travel, only their files: "hollow"`,
		`"src/absolute", "src/climbing", "src/sly"`, `"pipe"`} {
		if !hasNote(p.Notes, words) {
			t.Errorf("notes %q do not tell %q", p.Notes, words)
		}
	}
	dir := filepath.Join(t.TempDir(), "work")
	must(t, c.UnpackPlain(t.Context(), p, Limits{}, s, dir))
	for _, name := range []string{"hollow/.git", "src/absolute", "src/sly", "pipe", "node_modules"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s has travelled", name)
		}
	}
	write(t, dir, "node_modules/z", "made there\n")
	if r, err := c.CollectPlain(t.Context(), dir, p, Limits{}, s); err != nil || !r.Empty() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPlainLimits(t *testing.T) {
	t.Parallel()
	home := newPlain(t)
	for want, l := range map[string]Limits{
		"more than 10 files":        {Files: 10},
		"would have to travel":      {PackedBytes: 1 << 20},
		`with "large" (7.0 MiB)`:    {UnpackedBytes: 5 << 20},
		"have more than 5.0 MiB":    {UnpackedBytes: 5 << 20},
		"more than 1.0 MiB would h": {PackedBytes: 1 << 20},
	} {
		_, err := PackPlain(t.Context(), home, PlainChoice{Limits: l}, newMemory())
		wantError(t, err, want, home)
	}
	_, err := PackPlain(t.Context(), home, PlainChoice{Exclude: []string{"["}}, newMemory())
	wantError(t, err, "not valid")
}

// forge is a manifest with a list that no sender of ours makes.
func forge(t testing.TB, s *memory, list listing, pieces ...[]byte) Plain {
	t.Helper()
	p := Plain{V: version, Files: len(list.Entries), Deleted: len(list.Deleted)}
	for _, e := range list.Entries {
		p.Bytes += e.Bytes
	}
	var err error
	p.List, err = sendList(t.Context(), list, s)
	must(t, err)
	for _, data := range pieces {
		packed, err := compress(data)
		must(t, err)
		part := Part{digestOf(packed), int64(len(packed))}
		must(t, put(t.Context(), s, part, packed))
		p.Parts = append(p.Parts, part)
	}
	return p
}

func fileOf(path, content string, pieces int) entryOf {
	return entryOf{Path: []byte(path), Kind: kindFile, Bytes: int64(len(content)), Digest: digestOf([]byte(content)), Pieces: pieces}
}

// Lists that lead anywhere are refused by name, and nothing is written.
func TestHostilePlain(t *testing.T) {
	t.Parallel()
	x := []byte("x")
	one := func(path string) listing { return listing{Entries: []entryOf{fileOf(path, "x", 1)}} }
	link := func(path, target string) listing {
		return listing{Entries: []entryOf{fileOf("x", "x", 1), {Path: []byte(path), Kind: kindLink, Target: []byte(target)}}}
	}
	for name, c := range map[string]struct {
		list   listing
		pieces [][]byte
		change func(p *Plain)
		words  string
	}{
		"climbing":      {one("../x"), [][]byte{x}, nil, `"../x" leads out`},
		"deep-climb":    {one("a/../../x"), [][]byte{x}, nil, `"a/../../x" leads out`},
		"absolute":      {one("/etc/x"), [][]byte{x}, nil, `"/etc/x" is absolute`},
		"git":           {one("a/.git/config"), [][]byte{x}, nil, `"a/.git/config" is that of a git repository`},
		"git-case":      {one(".GiT/hooks/x"), [][]byte{x}, nil, "git repository"},
		"nul":           {one("a\x00b"), [][]byte{x}, nil, "NUL"},
		"odd":           {one("a//b"), [][]byte{x}, nil, "shortest form"},
		"top":           {one("."), [][]byte{x}, nil, "shortest form"},
		"long":          {one(strings.Repeat("x", 300)), [][]byte{x}, nil, "more than 255 bytes"},
		"link-out":      {link("a/l", "../../etc"), [][]byte{x}, nil, `"a/l" leads out of the folder: "../../etc"`},
		"link-absolute": {link("l", "/etc"), [][]byte{x}, nil, `absolute path "/etc"`},
		"link-sly":      {link("l", "a/../../x"), [][]byte{x}, nil, "down and up again"},
		"below-link": {listing{Entries: []entryOf{{Path: []byte("l"), Kind: kindLink, Target: []byte(".")}, fileOf("l/x", "x", 1)}}, [][]byte{x}, nil,
			`"l/x" is below the link "l"`},
		"below-file": {listing{Entries: []entryOf{fileOf("f", "x", 1), fileOf("f/x", "", 0)}}, [][]byte{x}, nil, `below the file "f"`},
		"device":     {listing{Entries: []entryOf{{Path: []byte("d"), Kind: "device"}}}, nil, nil, `"d" is a "device"`},
		"twice":      {listing{Entries: []entryOf{fileOf("f", "x", 1), fileOf("f", "x", 0)}}, [][]byte{x}, nil, `"f" is there twice`},
		"deleted":    {listing{Deleted: [][]byte{[]byte("../../x")}}, nil, nil, `"../../x" leads out`},
		"digest": {listing{Entries: []entryOf{{Path: []byte("f"), Kind: kindFile, Bytes: 1, Digest: digestOf(nil), Pieces: 1}}}, [][]byte{x}, nil,
			`file "f": its content has the digest`},
		"short":    {listing{Entries: []entryOf{fileOf("f", "xx", 1)}}, [][]byte{x}, nil, "less than the files"},
		"more":     {one("f"), [][]byte{[]byte("xyz")}, nil, "more than the files"},
		"bomb":     {one("f"), [][]byte{make([]byte, 100<<20)}, nil, "unpacks to more than 3.0 MiB"},
		"pieces":   {listing{Entries: []entryOf{fileOf("f", "x", 5)}}, [][]byte{x}, nil, "claims to end 5 parts"},
		"negative": {listing{Entries: []entryOf{{Path: []byte("f"), Kind: kindFile, Bytes: -5, Digest: digestOf(x), Pieces: 1}}}, [][]byte{x}, func(p *Plain) { p.Bytes = 1 }, "claims to have -5 bytes"},
		"huge":     {listing{Entries: []entryOf{{Path: []byte("f"), Kind: kindFile, Bytes: 1 << 62, Digest: digestOf(x), Pieces: 1}}}, [][]byte{x}, func(p *Plain) { p.Bytes = 1 }, `file "f" claims`},
		"claims":   {one("f"), [][]byte{x}, func(p *Plain) { p.Bytes = 1 << 50 }, "1.0 PiB"},
		"count":    {one("f"), [][]byte{x}, func(p *Plain) { p.Files = 1 << 30 }, "1073741824 files"},
		"other":    {one("f"), [][]byte{x}, func(p *Plain) { p.Files = 7 }, "it has 1 files"},
		"no-list":  {one("f"), [][]byte{x}, func(p *Plain) { p.List = nil }, "no list of files"},
		"part":     {one("f"), [][]byte{x}, func(p *Plain) { p.Parts[0].Bytes = 10 << 30 }, "10737418240 bytes"},
		"version":  {one("f"), [][]byte{x}, func(p *Plain) { p.V = 7 }, "its format is 7"},
		"missing":  {one("f"), [][]byte{x}, func(p *Plain) { p.Parts[0].Digest = strings.Repeat("ab", 32) }, ErrMissing.Error()},
		"patterns": {one("f"), [][]byte{x}, func(p *Plain) { p.Exclude = []string{"["} }, "not valid"},
	} {
		s := newMemory()
		p := forge(t, s, c.list, c.pieces...)
		if c.change != nil {
			c.change(&p)
		}
		top := t.TempDir()
		dir := filepath.Join(top, "a", "work")
		must(t, os.Mkdir(filepath.Dir(dir), 0o755))
		err := newCache(t).UnpackPlain(t.Context(), p, Limits{}, s, dir)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.TrimSuffix(tree(t, top), "\"a/work\"/\n"); got != "\"a\"/\n" {
			t.Errorf("%s: left\n%s", name, got)
		}
		if _, err := ReceivePlain(t.Context(), p, Limits{}, s, dir); err == nil {
			t.Errorf("%s: it was received", name)
		}
	}
	s := newMemory()
	p := forge(t, s, one("f"), x)
	bomb, err := compress(make([]byte, 200<<20))
	must(t, err)
	p.List, err = send(t.Context(), s, bytes.NewReader(bomb))
	must(t, err)
	wantError(t, newCache(t).UnpackPlain(t.Context(), p, Limits{}, s, filepath.Join(t.TempDir(), "work")), "unpacks to more than 64.0 MiB")
}

func FuzzList(f *testing.F) {
	p := Plain{V: version, Files: 2, Bytes: 1, Parts: []Part{{strings.Repeat("ab", 32), 5}}}
	good, err := json.Marshal(listing{Entries: []entryOf{fileOf("a/b", "x", 1), {Path: []byte("a/l"), Kind: kindLink, Target: []byte("../a")}}})
	must(f, err)
	f.Add(good)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readList(data, p)
		if err != nil {
			return
		}
		for _, e := range list.Entries {
			if path := string(e.Path); !filepath.IsLocal(path) || inGit(path) {
				t.Errorf("the name %q", path)
			}
			if e.Kind == kindLink && !filepath.IsLocal(filepath.Join(filepath.Dir(string(e.Path)), string(e.Target))) {
				t.Errorf("the link %q to %q", e.Path, e.Target)
			}
		}
	})
}
