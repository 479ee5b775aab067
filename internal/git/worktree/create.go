package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// undoTime bounds the cleanup after a failed checkout.
const undoTime = time.Minute

// Request asks for a checkout.
type Request struct {
	Folder  string  // in the work tree of a repository; absolute
	Task    task.ID // gets the checkout
	Session task.ID
	Name    string // of the agent, for the receipt
	Base    string // a commit, branch or tag; empty: HEAD of Folder's work tree
}

// Create makes a checkout of the repository that a folder is in. The checkout does not
// have the uncommitted changes of the folder, which are only counted; its submodules
// are empty folders. The caller owns the tree. A failed call leaves no files, or
// files that [Store.Sweep] removes.
func (s *Store) Create(ctx context.Context, q Request) (_ *Tree, err error) {
	defer annotate.Error(&err, "worktree for task %s", q.Task)
	if _, err := task.ParseID(string(q.Task)); err != nil {
		return nil, err
	}
	from, err := find(ctx, q.Folder)
	if err != nil {
		return nil, err
	}
	r := receipt{
		V:       version,
		State:   making,
		Task:    q.Task,
		Session: q.Session,
		Name:    excerpt.Line(q.Name, 100),
		Repo:    from.Top,
		Common:  from.Common,
		Prefix:  from.Prefix,
		Branch:  branchOf(q.Task),
		Created: time.Now().UTC(),
	}
	if r.Base, err = from.start(ctx, q.Base); err != nil {
		return nil, err
	}
	if err := from.free(ctx, r.Branch); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	r.Path = filepath.Join(s.dir(q.Task), r.base())
	lock, err := s.claim(ctx, q.Task)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already", s.dir(q.Task))
	}
	if err != nil {
		return nil, err
	}
	if err = s.make(ctx, &r, lock); err != nil {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer done()
		err = errors.Join(err, s.remove(last, r, lock, r.Base))
		_ = lock.Close()
		return nil, err
	}
	t := s.tree(r, lock)
	t.Uncommitted = from.changes(ctx)
	return t, nil
}

// make does the steps from an empty folder to a usable checkout.
func (s *Store) make(ctx context.Context, r *receipt, lock *os.File) error {
	if err := s.write(*r); err != nil {
		return err
	}
	s.step("receipt")
	g := r.repository(lock)
	turn, err := s.Turn(ctx)
	if err != nil {
		return err
	}
	_, err = g.Run(ctx, "worktree", "add", "--no-track", "--lock", "--reason", r.reason(),
		"-b", r.Branch, "--", r.Path, r.Base)
	_ = turn.Close() // which lets the next one in
	if err != nil {
		return err
	}
	s.step("checkout")
	if err := r.there(); err != nil {
		return err
	}
	if err := inside(*r); err != nil {
		return err
	}
	r.State = ready
	if err := s.write(*r); err != nil {
		return err
	}
	s.step("ready")
	return nil
}

// inside makes the folder that was asked for, which the commit need not have.
func inside(r receipt) error {
	if r.Prefix == "" {
		return nil
	}
	root, err := os.OpenRoot(r.Path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(r.Prefix, 0o777); err != nil {
		return fmt.Errorf("folder in the worktree: %w", err)
	}
	return nil
}

// origin is the work tree that a checkout is made from.
type origin struct {
	gitrun.Place
	git gitrun.Git
}

// find looks for the repository of a folder. It refuses a repository that cannot have a
// checkout, or that would run programs of its own choice.
func find(ctx context.Context, folder string) (o origin, err error) {
	if !filepath.IsAbs(folder) {
		return o, fmt.Errorf("folder is not an absolute path: %q", folder)
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return o, err
	}
	kind, err := (gitrun.Git{Dir: folder}).Text(ctx, "rev-parse", "--is-bare-repository", "--is-inside-work-tree")
	switch {
	case err != nil:
	case strings.HasPrefix(kind, "true"):
		return o, fmt.Errorf("%s is in a bare repository (use a clone of it)", folder)
	case kind != "false\ntrue":
		return o, fmt.Errorf("%s is inside of a repository's own files, not in its work tree", folder)
	}
	o.Place, err = gitrun.Find(ctx, folder)
	if errors.Is(err, gitrun.ErrNone) {
		return o, fmt.Errorf("%s is not in a git repository, and only one can have worktrees (run git init, "+
			"or leave the isolation out)", folder)
	}
	if err != nil {
		return o, err
	}
	o.git = gitrun.Git{Admin: o.Admin, Tree: o.Top}
	return o, o.git.Harmless(ctx)
}

// start returns the commit that a checkout begins at.
func (o origin) start(ctx context.Context, base string) (string, error) {
	if base == "" {
		base = "HEAD"
	}
	oid, err := o.git.Commit(ctx, base)
	if err == nil && oid == "" && base == "HEAD" {
		err = errors.New("the repository has no commit yet (make one)")
	} else if err == nil && oid == "" {
		err = fmt.Errorf("the repository has no commit %.100q", base)
	}
	return oid, err
}

// free refuses a branch name that is taken: so a later branch of that name is
// ours.
func (o origin) free(ctx context.Context, branch string) error {
	for _, name := range []string{branch, filepath.Dir(branch)} {
		switch taken, err := o.git.Commit(ctx, "refs/heads/"+name); {
		case err != nil:
			return err
		case taken != "":
			return fmt.Errorf("the repository has a branch %s, so %s cannot be made (rename it)", name, branch)
		}
	}
	return nil
}

// changes counts the uncommitted changes; -1: git has failed.
func (o origin) changes(ctx context.Context) int {
	list, err := o.git.Fields(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal",
		"--ignore-submodules=dirty")
	if err != nil {
		return -1
	}
	return len(list)
}
