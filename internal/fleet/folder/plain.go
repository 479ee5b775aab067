package folder

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Plain says what travels of a folder that is not in a repository, or comes back of one. It is made
// by [PackPlain] and [Cache.CollectPlain]. The names, sizes and digests of all files are in a list, which
// travels in parts of its own; other parts hold the content of the files, in the order of the list.
type Plain struct {
	V       int      `json:"v"`
	List    []Part   `json:"list"`
	Parts   []Part   `json:"parts,omitempty"`
	Files   int      `json:"files"`             // files, links and empty folders of the list
	Deleted int      `json:"deleted,omitempty"` // names of the list that are no more; only of what comes back
	Bytes   int64    `json:"bytes"`             // of all files, unpacked
	Exclude []string `json:"exclude,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Empty reports whether there is nothing: of what comes back, that nothing was changed.
func (p Plain) Empty() bool { return p.Files == 0 && p.Deleted == 0 }

// listing is the list of a [Plain] as it travels: JSON, compressed with gzip.
type listing struct {
	Entries []entryOf `json:"entries"`
	Deleted [][]byte  `json:"deleted,omitempty"` // paths, of a change
}

// entryOf is a file, a link or an empty folder. Names are bytes: JSON has text in UTF-8 only.
type entryOf struct {
	Path   []byte `json:"path"` // relative, with slashes
	Kind   string `json:"kind"` // file, link or folder
	Exec   bool   `json:"exec,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	Digest string `json:"sha256,omitempty"`
	Target []byte `json:"target,omitempty"` // of a link
	Pieces int    `json:"pieces,omitempty"` // that end with the content of this file: parts, in order
}

const (
	kindFile   = "file"
	kindLink   = "link"
	kindFolder = "folder"

	pieceBytes = 3 << 20  // of content in a part, before it is compressed
	maxList    = 64 << 20 // bytes of a list, unpacked
	maxPath    = 4096
	maxElement = 255
)

// ReadPlain reads a [Plain] as JSON and checks it. What its list says is checked when it is unpacked.
func ReadPlain(data []byte, l Limits) (p Plain, err error) {
	if err = decode(data, &p); err == nil {
		err = p.check(l.orDefault())
	}
	if err != nil {
		return Plain{}, fmt.Errorf("read manifest of a plain folder: %w", err)
	}
	return p, nil
}

func (p Plain) check(l Limits) error {
	switch {
	case p.V != version:
		return fmt.Errorf("its format is %d, this program knows %d (use the same version on both machines)", p.V, version)
	case p.Files < 0 || p.Files > l.Files || p.Deleted < 0 || p.Deleted > l.Files:
		return fmt.Errorf("it claims to have %d files and %d deleted ones, the limit is %d", p.Files, p.Deleted, l.Files)
	case p.Bytes < 0 || p.Bytes > l.UnpackedBytes:
		return fmt.Errorf("it claims to unpack to %s, the limit is %s", size(p.Bytes), size(l.UnpackedBytes))
	case len(p.List) == 0:
		return errors.New("it has no list of files")
	case total(p.List) > maxList:
		return fmt.Errorf("its list of files has %s, the limit is %s", size(total(p.List)), size(maxList))
	}
	if err := checkNotes(p.Notes); err != nil {
		return err
	}
	if err := checkPatterns(p.Exclude); err != nil {
		return err
	}
	if err := checkParts(p.List, l.PackedBytes); err != nil {
		return fmt.Errorf("list of files: %w", err)
	}
	return checkPieces(p.Parts, l.PackedBytes)
}

// checkPatterns refuses patterns of files to exclude that nobody can match.
func checkPatterns(patterns []string) error {
	if len(patterns) > maxPatterns {
		return fmt.Errorf("%d patterns exclude files, the limit is %d", len(patterns), maxPatterns)
	}
	for _, p := range patterns {
		if !doublestar.ValidatePattern(p) || len(p) > maxNote {
			return fmt.Errorf("the pattern %.100q of files to exclude is not valid", p)
		}
	}
	return nil
}

// checkPieces is checkParts for parts of any size: they end where files do.
func checkPieces(parts []Part, most int64) error {
	sum := int64(0)
	for i, p := range parts {
		if err := checkParts([]Part{p}, most); err != nil {
			return fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
		}
		sum += p.Bytes
	}
	if sum > most {
		return fmt.Errorf("its parts add up to %s, the limit is %s", size(sum), size(most))
	}
	return nil
}

func (p *Plain) note(format string, args ...any) {
	if len(p.Notes) < maxNotes {
		p.Notes = append(p.Notes, note(format, args...))
	}
}

// checkPath refuses a name that could lead out of a folder, or into a repository in it.
func checkPath(path string) error {
	switch {
	case path == "" || strings.ContainsRune(path, 0) || len(path) > maxPath:
		return fmt.Errorf("the name %.100q is empty, too long, or has a NUL in it", path)
	case filepath.IsAbs(path):
		return fmt.Errorf("the name %.100q is absolute", path)
	case !filepath.IsLocal(path):
		return fmt.Errorf("the name %.100q leads out of the folder", path)
	case filepath.Clean(path) != path || path == ".":
		return fmt.Errorf("the name %.100q is not in its shortest form", path)
	case inGit(path):
		return fmt.Errorf("the name %.100q is that of a git repository", path)
	}
	for element := range strings.SplitSeq(path, "/") {
		if len(element) > maxElement {
			return fmt.Errorf("the name %.100q has an element of more than %d bytes", path, maxElement)
		}
	}
	return nil
}

