// Package confine says which files a tool may touch.
//
// An [Area] is a few folders. It promises that a [Place] lies in one of them
// when it is found, and that what is opened through its root lies there when it
// is opened, also if somebody swaps a folder for a link between the two. It
// knows nothing of permissions, and of what is done with a file.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Area is the folders that a tool may use. Root is where relative paths begin.
type Area struct {
	Root     string   // absolute
	Dirs     []string // absolute; further folders
	Anywhere bool     // the whole file system
}

// Place is a file or folder in an [Area], which need not exist.
type Place struct {
	Dir string // the folder of the area, absolute, without symbolic links
	Rel string // below Dir; "." for Dir itself
}

// Path is the absolute path, without symbolic links.
func (p Place) Path() string { return filepath.Join(p.Dir, p.Rel) }

// Open opens the folder of the area; Rel is a name in it. The caller closes it.
func (p Place) Open() (*os.Root, error) { return os.OpenRoot(p.Dir) }

// ErrOutside is returned for paths that lead out of the area.
var ErrOutside = errors.New("outside the folders that may be used")

// Find follows all links of path and returns the place it leads to. Errors are
// for the model.
func (a Area) Find(path string) (Place, error) {
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
	for _, dir := range a.folders() {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // a folder that is gone holds nothing
		}
		if rel, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(rel) {
			return Place{Dir: dir, Rel: rel}, nil
		}
	}
	return Place{}, fmt.Errorf("%s is %w: %s", path, ErrOutside, strings.Join(a.folders(), ", "))
}

func (a Area) folders() []string {
	if a.Anywhere {
		return []string{"/"}
	}
	return append([]string{a.Root}, a.Dirs...)
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
