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

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Outcome is the end of a checkout's use.
type Outcome struct {
	Task    task.ID
	Removed bool
	Path    string // of a checkout that was kept
	Branch  string // that has its commits; empty: none is needed
	Rescue  string // ref of a commit with all uncommitted changes; empty: none
	Commits int    // that no branch, tag or remote of the repository has
	Files   int    // changed and not committed, or unknown to git and not ignored
	Text    string // one line for people and models
}

// Finish ends the use of a checkout and lets go of it. It is removed, with its
// branch, if it is clean and everything in it is reachable from elsewhere; ignored
// files go with it. Otherwise it is kept, and its uncommitted changes are copied to a
// commit under refs/drover/rescue, which moves no branch. No process may run in
// it any more. After an error the checkout is kept, and the outcome says so.
func (s *Store) Finish(ctx context.Context, t *Tree) (Outcome, error) {
	defer t.Release()
	if t.lock == nil {
		return Outcome{}, fmt.Errorf("worktree of task %s: it was let go of before", t.Task)
	}
	return s.finish(ctx, t.receipt, t.lock)
}

func (s *Store) finish(ctx context.Context, r receipt, lock *os.File) (Outcome, error) {
	o, err := s.settle(ctx, r, lock)
	if err != nil {
		err = fmt.Errorf("worktree of task %s: %w", r.Task, err)
		o = Outcome{Task: r.Task, Path: r.Path, Branch: r.Branch, Rescue: r.Rescue,
			Text: "The worktree " + r.Path + " was left as it is: " + excerpt.Line(err.Error(), 300)}
	}
	return o, err
}

func (s *Store) settle(ctx context.Context, r receipt, lock *os.File) (Outcome, error) {
	o := Outcome{Task: r.Task, Rescue: r.Rescue}
	st, err := r.look(ctx, lock)
	if err != nil {
		return o, err
	}
	if st.moved != "" {
		o.Path = st.moved
		o.Text = excerpt.Line("The worktree was moved to "+st.moved+", and is left to who has moved it.", 1000)
		return o, s.drop(r.Task)
	}
	if st.clean() {
		if err := s.remove(ctx, r, lock, st.tip); err != nil {
			return o, err
		}
		o.Removed = true
		if st.on != r.Branch {
			o.Branch = st.on
		}
		o.Text = o.text(st)
		return o, nil
	}
	o.Commits, o.Files, o.Branch = st.commits, st.files+len(st.hidden), st.on
	if st.tip != "" {
		o.Branch = r.Branch
	}
	if !st.missing {
		o.Path = r.Path
	}
	if st.unsaved() {
		if o.Rescue, err = s.rescue(ctx, r, lock, st); err != nil {
			return o, fmt.Errorf("copy what is not committed: %w", err)
		}
	}
	o.Text = o.text(st)
	return o, s.keep(r, o.Rescue)
}

// keep records that the task has released the checkout, and lets the user's git remove
// it.
func (s *Store) keep(r receipt, rescue string) error {
	if common, err := os.OpenRoot(r.Common); err == nil {
		_ = common.Remove(filepath.Join("worktrees", r.base(), "locked"))
		_ = common.Close()
	}
	if r.State == kept && r.Rescue == rescue {
		return nil
	}
	r.State, r.Rescue, r.Ended = kept, rescue, time.Now().UTC()
	return s.write(r)
}

// remove removes a checkout: its files, its entry in the repository, its branch if that
// still is at tip, and at last the receipt.
func (s *Store) remove(ctx context.Context, r receipt, lock *os.File, tip string) error {
	dir, err := s.folder(r.Task)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := wipe(dir, goneName); err != nil {
		return err
	}
	// Under its new name a half removed checkout cannot be taken for one in
	// which the user has deleted files.
	if err := dir.Rename(r.base(), goneName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.step("gone")
	if err := wipe(dir, goneName); err != nil {
		return err
	}
	s.step("wiped")
	if err := s.forget(ctx, r, lock, tip); err != nil {
		return err
	}
	s.step("forgotten")
	return s.drop(r.Task)
}

// drop removes the receipt of a task and its folder.
func (s *Store) drop(id task.ID) error {
	dir, err := s.folder(id)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Remove(receiptName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.step("receipt removed")
	return s.fold(id, dir)
}

// forget removes a checkout's entry and branch from the repository.
func (s *Store) forget(ctx context.Context, r receipt, lock *os.File, tip string) error {
	common, err := os.OpenRoot(r.Common)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = common.Close() }()
	if at, err := r.known(); err == nil && at != "" && at != r.Path {
		return fmt.Errorf("the repository %s knows it at another place", r.Repo)
	}
	if err := s.unlist(ctx, common, r); err != nil {
		return err
	}
	g := r.repository(lock)
	ref := "refs/heads/" + r.Branch
	now, err := g.Commit(ctx, ref)
	if err != nil || now == "" || now != tip {
		return err
	}
	_, err = g.Run(ctx, "update-ref", "-d", ref, tip)
	return err
}

// unlist waits for its turn to remove a checkout from the list of its repository.
func (s *Store) unlist(ctx context.Context, common *os.Root, r receipt) error {
	if _, err := common.Lstat(filepath.Join("worktrees", r.base())); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	turn, err := s.Turn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = turn.Close() }()
	return Unlist(common, r.base()) // the name holds the ID of the task, so it is unique
}

// Unlist removes a checkout from the list of its repository. The caller has the turn.
func Unlist(common *os.Root, name string) error {
	admin := filepath.Join("worktrees", name)
	// Without this file no git lists the checkout, so a half removed one makes no git fail.
	if err := common.Remove(filepath.Join(admin, "gitdir")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return common.RemoveAll(admin)
}

// fold removes the folder of a task, which may still have files that a crash left
// half written, and no others.
func (s *Store) fold(id task.ID, dir *os.Root) error {
	list, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Type().IsRegular() && leftover(e.Name()) {
			if err := dir.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return s.below().Remove(s.dir(id))
}

// leftover reports names of files that a crash may leave half written.
func leftover(name string) bool {
	for _, of := range []string{receiptName, indexName, listName} {
		if strings.HasPrefix(name, "."+of+tempMark) {
			return true
		}
	}
	return name == indexName || name == indexName+".lock" || name == listName
}

// wipe deletes a folder, also with read-only folders in it.
func wipe(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = fs.WalkDir(root.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return root.Chmod(path, 0o700)
		}
		return err
	})
	return root.RemoveAll(name)
}

// text describes the outcome in one line.
func (o Outcome) text(st state) string {
	if o.Removed {
		text := "The worktree had nothing in it that is not elsewhere, and was removed."
		if o.Branch != "" {
			text += " Its commits are on branch " + o.Branch + "."
		}
		return text
	}
	var parts []string
	if o.Commits > 0 {
		on := ""
		if o.Branch != "" {
			on = " on branch " + o.Branch
		}
		parts = append(parts, count(o.Commits, "commit")+on+" that no other branch has")
	}
	if o.Files > 0 {
		parts = append(parts, count(o.Files, "file")+" changed and not committed")
	}
	if len(st.nested) > 0 {
		parts = append(parts, "other repositories")
	}
	text := "The worktree " + o.Path + " was kept: it has " + strings.Join(parts, ", and ") + "."
	if o.Path == "" {
		text = "The worktree is gone. There is " + strings.Join(parts, ", and ") + "."
	}
	if o.Rescue != "" {
		text += " A copy of what is not committed is at " + o.Rescue + "."
	}
	return excerpt.Line(text, 1000)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
