package folder

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// PlainChoice is what [PackPlain] takes.
type PlainChoice struct {
	Exclude []string // patterns of paths relative to the folder, with ** for any number of folders
	Limits  Limits
}

// PackPlain makes the files of a folder without git into parts in the store. The boundaries of the
// parts depend on the names of files, so that a changed file changes few of them, and those that
// the store has are not sent again. Modes other than the one that makes a file executable, times
// and owners do not travel. What does not travel is in the notes.
func PackPlain(ctx context.Context, dir string, c PlainChoice, s Store) (Plain, error) {
	p, err := packPlain(ctx, dir, c, nil, s)
	if err != nil {
		return Plain{}, fmt.Errorf("pack the folder %s: %w", dir, err)
	}
	return p, nil
}

// CollectPlain packs what is other in a folder than in the manifest from which it was unpacked: new
// and changed files, and the names of deleted ones. What is excluded there is excluded here. The list
// of the manifest is in the cache since [Cache.UnpackPlain], however long ago that was.
func (c *Cache) CollectPlain(ctx context.Context, dir string, m Plain, l Limits, s Store) (Plain, error) {
	before, err := m.list(ctx, l.orDefault(), kept{s, c})
	var p Plain
	if err == nil {
		p, err = packPlain(ctx, dir, PlainChoice{Exclude: m.Exclude, Limits: l}, &before, s)
	}
	if err != nil {
		return Plain{}, fmt.Errorf("collect what was changed in %s: %w", dir, err)
	}
	return p, nil
}

func packPlain(ctx context.Context, dir string, c PlainChoice, before *listing, s Store) (p Plain, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return p, err
	}
	defer func() { _ = root.Close() }()
	if err := checkPatterns(c.Exclude); err != nil {
		return p, err
	}
	w := &packer{ctx: ctx, root: root, limits: c.Limits.orDefault(), store: s, before: map[string]entryOf{}}
	w.p = Plain{V: version, Exclude: c.Exclude}
	if before != nil {
		for _, e := range before.Entries {
			w.before[string(e.Path)] = e
		}
	}
	if err := w.folder("."); err != nil {
		return p, err
	}
	if err := w.flush(); err != nil {
		return p, err
	}
	w.tell()
	for path, e := range w.before { // what is left was not found
		if e.Kind != kindFolder {
			w.list.Deleted = append(w.list.Deleted, []byte(path))
		}
	}
	w.p.Files, w.p.Deleted = len(w.list.Entries), len(w.list.Deleted)
	w.p.List, err = sendList(ctx, w.list, s)
	return w.p, err
}

// packer walks a folder and sends what it finds.
type packer struct {
	ctx    context.Context // of the one call that it works for
	root   *os.Root
	limits Limits
	store  Store
	before map[string]entryOf // what the other side has; what was seen is removed

	p      Plain
	list   listing
	buf    bytes.Buffer // content that is not sent yet
	packed int64

	repos, outside, odd []string
}

// tell makes notes of what does not travel.
func (w *packer) tell() {
	for _, n := range []struct {
		names []string
		what  string
	}{
		{w.repos, "these git repositories in the folder do not travel, only their files: %s"},
		{w.outside, "these links lead out of the folder and do not travel: %s"},
		{w.odd, "these are neither files nor folders nor links and do not travel: %s"},
	} {
		if len(n.names) > 0 {
			w.p.note(n.what, named(n.names))
		}
	}
}

