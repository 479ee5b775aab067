package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// snapshotRef keeps the commits of the manifest in a work tree on the worker.
const snapshotRef = "refs/drover/snapshot"

// Unpack makes a work tree of a manifest in a new or empty folder, whose parent exists: a
// repository of its own, on the branch and the commit of the manifest, with the uncommitted changes of home
// uncommitted here; or the files of a folder without git, with a repository of ours in the folder of its name with .git
// added, which the caller removes with it. It returns the folder in which the task works. After a failure
// the folder is empty or gone, and the received parts are kept for the next attempt.
func (c *Cache) Unpack(ctx context.Context, m Manifest, l Limits, s Store, dir string) (_ string, err error) {
	defer annotate.Error(&err, "unpack commit %s to %s", short(m.Commit), dir)
	l = l.orDefault()
	if err := m.check(l); err != nil {
		return "", fmt.Errorf("check the manifest: %w", err)
	}
	root, err := vacant(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	defer func() {
		if err != nil {
			err = errors.Join(err, clear(root))
		}
	}()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	if m.Plain {
		return dir, c.unpackPlain(ctx, m, l, s, dir)
	}
	cache, lock, err := c.bring(ctx, m, l, s)
	if lock != nil {
		defer lock.Close()
	}
	if err != nil {
		return "", err
	}
	if err := m.verify(ctx, cache); err != nil {
		return "", err
	}
	if err := checkFiles(ctx, cache, m.Snapshot, l); err != nil {
		return "", err
	}
	if err := c.keep(ctx, cache, m.Commit, m.Snapshot); err != nil {
		return "", err
	}
	g, err := begin(ctx, m, cache, dir)
	if err != nil {
		return "", err
	}
	_ = lock.Close() // the work tree has all that it needs
	return checkout(ctx, m, g)
}

// verify refuses a manifest whose commits are not a chain.
func (m Manifest) verify(ctx context.Context, g gitrun.Git) error {
	at := m.Snapshot
	for _, next := range []string{m.Index, m.Commit} {
		if next == "" || at == next {
			continue
		}
		parents, err := g.Text(ctx, "rev-parse", at+"^@")
		if err != nil {
			return err
		}
		if parents != next {
			return fmt.Errorf("commit %s of the manifest is not on top of %s", short(at), short(next))
		}
		at = next
	}
	return nil
}

// vacant opens a new or empty folder, whose parent exists.
func vacant(dir string) (*os.Root, error) {
	if err := saferoot.Dir(filepath.Dir(dir)).Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if err := isEmpty(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func isEmpty(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(1)
	if len(names) > 0 {
		err = fmt.Errorf("the folder is not empty, %q is in it", names[0])
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// clear empties a folder.
func clear(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	for _, n := range names {
		err = errors.Join(err, root.RemoveAll(n))
	}
	return errors.Join(err, d.Close())
}

// begin makes the repository of a work tree. It shares the packs of the cache as hard links, so
// that neither depends on the other.
func begin(ctx context.Context, m Manifest, cache gitrun.Git, dir string) (gitrun.Git, error) {
	g := gitrun.Git{Admin: filepath.Join(dir, ".git"), Tree: dir, Vars: plain()}
	if err := create(ctx, gitrun.Git{Dir: dir, Vars: plain()}, m.Format, dir); err != nil {
		return g, err
	}
	packs := filepath.Join("objects", "pack")
	if err := linkPacks(filepath.Join(cache.Admin, packs), filepath.Join(g.Admin, packs)); err != nil {
		return g, err
	}
	list, err := shallowOf(cache.Admin)
	if err != nil {
		return g, err
	}
	if err := writeShallow(g.Admin, list); err != nil {
		return g, err
	}
	for key, value := range map[string]string{"user.name": m.Name, "user.email": m.Mail} {
		if value == "" {
			continue
		}
		if _, err := g.Run(ctx, "config", key, value); err != nil {
			return g, err
		}
	}
	if _, err := g.Run(ctx, "update-ref", snapshotRef, m.Snapshot); err != nil {
		return g, err
	}
	if m.Branch == "" {
		_, err = g.Run(ctx, "update-ref", "--no-deref", "HEAD", m.Commit)
		return g, err
	}
	ref := "refs/heads/" + m.Branch
	if _, err := g.Run(ctx, "update-ref", ref, m.Commit); err != nil {
		return g, err
	}
	_, err = g.Run(ctx, "symbolic-ref", "HEAD", ref)
	return g, err
}

// linkPacks links the files of a folder into another, or copies them to another file system.
func linkPacks(from, to string) error {
	src, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	list, err := fs.ReadDir(src.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range list {
		name := e.Name()
		if !strings.HasPrefix(name, "pack-") || !e.Type().IsRegular() || strings.HasSuffix(name, ".keep") {
			continue
		}
		if os.Link(filepath.Join(from, name), filepath.Join(to, name)) == nil {
			continue
		}
		if err := copyFile(src, name, filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(src *os.Root, name, to string) error {
	in, err := src.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := saferoot.Near(to).Open(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// checkout writes the files of the snapshot, and an index of the staged changes.
func checkout(ctx context.Context, m Manifest, g gitrun.Git) (string, error) {
	if _, err := g.Run(ctx, "read-tree", m.Snapshot); err != nil {
		return "", err
	}
	if _, err := g.Run(ctx, "checkout-index", "--all", "--index", "--quiet"); err != nil {
		return "", err
	}
	staged := m.Commit
	if m.Index != "" {
		staged = m.Index
	}
	if staged != m.Snapshot {
		// Entries that are the same keep the times of their files, so that git need not read these again.
		if _, err := g.Run(ctx, "read-tree", "-m", staged); err != nil {
			return "", err
		}
	}
	work := filepath.Join(g.Tree, m.Subdir)
	f, err := saferoot.Dir(g.Tree).Folder(work)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the folder %q of the task has no file that is tracked or chosen (start from the top)", m.Subdir)
	case err != nil:
		return "", fmt.Errorf("the folder %q of the task: %w", m.Subdir, err)
	}
	f.Close()
	return work, nil
}
