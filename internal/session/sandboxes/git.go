package sandboxes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/policy"
)

// Bounds of the look into a repository.
const (
	maxGitEntries = 20_000
	maxTodo       = 1 << 20 // bytes of the list of a rebase
)

// protectedGit is what commands must not change in the folder of a repository. own is the folder of the checkout in
// which they work, which may be below it: other checkouts are not theirs, and git there obeys files there.
func protectedGit(git, own string) []string {
	paths := policy.ProtectedGit(git)
	entries, err := os.ReadDir(filepath.Join(git, "worktrees"))
	if err != nil {
		return paths
	}
	for _, e := range entries {
		if other := filepath.Join(git, "worktrees", e.Name()); other != own {
			paths = append(paths, other)
		}
	}
	return paths
}

// runsPrograms are the names in a repository of what decides which programs git runs. Mounts protect existing ones.
//
//rules:constant never changed after this line
var runsPrograms = []string{"commondir", "config", "config.worktree", "hooks", "info/attributes"}

// absentOf are the names of [runsPrograms] that are not in a repository.
func absentOf(git string) (names []string) {
	for _, name := range runsPrograms {
		if _, err := os.Lstat(filepath.Join(git, name)); errors.Is(err, fs.ErrNotExist) {
			names = append(names, name)
		}
	}
	return names
}

// takenBack is the folder of a repository into which files are moved that git there must not obey.
const takenBack = "taken-back"

// takeBack takes from a repository what git outside would follow or run, and was made since a time: the files that
// were absent, symlinks, and lines of a rebase that run commands. It returns what that was. allowed are the files that
// somebody has allowed the command to write.
func (s *Sandboxes) takeBack(git string, absent, allowed []string, since time.Time) (said []string) {
	links, todos, changed := s.readGit(git, since)
	if !changed && len(todos) == 0 {
		return nil
	}
	root, err := os.OpenRoot(git)
	if err != nil {
		return nil // it was removed
	}
	defer root.Close()
	defer s.keepAbsent(git)
	isNew := func(name string) bool {
		var st unix.Stat_t
		path := filepath.Join(git, name)
		return unix.Lstat(path, &st) == nil && fresh(st, since) && !within(path, allowed)
	}
	say := func(name, what string) { said = append(said, filepath.Join(git, name)+what) }
	for _, name := range absent {
		if !isNew(name) {
			continue
		}
		to := path.Join(takenBack, fmt.Sprintf("%s-%d", path.Base(name), time.Now().UnixNano()))
		if _ = root.Mkdir(takenBack, 0o700); root.Rename(name, to) == nil || root.RemoveAll(name) == nil {
			say(name, " (moved to "+to+")")
		}
	}
	for _, name := range links {
		if !isNew(name) {
			continue
		}
		if to, _ := root.Readlink(name); root.Remove(name) == nil {
			say(name, " (a symlink to "+to+")")
		}
	}
	for _, name := range todos {
		if isNew(name) && withoutExec(root, name) {
			say(name, " (its exec lines)")
		}
	}
	return said
}

// listed is a folder of a repository as it was read.
type listed struct {
	seen
	below []string // the folders in it
	links []string // the symlinks in it
}

// readGit reads the folders of a repository that have changed since they were read. It returns the symlinks in those in
// which names were made since a time, the lists of a rebase that may be there, and whether any folder has changed.
func (s *Sandboxes) readGit(git string, since time.Time) (links, todos []string, changed bool) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.trees[git] == nil {
		if s.trees == nil {
			s.trees = map[string]map[string]listed{}
		}
		s.trees[git] = map[string]listed{}
	}
	tree, count := s.trees[git], 0
	var walk func(name string)
	walk = func(name string) {
		var st unix.Stat_t
		at := time.Now()
		if unix.Lstat(filepath.Join(git, name), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			delete(tree, name)
			return
		}
		was, known := tree[name]
		if now := see(st, at); !known || !was.still(now) {
			for _, name := range was.below {
				delete(tree, name) // it may be gone
			}
			changed, was = true, listed{seen: now}
			entries, err := readDir(git, name, maxGitEntries-count)
			if count += len(entries); err != nil || count >= maxGitEntries {
				return
			}
			for _, e := range entries {
				switch path := path.Join(name, e.Name()); {
				case e.IsDir() && name == "objects" && len(e.Name()) == 2: // objects, whose names are digests
				case e.IsDir():
					was.below = append(was.below, path)
				case e.Type()&fs.ModeSymlink != 0:
					was.links = append(was.links, path)
				}
			}
			tree[name] = was
		}
		if fresh(st, since) { // another look may have read it
			changed, links = true, append(links, was.links...)
		}
		for _, name := range was.below {
			walk(name)
		}
	}
	walk(".")
	for folder, name := range map[string]string{"rebase-merge": "git-rebase-todo", "sequencer": "todo"} {
		if _, ok := tree[folder]; ok {
			todos = append(todos, path.Join(folder, name))
		}
	}
	return links, todos, changed
}

// readDir reads at most so many entries of a folder of a repository.
func readDir(git, name string, most int) ([]fs.DirEntry, error) {
	root, err := os.OpenRoot(git)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(name)
	if err != nil || most <= 0 {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// withoutExec takes the lines that run commands out of the list of a rebase.
func withoutExec(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxTodo {
		return false
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return false
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	kept := slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool {
		word, _, _ := strings.Cut(strings.TrimLeft(string(line), " \t"), " ")
		word, _, _ = strings.Cut(word, "\t")
		return word == "exec" || word == "x"
	})
	return len(kept) < len(lines) && root.WriteFile(name, bytes.Join(kept, nil), 0o600) == nil
}
