package merge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/home"
)

const (
	journalName = "journal.json"
	maxJournal  = 64 << 10
	version     = 1
	oldIndex    = "index.old" // copies of the index of the work tree, in the folder of the repository
	newIndex    = "index.new"
	lockName    = "index.lock" // git's own: its holder may change the index
	stagedName  = "drover-index"
)

// journal describes a move. It is on the disk from before the first step to after the
// last one.
type journal struct {
	V      int    `json:"v"`
	Common string `json:"common_dir"`
	Ref    string `json:"ref"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Admin  string `json:"git_dir,omitempty"`  // of the work tree that follows
	Top    string `json:"worktree,omitempty"` // its folder
	Token  string `json:"token"`              // content of our lock of the index
}

func (j journal) place() place {
	return place{common: j.Common, ref: j.Ref, admin: j.Admin, top: j.Top}
}

func (j journal) short() string { return strings.TrimPrefix(j.Ref, "refs/heads/") }

// Land moves the branch from the tip to a commit that Rebase has returned, and the work
// tree in which it is checked out with it. It returns [ErrMoved] if another process has
// moved the branch. Files names files of the user that changed during the move; Land
// leaves them as they are.
func (t *Train) Land(ctx context.Context, oid, note string) (files []string, err error) {
	j := journal{V: version, Common: t.at.common, Ref: t.at.ref, Old: t.Tip, New: oid, Admin: t.at.admin, Top: t.at.top,
		Token: "drover merge " + rand.Text() + "\n"}
	files, err = t.s.move(context.WithoutCancel(ctx), t.dir, t.lock, j, note)
	if err != nil {
		return nil, fmt.Errorf("move %s to %s: %w", t.Branch, brief(oid), err)
	}
	t.Tip = oid
	return files, nil
}

func brief(oid string) string { return oid[:min(len(oid), 12)] }

// Refresh reads the branch again, after [ErrMoved].
func (t *Train) Refresh(ctx context.Context) (err error) {
	if t.at.admin, t.at.top, err = whereIs(ctx, t.at); err != nil {
		return err
	}
	if err := t.at.clean(ctx, t.lock); err != nil {
		return err
	}
	t.Tip, err = t.at.repository(t.lock).Commit(ctx, t.at.ref)
	return err
}

// move does the steps of a move. The change of the ref decides: after a crash before
// it everything stays as it was, and after a later crash [Store.Recover] finishes.
func (s *Store) move(ctx context.Context, dir string, lock *os.File, j journal, note string) ([]string, error) {
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := home.WriteBelow(s.below(), filepath.Join(dir, journalName), append(data, '\n')); err != nil {
		return nil, err
	}
	s.step("journal")
	p := j.place()
	if err = s.ready(ctx, lock, j); err == nil {
		s.step("locked")
		g := p.repository(lock)
		if p.admin != "" {
			g = p.checkout(lock) // so that its reflog of HEAD has the move too
		}
		_, err = g.Run(ctx, "update-ref", "--create-reflog", "-m", note, j.Ref, j.New, j.Old)
		if err != nil {
			if now, look := g.Commit(ctx, j.Ref); look == nil && now != j.Old && now != j.New {
				err = ErrMoved
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.done(dir, j))
	}
	s.step("moved")
	return s.follow(ctx, dir, lock, j)
}

// ready locks the index of the work tree for git, and looks once more whether it may
// change.
func (s *Store) ready(ctx context.Context, lock *os.File, j journal) error {
	p := j.place()
	if p.admin == "" {
		return nil
	}
	root, err := os.OpenRoot(p.admin)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	// Linked from a complete file, so that our lock always has our token.
	if err := put(root, stagedName, []byte(j.Token)); err != nil {
		return err
	}
	err = root.Link(stagedName, lockName)
	_ = root.Remove(stagedName)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("git is at work in %s: it has %s (wait for it, or remove the file if no git is running)", p.top,
			filepath.Join(p.admin, lockName))
	}
	if err != nil {
		return err
	}
	s.step("index locked")
	if now, top, err := whereIs(ctx, p); err != nil || now != p.admin || top != p.top {
		return errors.Join(ErrMoved, err)
	}
	if err := p.clean(ctx, lock); err != nil {
		return err
	}
	return p.free(ctx, lock, j.Old, j.New)
}

// put writes a file and waits until it is on the disk.
func put(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// done removes our lock of the index, then the journal.
func (s *Store) done(dir string, j journal) error {
	if err := j.unlock(); err != nil {
		return err
	}
	s.step("unlocked")
	err := s.below().Remove(filepath.Join(dir, journalName))
	s.step("done")
	return err
}

func (j journal) unlock() error {
	if j.Admin == "" {
		return nil
	}
	root, err := os.OpenRoot(j.Admin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	_ = root.Remove(stagedName)
	text, err := root.ReadFile(lockName)
	if err != nil || string(text) != j.Token {
		return nil // the lock is gone, or git's
	}
	return root.Remove(lockName)
}

// Recover finishes or takes back interrupted merges, in all repositories. It returns a
// report for the user.
func (s *Store) Recover(ctx context.Context) (said []string, err error) {
	list, err := s.below().Names(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, name := range list {
		dir := filepath.Join(s.root, name)
		if _, look := s.below().Lstat(filepath.Join(dir, journalName)); look != nil {
			continue
		}
		lock, failed := s.flock(ctx, dir)
		if failed == nil {
			var text string
			text, failed = s.recover(ctx, dir, lock)
			if text != "" {
				said = append(said, text)
			}
			_ = lock.Close()
		}
		err = errors.Join(err, failed)
	}
	return said, err
}

// recover finishes or takes back one merge. The ref alone decides which.
func (s *Store) recover(ctx context.Context, dir string, lock *os.File) (string, error) {
	path := filepath.Join(dir, journalName)
	data, err := home.ReadBelow(s.below(), path, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var j journal
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err == nil && j.V != version {
		err = fmt.Errorf("version %d is not known", j.V)
	}
	if err != nil {
		return "", fmt.Errorf("read the journal %s of an interrupted merge: %w (use the drover that wrote it)", path, err)
	}
	if _, err := os.Stat(j.Common); errors.Is(err, fs.ErrNotExist) {
		return "", s.below().Remove(path) // the repository is gone
	}
	now, err := j.place().repository(lock).Commit(ctx, j.Ref)
	if err != nil {
		return "", err
	}
	switch now {
	case j.New:
		files, err := s.follow(ctx, dir, lock, j)
		text := fmt.Sprintf("an interrupted merge was finished: %s is at %s", j.short(), brief(j.New))
		if len(files) > 0 {
			text += ", and these files, which somebody has changed since, were left as they are: " + names(files)
		}
		return text, err
	case j.Old:
		text := fmt.Sprintf("an interrupted merge was taken back: %s is at %s as before", j.short(), brief(j.Old))
		return text, s.done(dir, j)
	}
	text := fmt.Sprintf("a merge was interrupted, and %s was moved to %s since: look at `git status` in %s", j.short(),
		brief(now), j.Top)
	return text, s.done(dir, j)
}

// follow brings the work tree from the old commit to the new one, also from a state between
// the two. It overwrites a file that is as in the old commit, absent, or the beginning of
// the new one, which git was writing. It returns the other files, which it leaves.
func (s *Store) follow(ctx context.Context, dir string, lock *os.File, j journal) (left []string, err error) {
	p := j.place()
	if p.admin == "" {
		return nil, s.done(dir, j)
	}
	real := p.checkout(lock)
	_, err = real.Run(ctx, "diff-index", "--cached", "--quiet", j.New)
	switch {
	case err == nil: // the index comes last
		return nil, s.done(dir, j)
	case !gitrun.Exited(err, 1):
		return nil, err
	}
	before, after := real, real
	before.Index, after.Index = filepath.Join(dir, oldIndex), filepath.Join(dir, newIndex)
	for _, name := range []string{oldIndex, newIndex, oldIndex + ".lock", newIndex + ".lock"} { // of a crash
		if err := s.below().Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	list, err := differences(ctx, real, j.Old, j.New)
	if err != nil {
		return nil, err
	}
	if err := gitrun.CopyIndex(filepath.Join(p.admin, "index"), before.Index, after.Index); err != nil {
		return nil, err
	}
	if _, err := after.Run(ctx, "read-tree", "-i", "-m", j.Old, j.New); err != nil {
		return nil, err
	}
	s.step("index")
	left, err = p.write(ctx, before, after, list)
	if err != nil {
		return nil, err
	}
	s.step("files")
	if err := s.replaceIndex(p.admin, after.Index); err != nil {
		return left, err
	}
	for _, name := range []string{oldIndex, newIndex} {
		_ = s.below().Remove(filepath.Join(dir, name))
	}
	return left, s.done(dir, j)
}

// replaceIndex replaces the index of a work tree, through git's lock.
func (s *Store) replaceIndex(admin, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(admin)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := put(root, stagedName, data); err != nil {
		return err
	}
	if err := root.Chtimes(stagedName, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	s.step("index written")
	if err := root.Rename(stagedName, "index"); err != nil {
		return err
	}
	s.step("index replaced")
	return nil
}

// write brings the files of a list from the old commit to the new one.
func (p place) write(ctx context.Context, before, after gitrun.Git, list []entry) (left []string, err error) {
	notOld, err := differing(ctx, before)
	if err != nil {
		return nil, err
	}
	notNew, err := differing(ctx, after)
	if err != nil {
		return nil, err
	}
	top, err := os.OpenRoot(p.top)
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	var paths bytes.Buffer
	for _, e := range list {
		if e.kind != 'D' {
			continue
		}
		switch info, err := top.Lstat(e.path); {
		case err != nil || info.IsDir(): // it is gone
		case notOld[e.path]:
			left = append(left, e.path)
		default:
			if err := remove(top, e.path); err != nil {
				return left, err
			}
		}
	}
	for _, e := range list {
		if e.kind == 'D' || !notNew[e.path] {
			continue
		}
		_, look := top.Lstat(e.path)
		ours := look != nil || e.kind != 'A' && !notOld[e.path]
		if !ours {
			if ours, err = begun(ctx, after, top, e); err != nil {
				return left, err
			}
		}
		if !ours {
			left = append(left, e.path)
			continue
		}
		paths.WriteString(e.path + "\x00")
	}
	if paths.Len() == 0 {
		return left, nil
	}
	return left, after.Feed(ctx, &paths, "checkout-index", "-f", "-u", "-z", "--stdin")
}

// differing returns the files of a work tree that differ from its index.
func differing(ctx context.Context, g gitrun.Git) (map[string]bool, error) {
	_, err := g.Run(ctx, "update-index", "-q", "--refresh")
	var stale *gitrun.Error
	if err != nil && !errors.As(err, &stale) { // git fails when a file differs from the index
		return nil, err
	}
	list, err := g.Fields(ctx, "diff-files", "--name-only", "-z")
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(list))
	for _, name := range list {
		out[name] = true
	}
	return out, nil
}

// remove deletes a file, and the folders that are empty then.
func remove(top *os.Root, path string) error {
	if err := top.Remove(path); err != nil {
		return err
	}
	for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
		if top.Remove(at) != nil {
			break // it has something in it
		}
	}
	return nil
}

// begun reports whether a file is the beginning of its new content.
func begun(ctx context.Context, g gitrun.Git, top *os.Root, e entry) (bool, error) {
	info, err := top.Lstat(e.path)
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	whole, err := g.Run(ctx, "cat-file", "--filters", "--path="+e.path, e.oid)
	if err != nil {
		return false, err
	}
	if info.Size() > int64(len(whole)) {
		return false, nil
	}
	part, err := top.ReadFile(e.path)
	return err == nil && bytes.HasPrefix(whole, part), err
}
