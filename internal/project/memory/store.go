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
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
)

// Index is the file that is read into new sessions.
const Index = "MEMORY.md"

// Bounds of the files.
const (
	MaxFiles = 100      // files of memory
	MaxFile  = 64 << 10 // bytes of one, when it is written
)

// Store is the memory of one project. It keeps no state of its own, so that
// several processes and goroutines may use the same folder.
type Store struct{ dir string }

// At is the memory in a folder with an absolute path, which need not be there.
func At(dir string) *Store { return &Store{filepath.Clean(dir)} }

// Dir is where it is.
func (s *Store) Dir() string { return s.dir }

// Ensure makes the folder, and refuses a folder that other users could write to.
func (s *Store) Ensure() error {
	dir, err := s.open(true)
	if err != nil {
		return fmt.Errorf("open memory: %w", err)
	}
	dir.Close()
	return nil
}

func (s *Store) open(create bool) (*home.Folder, error) { return home.OpenFolder(s.dir, create) }

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
func names(dir *home.Folder) ([]string, error) {
	all, err := dir.File().Readdirnames(maxNames)
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
