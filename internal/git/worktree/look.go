package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
)

// maxEntries is how many files and folders of a checkout are looked at before it
// is kept unseen.
const maxEntries = 5_000_000

// state describes a checkout as it was found.
type state struct {
	missing bool     // it is not there, or on its way out
	moved   string   // its new path, after git worktree move; empty: not moved
	head    string   // commit; empty: none
	on      string   // branch that is checked out; empty: none
	tip     string   // of the checkout's own branch; empty: the branch is gone
	commits int      // that only this checkout has
	adrift  bool     // some of them no branch has at all
	files   int      // not committed
	hidden  []string // that git does not look at
	sparse  bool     // some of them by a sparse checkout
	nested  []string // folders that are repositories of their own
}

func (st state) clean() bool {
	return st.commits == 0 && st.files == 0 && len(st.hidden) == 0 && len(st.nested) == 0
}

// unsaved reports whether work would be lost if the checkout were removed and its
// branches stayed.
func (st state) unsaved() bool {
	return !st.missing && (st.files > 0 || len(st.hidden) > 0) || st.adrift
}

// look finds the work that would be lost with a checkout.
func (r receipt) look(ctx context.Context, lock *os.File) (st state, err error) {
	if _, err := os.Lstat(r.Path); errors.Is(err, fs.ErrNotExist) {
		st.missing = true
	}
	if _, err := os.Stat(r.Common); errors.Is(err, fs.ErrNotExist) && st.missing {
		return st, nil // the repository is gone, and its work with it
	}
	// Refs can be read without a work tree.
	g := gitrun.Git{Admin: r.admin(), Tree: r.Common, Held: lock}
	if _, err := os.Stat(g.Admin); st.missing && errors.Is(err, fs.ErrNotExist) {
		g = r.repository(lock)
	} else if !st.missing {
		if err := r.there(); err != nil {
			return st, err
		}
	}
	if at, err := r.known(); st.missing && err == nil && at != r.Path {
		st.moved = at
		return st, nil
	}
	if err := g.Harmless(ctx); err != nil {
		return st, err
	}
	if err := r.refs(ctx, g, &st); err != nil || st.missing {
		return st, err
	}
	return st, r.files(ctx, lock, &st)
}

// refs looks at the commits. Branches of other checkouts do not count as holders of a
// commit: they come and go too.
func (r receipt) refs(ctx context.Context, g gitrun.Git, st *state) (err error) {
	if st.tip, err = g.Commit(ctx, "refs/heads/"+r.Branch); err != nil {
		return err
	}
	var tips []string
	if g.Admin == r.admin() {
		if st.head, err = g.Commit(ctx, "HEAD"); err != nil {
			return err
		}
		ref, err := g.Text(ctx, "symbolic-ref", "--quiet", "HEAD")
		if err != nil && !gitrun.Exited(err, 1) {
			return err
		}
		st.on = strings.TrimPrefix(ref, "refs/heads/")
		tips = append(tips, "--glob=refs/worktree/*")
	}
	for _, oid := range []string{st.tip, st.head} {
		if oid != "" {
			tips = append(tips, oid)
		}
	}
	if st.commits, err = r.only(ctx, g, tips); err != nil || st.commits == 0 || st.on != "" || st.head == "" {
		return err
	}
	tips = []string{st.head}
	if st.tip != "" {
		tips = append(tips, "^"+st.tip)
	}
	n, err := r.only(ctx, g, tips)
	st.adrift = n > 0
	return err
}

// only counts the commits of some tips that neither the base nor another branch has.
func (r receipt) only(ctx context.Context, g gitrun.Git, tips []string) (int, error) {
	args := append([]string{"rev-list", "--count"}, tips...)
	text, err := g.Text(ctx, append(args, "--not", r.Base, "--exclude=drover/*", "--branches", "--tags", "--remotes")...)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// files looks at the work tree. It keeps git out of repositories inside of it:
// an agent may have written their configuration.
func (r receipt) files(ctx context.Context, lock *os.File, st *state) error {
	g := r.checkout(lock)
	list, err := g.Fields(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
		"--ignore-submodules=dirty")
	if err != nil {
		return err
	}
	st.files = len(list)
	if st.nested, err = nested(r.Path); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(r.admin(), "modules")); err == nil {
		st.nested = append(st.nested, ".")
	}
	flags, err := g.Fields(ctx, "ls-files", "-v", "-z")
	if err != nil {
		return err
	}
	for _, f := range flags {
		tag, name, _ := strings.Cut(f, " ")
		if tag != "S" && tag == strings.ToUpper(tag) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(r.Path, name)); tag != "S" || err == nil {
			st.hidden = append(st.hidden, name)
			st.sparse = st.sparse || strings.EqualFold(tag, "S")
		}
	}
	return nil
}

// nested lists the folders in a checkout that are repositories of their own.
func nested(top string) (found []string, err error) {
	n := 0
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxEntries {
			return fmt.Errorf("%s holds more than %d files", top, maxEntries)
		}
		if !strings.EqualFold(d.Name(), ".git") || path == filepath.Join(top, ".git") {
			return nil
		}
		rel, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		found = append(found, rel)
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}