func (w *packer) folder(at string) error {
	d, err := w.root.Open(at)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(w.limits.Files + 1)
	if err := errors.Join(ignoreEOF(err), d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	kept := 0
	for _, name := range names {
		took, err := w.one(filepath.Join(at, name), name)
		if err != nil {
			return err
		}
		if took {
			kept++
		}
	}
	if kept == 0 && at != "." {
		return w.add(entryOf{Path: []byte(at), Kind: kindFolder})
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// one takes what has a name, and reports whether it did.
func (w *packer) one(path, name string) (bool, error) {
	if err := context.Cause(w.ctx); err != nil {
		return false, err
	}
	if strings.EqualFold(name, ".git") {
		w.repos = append(w.repos, filepath.Dir(path))
		return false, nil
	}
	for _, pattern := range w.p.Exclude {
		if ok, _ := doublestar.Match(pattern, path); ok {
			delete(w.before, path)
			return false, nil
		}
	}
	info, err := w.root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it has gone meanwhile
	}
	if err != nil {
		return false, err
	}
	if err := checkPath(path); err != nil {
		return false, err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return true, w.folder(path)
	case fs.ModeSymlink:
		target, err := w.root.Readlink(path)
		if err != nil {
			return false, err
		}
		if checkTarget(path, target) != nil {
			w.outside = append(w.outside, path)
			return false, nil
		}
		return true, w.add(entryOf{Path: []byte(path), Kind: kindLink, Target: []byte(target)})
	case 0:
		return true, w.file(path, info)
	}
	w.odd = append(w.odd, path)
	return false, nil
}

// add takes an entry into the list, unless the other side has it as it is.
func (w *packer) add(e entryOf) error {
	if w.known(e) {
		return nil
	}
	if len(w.list.Entries) >= w.limits.Files {
		return fmt.Errorf("there are more than %d files, the limit (exclude folders)", w.limits.Files)
	}
	w.list.Entries = append(w.list.Entries, e)
	return nil
}

// known reports whether the other side has an entry as it is.
func (w *packer) known(e entryOf) bool {
	b, ok := w.before[string(e.Path)]
	delete(w.before, string(e.Path))
	return ok && b.Kind == e.Kind && b.Exec == e.Exec && b.Bytes == e.Bytes && b.Digest == e.Digest &&
		bytes.Equal(b.Target, e.Target)
}

func (w *packer) file(path string, info fs.FileInfo) error {
	e := entryOf{Path: []byte(path), Kind: kindFile, Exec: info.Mode()&0o100 != 0}
	if _, there := w.before[path]; there {
		sum, n, err := w.digest(path)
		if err != nil {
			return err
		}
		same := e
		same.Bytes, same.Digest = n, sum
		if w.known(same) {
			return nil
		}
	}
	if w.p.Bytes+info.Size() > w.limits.UnpackedBytes {
		return fmt.Errorf("with %q (%s) the files have more than %s, the limit (exclude folders, or raise the limit)", path,
			size(info.Size()), size(w.limits.UnpackedBytes))
	}
	if info.Size() >= pieceBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	f, err := untrusted.Open(w.root, path)
	if err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	defer f.Close()
	if err := w.add(e); err != nil {
		return err
	}
	at := &w.list.Entries[len(w.list.Entries)-1]
	sum := sha256.New()
	for {
		n, err := io.CopyN(io.MultiWriter(&w.buf, sum), f, int64(pieceBytes-w.buf.Len()))
		at.Bytes += n
		if w.p.Bytes += n; w.p.Bytes > w.limits.UnpackedBytes {
			return fmt.Errorf("%q has grown, and the files have more than %s, the limit", path, size(w.limits.UnpackedBytes))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %q: %w", path, err)
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	at.Digest = hex.EncodeToString(sum.Sum(nil))
	if at.Pieces > 0 || boundary(path) {
		return w.flush() // a file that has ended a part ends the one with its rest too
	}
	return nil
}

func (w *packer) digest(path string) (string, int64, error) {
	f, err := untrusted.Open(w.root, path)
	if err != nil {
		return "", 0, fmt.Errorf("read %q: %w", path, err)
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// boundary reports whether a part ends behind a file: behind one of 16, so that a part has a dozen
// or two of small files, and a change of one leaves the other parts as they are.
func boundary(path string) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, path)
	return h.Sum32()%16 == 0
}

// flush sends the content that is collected, as a part that the last file ends.
func (w *packer) flush() error {
	if w.buf.Len() == 0 {
		return nil
	}
	data, err := compress(w.buf.Bytes())
	if err != nil {
		return err
	}
	w.buf.Reset()
	part := Part{Digest: digestOf(data), Bytes: int64(len(data))}
	if w.packed += part.Bytes; w.packed > w.limits.PackedBytes {
		return fmt.Errorf("more than %s would have to travel, the limit (exclude folders, or raise the limit)",
			size(w.limits.PackedBytes))
	}
	if err := put(w.ctx, w.store, part, data); err != nil {
		return fmt.Errorf("send part %d (%s): %w", len(w.p.Parts)+1, short(part.Digest), err)
	}
	w.p.Parts = append(w.p.Parts, part)
	w.list.Entries[w.lastFile()].Pieces++
	return nil
}

func (w *packer) lastFile() int {
	for i := len(w.list.Entries) - 1; ; i-- {
		if w.list.Entries[i].Kind == kindFile {
			return i
		}
	}
}