// checkTarget refuses a link that leads out. It goes up first and then only down: behind a name, ..
// would mean the folder above that to which another link leads.
func checkTarget(path, target string) error {
	switch {
	case target == "" || len(target) > maxPath || strings.ContainsRune(target, 0):
		return fmt.Errorf("the link %.100q has no valid target", path)
	case filepath.IsAbs(target):
		return fmt.Errorf("the link %.100q leads to the absolute path %.100q", path, target)
	}
	up, down := 0, false
	for element := range strings.SplitSeq(target, "/") {
		switch {
		case element == ".." && down:
			return fmt.Errorf("the link %.100q leads down and up again: %.100q", path, target)
		case element == "..":
			up++
		case element != "" && element != ".":
			down = true
		}
	}
	if up > strings.Count(path, "/") {
		return fmt.Errorf("the link %.100q leads out of the folder: %.100q", path, target)
	}
	return nil
}

// check refuses a list that is not as its manifest says.
func (t listing) check(p Plain) error {
	if len(t.Entries) != p.Files || len(t.Deleted) != p.Deleted {
		return fmt.Errorf("it has %d files and %d deleted ones, the manifest says %d and %d", len(t.Entries), len(t.Deleted),
			p.Files, p.Deleted)
	}
	kinds, bytes, pieces := map[string]string{}, int64(0), 0
	for _, e := range t.Entries {
		path := string(e.Path)
		if err := checkPath(path); err != nil {
			return err
		}
		if _, twice := kinds[path]; twice {
			return fmt.Errorf("the name %.100q is there twice", path)
		}
		kinds[path] = e.Kind
		switch e.Kind {
		case kindFile:
			if e.Bytes < 0 || e.Bytes > p.Bytes-bytes || !hexes(e.Digest, 64) {
				return fmt.Errorf("file %.100q claims to have %d bytes and the digest %.70q, and %s are left of what the manifest says",
					path, e.Bytes, e.Digest, size(p.Bytes-bytes))
			}
			bytes += e.Bytes
			if e.Pieces < 0 || e.Pieces > len(p.Parts)-pieces {
				return fmt.Errorf("file %.100q claims to end %d parts, %d are left", path, e.Pieces, len(p.Parts)-pieces)
			}
			pieces += e.Pieces
		case kindLink:
			if err := checkTarget(path, string(e.Target)); err != nil {
				return err
			}
		case kindFolder:
		default:
			return fmt.Errorf("%.100q is a %.20q, which does not travel", path, e.Kind)
		}
	}
	for path := range kinds {
		for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
			if kind, there := kinds[at]; there && kind != kindFolder {
				return fmt.Errorf("%.100q is below the %s %.100q", path, kind, at)
			}
		}
	}
	for _, path := range t.Deleted {
		if err := checkPath(string(path)); err != nil {
			return err
		}
	}
	if bytes != p.Bytes || pieces != len(p.Parts) {
		return fmt.Errorf("its files have %d bytes in %d parts, the manifest says %d in %d", bytes, pieces, p.Bytes,
			len(p.Parts))
	}
	return nil
}

// sendList puts a list into the store.
func sendList(ctx context.Context, t listing, s Store) ([]Part, error) {
	slices.SortFunc(t.Deleted, bytes.Compare)
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if len(data) > maxList {
		return nil, fmt.Errorf("the list of files has %s, the limit is %s (exclude folders)", size(int64(len(data))),
			size(maxList))
	}
	packed, err := compress(data)
	if err != nil {
		return nil, err
	}
	return send(ctx, s, bytes.NewReader(packed))
}

// list receives and checks the list of a manifest.
func (p Plain) list(ctx context.Context, l Limits, s Store) (t listing, err error) {
	if err := p.check(l); err != nil {
		return t, fmt.Errorf("check the manifest: %w", err)
	}
	var packed bytes.Buffer
	if err := receive(ctx, s, p.List, &packed); err != nil {
		return t, fmt.Errorf("list of files: %w", err)
	}
	data, err := expand(packed.Bytes(), maxList)
	if err != nil {
		return t, fmt.Errorf("list of files: %w", err)
	}
	return readList(data, p)
}

func readList(data []byte, p Plain) (t listing, err error) {
	if err = json.Unmarshal(data, &t); err == nil {
		err = t.check(p)
	}
	if err != nil {
		return listing{}, fmt.Errorf("list of files: %w", err)
	}
	return t, nil
}

// compress always makes the same of the same bytes.
func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// expand undoes compress, up to a number of bytes.
func expand(packed []byte, most int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it unpacks to more than %s, the limit", size(most))
	}
	return data, err
}
