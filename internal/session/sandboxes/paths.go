package sandboxes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// found is a folder as it was found.
type found struct {
	path  string   // without symlinks
	links []string // folders with a symlink on the way to it
}

// find looks for folders; those that are not there, and the root, are left out.
func find(paths []string) []found {
	var out []found
	for _, p := range paths {
		if real, links, err := resolve(p); err == nil && real != "/" {
			out = append(out, found{real, links})
		}
	}
	return out
}

// trusted returns the folders that may be written. A folder that is found by a symlink in another of
// them is left out: a command could have made it, and it may lead anywhere.
func trusted(all []found) []string {
	var roots, out []string
	for _, f := range all {
		roots = append(roots, f.path)
	}
	for _, f := range all {
		made := slices.ContainsFunc(f.links, func(l string) bool { return within(l, roots) })
		if !made && !slices.Contains(out, f.path) {
			out = append(out, f.path)
		}
	}
	return out
}

// maxLinks bounds the symlinks of one path.
const maxLinks = 40

// resolve follows the symlinks of an absolute path, and returns the folders in which they are.
func resolve(path string) (real string, links []string, err error) {
	if !filepath.IsAbs(path) {
		return "", nil, errors.New("a path must be absolute")
	}
	real = "/"
	rest := strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		target, err := os.Readlink(next)
		if errors.Is(err, syscall.EINVAL) { // no symlink
			real = next
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if links = append(links, real); len(links) > maxLinks {
			return "", nil, syscall.ELOOP
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, links, nil
}

// within reports whether a path is one of some folders, or below one.
func within(path string, folders []string) bool {
	for _, f := range folders {
		if path == f || strings.HasPrefix(path, strings.TrimSuffix(f, "/")+"/") {
			return true
		}
	}
	return false
}
