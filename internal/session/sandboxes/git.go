package sandboxes

import (
	"bytes"
	"errors"
	"fmt"
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
// which they work, which may be below it: other checkouts are not theirs, and git there obeys what is in their folders.
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

// runsPrograms are the names in a repository of what decides which programs git runs. A mount protects what is there.
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
func takeBack(git string, absent, allowed []string, since time.Time) (said []string) {
	root, err := os.OpenRoot(git)
	if err != nil {
		return nil // it was removed
	}
	defer root.Close()
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
	count := 0
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch count++; {
		case err != nil || count > maxGitEntries:
			return fs.SkipDir
		case d.IsDir() && path.Dir(name) == "objects" && len(path.Base(name)) == 2:
			return fs.SkipDir // objects, whose names say what is in them
		case d.Type()&fs.ModeSymlink != 0 && isNew(name):
			if to, _ := root.Readlink(name); root.Remove(name) == nil {
				say(name, " (a symlink to "+to+")")
			}
		}
		return nil
	})
	for _, name := range []string{"rebase-merge/git-rebase-todo", "sequencer/todo"} {
		if isNew(name) && withoutExec(root, name) {
			say(name, " (its exec lines)")
		}
	}
	return said
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
