package merge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
)

// whereIs finds the work tree in which a branch is checked out.
func whereIs(ctx context.Context, p place) (admin, top string, err error) {
	text, err := p.repository(nil).Text(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return "", "", err
	}
	for entry := range strings.SplitSeq(text, "\n\n") {
		path, rest, _ := strings.Cut(strings.TrimPrefix(entry, "worktree "), "\n")
		if !slices.Contains(strings.Split(rest, "\n"), "branch "+p.ref) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		at, err := gitrun.Find(ctx, path)
		return at.Admin, at.Top, err
	}
	return "", "", nil
}

// clean refuses a work tree with changes, or in the middle of a rebase or a merge.
func (p place) clean(ctx context.Context, held *os.File) error {
	short := strings.TrimPrefix(p.ref, "refs/heads/")
	if p.admin == "" {
		return nil
	}
	for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"} {
		if _, err := os.Lstat(filepath.Join(p.admin, name)); err == nil {
			return fmt.Errorf("%s is checked out in %s, where git is in the middle of something, as %s says "+
				"(finish or abort it: see `git status`)", short, p.top, name)
		}
	}
	list, err := p.checkout(held).Fields(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no",
		"--ignore-submodules=dirty")
	if err != nil || len(list) == 0 {
		return err
	}
	var files []string
	for _, l := range list {
		files = append(files, l[min(len(l), 3):])
	}
	return fmt.Errorf("%s is checked out in %s with changes that are not committed, in %s "+
		"(commit them, put them aside with `git stash`, or merge to another branch with --into)", short, p.top, names(files))
}

// entry is a file in which two commits differ.
type entry struct {
	path string
	kind byte   // A, D, M or T
	oid  string // of the new one
}

func differences(ctx context.Context, g gitrun.Git, before, after string) ([]entry, error) {
	list, err := g.Fields(ctx, "diff-tree", "-r", "--no-renames", "--raw", "-z", before, after)
	if err != nil {
		return nil, err
	}
	var out []entry
	for i := 0; i+1 < len(list); i += 2 {
		if head := strings.Fields(list[i]); len(head) == 5 {
			out = append(out, entry{path: list[i+1], kind: head[4][0], oid: head[3]})
		}
	}
	return out, nil
}

// free refuses a move that would overwrite files of the user which git does not track,
// or which it disregards by the user's choice.
func (p place) free(ctx context.Context, held *os.File, before, after string) error {
	if p.admin == "" {
		return nil
	}
	g := p.checkout(held)
	list, err := differences(ctx, g, before, after)
	if err != nil {
		return err
	}
	top, err := os.OpenRoot(p.top)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	changed, deleted := map[string]bool{}, map[string]bool{}
	for _, e := range list {
		changed[e.path], deleted[e.path] = true, e.kind == 'D'
	}
	var blocking []string
	for _, e := range list {
		if e.kind == 'A' {
			blocking = append(blocking, inTheWay(top, e.path, deleted)...)
		}
	}
	if len(blocking) > 0 {
		slices.Sort(blocking)
		return fmt.Errorf("files in %s that git does not track would be overwritten: %s (move them away)", p.top,
			names(slices.Compact(blocking)))
	}
	flags, err := g.Fields(ctx, "ls-files", "-v", "-z")
	if err != nil {
		return err
	}
	var hidden []string
	for _, f := range flags {
		tag, name, _ := strings.Cut(f, " ")
		if changed[name] && (tag == "S" || tag != strings.ToUpper(tag)) {
			hidden = append(hidden, name)
		}
	}
	if len(hidden) > 0 {
		return fmt.Errorf("files in %s that the change touches are marked --assume-unchanged or --skip-worktree: %s "+
			"(unmark them with `git update-index`, or merge to another branch with --into)", p.top, names(hidden))
	}
	return nil
}

// inTheWay names the files at the place of a new file, except files that are deleted first.
func inTheWay(top *os.Root, path string, deleted map[string]bool) (found []string) {
	for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
		if info, err := top.Lstat(at); err == nil && !info.IsDir() && !deleted[at] {
			return []string{at}
		}
	}
	info, err := top.Lstat(path)
	switch {
	case err != nil: // the path is free, or a file that gets deleted is on the way to it
		return nil
	case !info.IsDir():
		return []string{path}
	}
	_ = fs.WalkDir(top.FS(), path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !deleted[name] {
			found = append(found, name)
		}
		return err
	})
	return found
}
