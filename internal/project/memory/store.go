package memory

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Index is the file that is read into new sessions.
const Index = "MEMORY.md"

// Bounds of the files.
const (
	MaxFiles = 100      // files of memory
	MaxFile  = 64 << 10 // bytes of one, when it is written
)

// tempName begins the names of files that are being written.
const tempName = ".tmp-"

// Store is the memory of one project. It keeps no state of its own, so that
// several processes and goroutines may use the same folder.
type Store struct{ dir string }

// At is the memory in a folder with an absolute path, which need not be there.
func At(dir string) *Store { return &Store{filepath.Clean(dir)} }

// Dir is where it is.
func (s *Store) Dir() string { return s.dir }

// Ensure makes the folder, and refuses a folder that other users could write to.
func (s *Store) Ensure() error {
	root, err := s.open(true)
	if err != nil {
		return fmt.Errorf("open memory: %w", err)
	}
	return root.Close()
}

// open opens the folder. Without create it returns [fs.ErrNotExist] for a missing
// folder.
func (s *Store) open(create bool) (*os.Root, error) {
	if create {
		if err := saferoot.Near(s.dir).Mkdir(s.dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	named, err := os.Lstat(s.dir)
	if err != nil {
		return nil, err
	}
	if !named.IsDir() {
		return nil, fmt.Errorf("%s is no folder, or a link to one (move it away)", s.dir)
	}
	root, err := saferoot.Near(s.dir).Root(s.dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(named, opened) {
		err = fmt.Errorf("%s was exchanged while it was opened", s.dir)
	}
	if err == nil {
		err = home.Own(s.dir, opened)
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// openFile opens a file of the folder. It is looked at before, since to open a
// device may already do something, and again after, since it may have been swapped.
func openFile(root *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	before, err := root.Lstat(name)
	if err == nil {
		err = home.Plain(name, before)
	} else if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err == nil {
		err = home.Plain(name, after)
	}
	if err == nil && before != nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was exchanged while it was opened", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, after, nil
}

// read returns the first bytes of a file, and its info.
func read(root *os.Root, name string, most int64) ([]byte, fs.FileInfo, error) {
	f, info, err := openFile(root, name, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most))
	return data, info, err
}

// replace puts a file in the place of another at once, with the time of its last
// change unless that is zero. The caller holds the lock that guards the file, so a
// existing temporary file was left by a crash.
func replace(root *os.Root, name string, data []byte, changed time.Time) error {
	temp := tempName + name
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync() // else a power cut may leave an empty file under the name
	}
	err = errors.Join(err, f.Close())
	if err == nil && !changed.IsZero() {
		err = root.Chtimes(temp, changed, changed)
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// File is one file of memory.
type File struct {
	Name    string    `json:"name"`
	Bytes   int64     `json:"bytes"`
	Changed time.Time `json:"changed"`
}

// Files are the files of memory by their names, the index first, and what there is
// besides that cannot be one. A folder that is not there has none.
func (s *Store) Files() (files []File, problems []string, err error) {
	root, err := s.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read memory: %w", err)
	}
	defer root.Close()
	names, err := names(root)
	if err != nil {
		return nil, nil, fmt.Errorf("read memory: %w", err)
	}
	for _, name := range names {
		info, err := root.Lstat(name)
		if err != nil {
			continue // removed since the folder was read
		}
		if err := home.Plain(name, info); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		files = append(files, File{name, info.Size(), info.ModTime()})
	}
	slices.SortFunc(files, func(a, b File) int {
		if (a.Name == Index) != (b.Name == Index) {
			return map[bool]int{true: -1, false: 1}[a.Name == Index]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return files, problems, nil
}

// maxNames bounds how much of a folder is looked at.
const maxNames = 10_000

// names are those that a file of memory can have.
func names(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(maxNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return slices.DeleteFunc(all, func(name string) bool { return !fileName(name) }), err
}

// fileName reports whether a file of memory can have the name.
func fileName(name string) bool {
	return filepath.Ext(name) == ".md" && !strings.HasPrefix(name, ".") && len(name) <= 100 &&
		!strings.ContainsAny(name, "/\\\x00\n")
}

// MayWrite says why a file with this absolute path may not be given so many bytes,
// or nil: a file of memory lies in the folder itself, ends in .md, is not a link,
// and is small.
func (s *Store) MayWrite(path string, bytes int64) error {
	name := filepath.Base(path)
	switch {
	case !s.holds(filepath.Dir(filepath.Clean(path))):
		return fmt.Errorf("it is not in the memory folder %s", s.dir)
	case !fileName(name):
		return errors.New("a file of memory has a short name that ends in .md")
	case bytes > MaxFile:
		return fmt.Errorf(
			"a file of memory has %d bytes at most, and this would have %d: put it into several, or leave things out",
			MaxFile,
			bytes,
		)
	}
	root, err := s.open(false)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err == nil {
		return home.Plain(name, info)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, err := names(root)
	if err == nil && len(all) >= MaxFiles {
		err = fmt.Errorf("there are %d files of memory, as many as there can be: put this into one of them", len(all))
	}
	return err
}

// holds reports whether dir is the folder of the memory, by whatever name.
func (s *Store) holds(dir string) bool {
	if dir == s.dir {
		return true
	}
	a, err := os.Stat(dir)
	if err != nil {
		return false
	}
	b, err := os.Stat(s.dir)
	return err == nil && os.SameFile(a, b)
}
