package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// rescue copies uncommitted changes, without ignored files, to a commit of their
// own. The index of the checkout and its branches stay as they are.
func (s *Store) rescue(ctx context.Context, r receipt, lock *os.File, st state) (string, error) {
	work := s.dir(r.Task)
	g := r.checkout(lock)
	if st.missing {
		g.Tree = r.Common
	}
	g.Index = filepath.Join(work, indexName)
	unindex := func() { _, _ = s.below().Remove(g.Index), s.below().Remove(g.Index+".lock") }
	defer unindex()
	unindex() // of a crash
	if err := r.seed(ctx, g, st); err != nil {
		return "", err
	}
	if !st.missing {
		if err := stage(ctx, g, st, filepath.Join(work, listName)); err != nil {
			return "", err
		}
	}
	tree, err := g.Text(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	ref := rescueOf(r.Task)
	before, err := g.Commit(ctx, ref)
	if err != nil {
		return "", err
	}
	if before != "" && st.head != "" && r.copied(ctx, g, before, tree, st.head) {
		return ref, nil
	}
	args := []string{"commit-tree", tree, "-m", "Work of drover task " + string(r.Task) + " that was not committed"}
	for _, parent := range []string{st.head, before} {
		if parent != "" {
			args = append(args, "-p", parent)
		}
	}
	oid, err := g.Text(ctx, args...)
	if err != nil {
		return "", err
	}
	s.step("rescue")
	_, err = g.Run(ctx, "update-ref", "--create-reflog", "-m", "drover: rescue", ref, oid, before)
	return ref, err
}

// seed begins the index of a rescue with the index of the checkout, which saves reading
// every file, or with the commit if that index hides files.
func (r receipt) seed(ctx context.Context, g gitrun.Git, st state) error {
	if len(st.hidden) == 0 && !st.missing {
		if err := gitrun.CopyIndex(filepath.Join(r.admin(), "index"), g.Index); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if st.head == "" {
		return nil
	}
	_, err := g.Run(ctx, "read-tree", st.head)
	return err
}

// stage adds all files of the checkout to a separate index. The file paths lists them
// meanwhile.
func stage(ctx context.Context, g gitrun.Git, st state, paths string) error {
	text := "."
	for _, dir := range st.nested {
		if dir != "." {
			text += "\x00:(top,exclude,literal)" + dir
		}
	}
	below := saferoot.Near(paths)
	if err := home.WriteBelow(below, paths, []byte(text)); err != nil {
		return err
	}
	defer func() { _ = below.Remove(paths) }()
	all := "--all"
	if st.sparse {
		all = "--no-all" // files outside of the sparse checkout are not deleted
	}
	_, err := g.Run(ctx, "add", all, "--sparse", "--pathspec-from-file="+paths, "--pathspec-file-nul")
	return err
}

// copied reports whether a rescue has been made of the same files before.
func (r receipt) copied(ctx context.Context, g gitrun.Git, before, tree, head string) bool {
	text, err := g.Text(ctx, "rev-parse", before+"^{tree}", before+"^1")
	return err == nil && text == tree+"\n"+head
}
