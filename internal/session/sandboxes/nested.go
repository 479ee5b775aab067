package sandboxes

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/internal/policy"
)

// Bounds of the search for repositories below a workspace.
const (
	maxSearched = 3000 // folders that are looked into
	maxDeep     = 6    // below the workspace
	maxNested   = 64   // repositories
)

// nested are the protected files in a folder, and the repositories there and below.
type nested struct {
	protected    []string // files and folders
	repositories []string // folders of git
}

// nested returns what is protected in a folder and below, as it is when the first command starts there. What commands
// make later is theirs, so that `git checkout` of a branch that has such files works, and the way back.
func (s *Sandboxes) nested(folder string) nested {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.below[folder]
	if !ok {
		found = search(folder)
		if s.below == nil {
			s.below = map[string]nested{}
		}
		s.below[folder] = found
	}
	return found
}

// search looks for repositories, those that are less deep first.
func search(folder string) (out nested) {
	out.protected = policy.Protected(folder)
	level := []string{folder}
	searched := 0
	for range maxDeep + 1 {
		var next []string
		for _, dir := range level {
			if searched++; searched > maxSearched || len(out.repositories) > maxNested {
				return out
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // who cannot read it cannot write it either
			}
			for _, e := range entries {
				path := filepath.Join(dir, e.Name())
				switch {
				case e.Name() == ".git":
					out.protected = append(out.protected, ofRepository(dir, dir != folder, e.IsDir())...)
					if isRepository(path) {
						out.repositories = append(out.repositories, path)
					}
				case e.IsDir() && !slices.Contains(passedOver, e.Name()):
					next = append(next, path)
				}
			}
		}
		level = next
	}
	return out
}

// isRepository reports whether a folder is one of git.
func isRepository(git string) bool {
	info, err := os.Lstat(filepath.Join(git, "HEAD"))
	return err == nil && info.Mode().IsRegular()
}

// passedOver are folders that programs fill, not people.
//
//rules:constant never changed after this line
var passedOver = []string{"node_modules", ".venv", "venv", "target", "__pycache__", ".tox", ".gradle", ".cache"}

// ofRepository returns the protected files of a checkout, if that is not the workspace itself, and in the
// repositories of its submodules.
func ofRepository(dir string, below, own bool) (paths []string) {
	git := filepath.Join(dir, ".git")
	if below {
		paths = policy.Protected(dir)
	}
	if !own {
		return paths // a file: the repository is elsewhere
	}
	if below {
		paths = append(paths, existing(protectedGit(git, ""))...)
	}
	for _, module := range modules(filepath.Join(git, "modules"), maxDeep) {
		paths = append(paths, existing(policy.ProtectedGit(module))...)
	}
	return paths
}

// modules returns the repositories of submodules, whose names may have slashes in them.
func modules(dir string, deep int) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil || deep == 0 {
		return nil
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "HEAD" }) {
		return append([]string{dir}, modules(filepath.Join(dir, "modules"), deep-1)...)
	}
	for _, e := range entries {
		if e.IsDir() && len(out) < maxNested {
			out = append(out, modules(filepath.Join(dir, e.Name()), deep-1)...)
		}
	}
	return out
}

func existing(paths []string) []string {
	return slices.DeleteFunc(paths, func(p string) bool {
		_, err := os.Lstat(p)
		return err != nil
	})
}
