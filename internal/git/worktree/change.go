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
	"github.com/drover-dev/drover/task"
)

// Where a change was found.
const (
	FromWorktree = "worktree" // the files of the checkout as they are now
	FromBranch   = "branch"   // the checkout is gone
	FromRescue   = "rescue"   // the checkout is gone, and a copy of it was made
)

// Change describes the changes of a task in a checkout of its own. All of it is in the
// repository, so it stays readable when the checkout changes or goes.
type Change struct {
	Task   task.ID
	Repo   string // the top of the work tree that the checkout was made from
	Common string // the administrative folder of the repository
	Path   string // of the checkout; empty: it is gone
	Branch string // drover/<task>; the agent may be on another one
	From   string // one of the constants
	Base   string // the commit that the change is compared with
	Head   string // the last commit of the agent
	Tree   string // the files of Head with the uncommitted changes
	Clean  bool   // Tree is the tree of Head
}

// Change returns the changes of a task so far: of its checkout, whoever holds it,
// else the changes that the repository has kept. Folder is where the task was started:
// it leads to the repository if the receipt is gone. Change moves no branch and
// leaves the index of the checkout alone. It returns [ErrGone] if nothing was kept.
func (s *Store) Change(ctx context.Context, id task.ID, folder string) (Change, error) {
	c, err := s.change(ctx, id, folder)
	if err != nil {
		return c, fmt.Errorf("change of task %s: %w", id, err)
	}
	return c, nil
}

func (s *Store) change(ctx context.Context, id task.ID, folder string) (Change, error) {
	if _, err := task.ParseID(string(id)); err != nil {
		return Change{}, err
	}
	r, err := s.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return orphaned(ctx, id, folder)
	}
	if err != nil {
		return Change{}, err
	}
	c := Change{Task: id, Repo: r.Repo, Common: r.Common, Branch: r.Branch, Base: r.Base}
	if r.State == making {
		return c, ErrGone
	}
	st, err := r.look(ctx, nil)
	if err != nil {
		return c, err
	}
	if st.missing || st.moved != "" {
		if _, err := os.Stat(r.Common); errors.Is(err, fs.ErrNotExist) {
			return c, ErrGone
		}
		g := r.repository(nil)
		if err := c.kept(ctx, g); err != nil {
			return c, err
		}
		return c, c.fork(ctx, g)
	}
	g := r.checkout(nil)
	c.Path, c.From, c.Head = r.Path, FromWorktree, st.head
	if st.head == "" {
		return c, errors.New("the checkout has no commit (the agent is on a new, empty branch)")
	}
	if c.Tree, err = r.tree(ctx, g, st); err != nil {
		return c, err
	}
	head, err := g.Text(ctx, "rev-parse", st.head+"^{tree}")
	if err != nil {
		return c, err
	}
	c.Clean = head == c.Tree
	return c, c.fork(ctx, g)
}

