// Package confine says which files a tool may access.
//
// An [Area] is a list of folders, and the places outside of them that Outside approves. A
// [Place] lies there when it is found, and a file that is opened through its root lies
// there when it is opened, also if a folder is replaced by a link in between. A file is
// returned only after MayOpen has approved the open file. The package knows no rules.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Area is the folders that the tools of an agent may use. Its functions may be called by
// several goroutines; nil functions allow nothing outside of the folders, and everything else.
type Area struct {
	Root string   // absolute; where relative paths begin
	Dirs []string // absolute; further folders

	// Outside reports whether the named tool may use a place outside of the folders, given by its
	// absolute path without symbolic links.
	Outside func(tool, real string) bool
	// MayRead is asked before a file is read, with its absolute path without symbolic links.
	MayRead func(path string) bool
	// MayOpen is asked about every file that [Place.OpenFile] opens, when the file cannot be
	// exchanged any more. change says whether it is opened to be changed.
	MayOpen func(f *os.File, change bool) bool
}

// Reads reports whether the file at a path, absolute and without symbolic links, may be read.
func (a Area) Reads(path string) bool { return a.MayRead == nil || a.MayRead(path) }

// Place is a file or folder in an [Area], which need not exist.
type Place struct {
	Dir string // the folder of the area, absolute, without symbolic links
	Rel string // below Dir; "." for Dir itself

	Outside bool // outside of the folders, and approved

	may func(*os.File, bool) bool
}

// Path is the absolute path, without symbolic links.
func (p Place) Path() string { return filepath.Join(p.Dir, p.Rel) }

// Open opens the folder of the area; Rel is a name in it. The caller closes it.
func (p Place) Open() (*os.Root, error) {
	root, err := os.OpenRoot(p.Dir)
	if err == nil && p.Outside {
		if err = unlinked(root, p.Dir); err != nil {
			_ = root.Close()
		}
	}
	return root, err
}

// unlinked refuses a folder that a symbolic link leads to: the user approved the path itself.
func unlinked(root *os.Root, dir string) error {
	if dir == "/" {
		return nil
	}
	f, err := saferoot.Dir("/").Open(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	if err != nil {
		return err
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(is, opened) {
		return fmt.Errorf("%s has just been replaced", dir)
	}
	return nil
}

// OpenFile opens the file of the place, following no link out of Dir, and refuses
// a file that must not be used with [ErrRefused]. It never waits for the other end
// of a pipe and truncates only after these checks. flag and perm are as for
// [os.OpenFile].
func (p Place) OpenFile(flag int, perm fs.FileMode) (*os.File, error) {
	root, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(p.Rel, flag&^os.O_TRUNC|syscall.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	change := flag&(os.O_WRONLY|os.O_RDWR) != 0
	if p.may != nil && !p.may(f, change) {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", p.Path(), ErrRefused)
	}
	if flag&os.O_TRUNC == 0 {
		return f, nil
	}
	if err := f.Truncate(0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ErrRefused is returned for a file that must not be used, by whatever name.
var ErrRefused = errors.New("a rule denies this file")

// ErrOutside is returned for paths that lead out of the area.
var ErrOutside = errors.New("outside the folders that may be used")

// Find follows all links of path and returns the place it leads to, for the named tool.
// Errors are for the model.
func (a Area) Find(tool, path string) (Place, error) {
	if strings.ContainsRune(path, 0) {
		return Place{}, errors.New("the path contains a NUL character")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.Root, path)
	}
	real, err := resolve(filepath.Clean(path))
	if err != nil {
		return Place{}, err
	}
	folders := append([]string{a.Root}, a.Dirs...)
	for _, dir := range folders {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // a folder that is gone holds nothing
		}
		if rel, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(rel) {
			return Place{Dir: dir, Rel: rel, may: a.MayOpen}, nil
		}
	}
	if a.Outside == nil || !a.Outside(tool, real) {
		return Place{}, fmt.Errorf("%s is %w: %s", path, ErrOutside, strings.Join(folders, ", "))
	}
	dir := real
	for info, err := os.Stat(dir); err != nil || !info.IsDir(); info, err = os.Stat(dir) {
		if dir == "/" {
			return Place{}, err
		}
		dir = filepath.Dir(dir)
	}
	rel, err := filepath.Rel(dir, real)
	return Place{Dir: dir, Rel: rel, may: a.MayOpen, Outside: true}, err
}

// resolve follows the links of the part of path that exists.
func resolve(path string) (string, error) {
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return "", err
		}
		path, rest = parent, filepath.Join(filepath.Base(path), rest)
	}
}

// About is err with the path that it is about, unless it says so itself.
func About(path string, err error) error {
	if err == nil || errors.Is(err, ErrOutside) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
