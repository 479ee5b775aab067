package folder

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// UnpackPlain writes the files of a manifest to a new or empty folder, whose parent exists. All
// names are checked before the first is written. Parts stay in the cache, for the next transfer
// that has them. After a failure the folder is empty or gone.
func (c *Cache) UnpackPlain(ctx context.Context, p Plain, l Limits, s Store, dir string) error {
	if _, err := lay(ctx, p, l.orDefault(), kept{s, c}, dir); err != nil {
		return fmt.Errorf("unpack a folder to %s: %w", dir, err)
	}
	return nil
}

// Change is what came back of a plain folder.
type Change struct {
	Files   []string // new or changed, in the folder that was given
	Deleted []string
	Notes   []string
}

// ReceivePlain writes what [Cache.CollectPlain] has packed to a new or empty folder, never over the one
// from which the task began.
func ReceivePlain(ctx context.Context, p Plain, l Limits, s Store, dir string) (Change, error) {
	t, err := lay(ctx, p, l.orDefault(), s, dir)
	if err != nil {
		return Change{}, fmt.Errorf("receive changed files into %s: %w", dir, err)
	}
	c := Change{Notes: p.Notes}
	for _, e := range t.Entries {
		c.Files = append(c.Files, string(e.Path))
	}
	for _, path := range t.Deleted {
		c.Deleted = append(c.Deleted, string(path))
	}
	return c, nil
}

func lay(ctx context.Context, p Plain, l Limits, s Store, dir string) (t listing, err error) {
	if t, err = p.list(ctx, l, s); err != nil {
		return t, err
	}
	if err := saferoot.Dir(filepath.Dir(dir)).Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return t, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return t, err
	}
	defer func() { _ = root.Close() }()
	if err := vacant(root); err != nil {
		return t, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clear(root))
		}
	}()
	w := writer{ctx: ctx, root: root, store: s, parts: p.Parts}
	for _, e := range t.Entries {
		if err := w.entry(e); err != nil {
			return t, err
		}
	}
	if err := w.content(0); err != nil { // empty files at the end
		return t, err
	}
	// Links come last, so that nothing is written by way of one.
	for _, e := range t.Entries {
		if e.Kind == kindLink {
			if err := w.link(e); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// writer writes the files of a list.
type writer struct {
	ctx   context.Context // of the one call that it works for
	root  *os.Root
	store Store
	parts []Part // that are not received yet
	buf   []byte // content of the last one that is not written yet
	files []entryOf
}

// entry takes the next entry. A part ends with a file, so files wait for the one that ends it.
func (w *writer) entry(e entryOf) error {
	path := string(e.Path)
	switch e.Kind {
	case kindFolder:
		return w.root.MkdirAll(path, 0o755)
	case kindFile:
		if w.files = append(w.files, e); e.Pieces > 0 {
			return w.content(e.Pieces)
		}
	}
	return nil
}

// content writes the files that wait, from the next parts.
func (w *writer) content(pieces int) error {
	next := func() error {
		if pieces == 0 {
			return errors.New("the parts hold less than the files")
		}
		pieces--
		packed, err := get(w.ctx, w.store, w.parts[0])
		if err != nil {
			return fmt.Errorf("receive part %s: %w", short(w.parts[0].Digest), err)
		}
		w.buf, err = expand(packed, pieceBytes)
		w.parts = w.parts[1:]
		return err
	}
	for _, e := range w.files {
		if err := w.file(e, next); err != nil {
			return fmt.Errorf("file %.100q: %w", e.Path, err)
		}
	}
	w.files = w.files[:0]
	if pieces > 0 || len(w.buf) > 0 {
		return errors.New("the parts hold more than the files")
	}
	return nil
}

func (w *writer) file(e entryOf, next func() error) (err error) {
	path := string(e.Path)
	if err := w.root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if e.Exec {
		mode = 0o755
	}
	f, err := w.root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	for left := e.Bytes; left > 0; {
		if len(w.buf) == 0 {
			if err := next(); err != nil {
				return err
			}
			if len(w.buf) == 0 {
				return errors.New("a part is empty")
			}
		}
		n := min(left, int64(len(w.buf)))
		if err := both(f, sum, w.buf[:n]); err != nil {
			return err
		}
		w.buf, left = w.buf[n:], left-n
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != e.Digest {
		return fmt.Errorf("its content has the digest %s, the list says %s", short(got), short(e.Digest))
	}
	return nil
}

func both(f io.Writer, sum hash.Hash, data []byte) error {
	_, _ = sum.Write(data)
	_, err := io.Copy(f, bytes.NewReader(data))
	return err
}

func (w *writer) link(e entryOf) error {
	path := string(e.Path)
	if err := w.root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return w.root.Symlink(string(e.Target), path)
}

const partsName = "parts" // in a cache: parts of plain folders

// kept is a store that looks for parts in a cache before.
type kept struct {
	Store
	c *Cache
}

func (k kept) Get(ctx context.Context, digest string) ([]byte, error) {
	path := k.c.path(partsName, digest)
	if data, err := home.ReadBelow(k.c.below(), path, PartBytes); err == nil && digestOf(data) == digest {
		if root, err := k.c.below().Root(filepath.Dir(path)); err == nil {
			_ = root.Chtimes(digest, time.Now(), time.Now()) // it was used
			_ = root.Close()
		}
		return data, nil
	}
	data, err := k.Store.Get(ctx, digest)
	if err != nil || digestOf(data) != digest {
		return data, err
	}
	if err := k.c.mkdirs(partsName); err != nil {
		return nil, err
	}
	return data, home.WriteBelow(k.c.below(), path, data)
}