// tree writes the files of a checkout to the repository, by an index of its own.
func (r receipt) tree(ctx context.Context, g gitrun.Git, st state) (string, error) {
	dir, err := os.MkdirTemp("", "drover-change-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	g.Index = filepath.Join(dir, indexName)
	if err := r.seed(ctx, g, st); err != nil {
		return "", err
	}
	if err := stage(ctx, g, st, filepath.Join(dir, listName)); err != nil {
		return "", err
	}
	return g.Text(ctx, "write-tree")
}

// orphaned returns the change of a task without a receipt.
func orphaned(ctx context.Context, id task.ID, folder string) (Change, error) {
	c := Change{Task: id, Branch: branchOf(id)}
	o, err := find(ctx, folder)
	if err != nil {
		return c, fmt.Errorf("%w, and its repository was not found: %w", ErrGone, err)
	}
	c.Repo, c.Common = o.Top, o.Common
	if err := c.kept(ctx, o.git); err != nil {
		return c, err
	}
	if c.Base, err = o.git.Commit(ctx, "HEAD"); err != nil {
		return c, err
	}
	return c, c.fork(ctx, o.git)
}

// kept finds the changes of a lost checkout in the repository: the copy of its uncommitted
// changes, unless the branch has moved since.
func (c *Change) kept(ctx context.Context, g gitrun.Git) error {
	branch, err := g.Commit(ctx, "refs/heads/"+c.Branch)
	if err != nil {
		return err
	}
	rescue, err := g.Commit(ctx, rescueOf(c.Task))
	if err != nil {
		return err
	}
	tip := branch
	c.From, c.Head = FromBranch, branch
	if rescue != "" {
		head, err := g.Commit(ctx, rescue+"^1")
		if err != nil {
			return err
		}
		older := branch == ""
		if !older && head != "" {
			if older, err = g.Ancestor(ctx, branch, head); err != nil {
				return err
			}
		}
		if older {
			tip, c.From, c.Head = rescue, FromRescue, head
		}
	}
	if tip == "" || c.Head == "" {
		return fmt.Errorf("%w, and no branch %s and no %s were kept", ErrGone, c.Branch, rescueOf(c.Task))
	}
	trees, err := g.Text(ctx, "rev-parse", tip+"^{tree}", c.Head+"^{tree}")
	if err != nil {
		return err
	}
	var head string
	c.Tree, head, _ = strings.Cut(trees, "\n")
	c.Clean = head == c.Tree
	return nil
}

// fork sets the base to the commit where the agent's commits branch off. It differs from the
// first base if the agent has rebased them.
func (c *Change) fork(ctx context.Context, g gitrun.Git) error {
	base, err := g.Text(ctx, "merge-base", c.Base, c.Head)
	if gitrun.Exited(err, 1) {
		return nil
	}
	if err == nil {
		c.Base = base
	}
	return err
}

// File is one file of a change.
type File struct {
	Path    string
	OldPath string // of a renamed file
	Status  string // added, deleted, modified, renamed or retyped
	Binary  bool
	Added   int // lines
	Removed int
}

func (c Change) git() gitrun.Git { return gitrun.Git{Admin: c.Common, Tree: c.Common} }

// compare calls git to compare the base with the files. Paths name files and
// folders, from the top of the repository; none: all.
func (c Change) compare(ctx context.Context, paths []string, flags ...string) ([]byte, error) {
	args := append([]string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color"}, flags...)
	args = append(args, c.Base, c.Tree, "--")
	for _, p := range paths {
		args = append(args, ":(top,literal)"+filepath.Clean(p))
	}
	return c.git().Run(ctx, args...)
}

// Files lists the changed files.
func (c Change) Files(ctx context.Context, paths []string) ([]File, error) {
	out, err := c.compare(ctx, paths, "--raw", "--numstat", "-z")
	if err != nil {
		return nil, fmt.Errorf("compare the files of task %s: %w", c.Task, err)
	}
	return parseFiles(string(out)), nil
}

// parseFiles reads the output of diff-tree --raw --numstat -z: first a record of each
// file that begins with a colon, then the numbers in the same order.
func parseFiles(text string) []File {
	names := map[byte]string{'A': "added", 'D': "deleted", 'M': "modified", 'R': "renamed", 'T': "retyped"}
	var files []File
	fields := strings.Split(text, "\x00")
	next := func() (s string) {
		if len(fields) > 0 {
			s, fields = fields[0], fields[1:]
		}
		return s
	}
	for len(fields) > 0 && strings.HasPrefix(fields[0], ":") {
		head := strings.Fields(next())
		f := File{Path: next()}
		if len(head) == 5 {
			f.Status = names[head[4][0]]
		}
		if f.Status == "renamed" {
			f.OldPath, f.Path = f.Path, next()
		}
		files = append(files, f)
	}
	for i := range files {
		added, rest, _ := strings.Cut(next(), "\t")
		removed, path, _ := strings.Cut(rest, "\t")
		if path == "" {
			next()
			next()
		}
		files[i].Binary = added == "-"
		files[i].Added, _ = strconv.Atoi(added)
		files[i].Removed, _ = strconv.Atoi(removed)
	}
	return files
}

// Content returns a file of the change, or with old of its base. It returns
// [fs.ErrNotExist] unless the path names a file there.
func (c Change) Content(ctx context.Context, path string, old bool) ([]byte, error) {
	at := c.Tree
	if old {
		at = c.Base
	}
	out, err := c.git().Run(ctx, "cat-file", "blob", at+":"+filepath.Clean(path))
	if _, ok := errors.AsType[*gitrun.Error](err); ok {
		return nil, fs.ErrNotExist
	}
	return out, err
}

// Patch returns the change as a patch. With binary it has the content of binary files too,
// so that git can apply it.
func (c Change) Patch(ctx context.Context, paths []string, binary bool) ([]byte, error) {
	flags := []string{"-p"}
	if binary {
		flags = append(flags, "--binary")
	}
	out, err := c.compare(ctx, paths, flags...)
	if err != nil {
		return nil, fmt.Errorf("compare the files of task %s: %w", c.Task, err)
	}
	return out, nil
}
