package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Cache keeps the objects of repositories on a worker, so that the next task of a repository
// receives only new objects. Finished work trees do not depend on it.
//
// A cache serves one circle of trust: who may send a manifest can name any commit in it and have
// its files. Its methods may be called at the same time, by several processes as well.
type Cache struct {
	Dir      string        // absolute; made when needed, in a folder that exists
	MaxBytes int64         // of all repositories together; 0: 20 GiB
	MaxAge   time.Duration // since the last use of a repository; 0: 30 days
}

// Layout of a cache: a folder for each repository with its lock and its bare repository, and the parts of transfers
// that were cut and of folders without git.
const (
	reposName = "repositories"
	partsName = "parts"
	bareName  = "git"
	usedName  = "used" // its modification time is the last use
	haveRefs  = "refs/drover/have/"
	maxPacks  = 8
)

func (c *Cache) below() saferoot.Dir { return saferoot.Dir(filepath.Dir(c.Dir)) }

func (c *Cache) path(names ...string) string {
	return filepath.Join(append([]string{c.Dir}, names...)...)
}

// mkdirs makes the folders on the way to a path in the cache. The folder that holds the cache exists.
func (c *Cache) mkdirs(names ...string) error {
	for i := range len(names) + 1 {
		if err := c.below().Mkdir(c.path(names[:i]...)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// hold locks the folder of a repository, which is made if create says so. Closing the file frees
// it.
func (c *Cache) hold(ctx context.Context, repo string, create bool) (*os.File, error) {
	return home.Await(ctx, func() (*os.File, error) {
		for {
			if create {
				if err := c.mkdirs(reposName, repo); err != nil {
					return nil, err
				}
			}
			f, err := home.LockBelow(c.below(), c.path(reposName, repo), os.O_RDONLY, 0)
			if create && errors.Is(err, fs.ErrNotExist) {
				continue // Trim removed it meanwhile
			}
			return f, err
		}
	})
}

func (c *Cache) git(repo string, held *os.File) gitrun.Git {
	dir := c.path(reposName, repo, bareName)
	return gitrun.Git{Admin: dir, Tree: dir, Held: held, Vars: plain()}
}

// plain keeps the configuration of this machine out of work for another: its filters would change
// files. Refs are files, whatever later versions of git prefer, since [Cache.Collect] reads them.
func plain() []string {
	return []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_DEFAULT_REF_FORMAT=files"}
}

// Have lists commits of a repository that the cache has, the newest first; none if it does not know
// the repository.
func (c *Cache) Have(ctx context.Context, repo string) (_ []string, err error) {
	defer annotate.Error(&err, "read cached repository %s", short(repo))
	if !hexes(repo, 40) && !hexes(repo, 64) {
		return nil, fmt.Errorf("%.100q is no identity of a repository", repo)
	}
	lock, err := c.hold(ctx, repo, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if _, err := os.Lstat(c.path(reposName, repo, bareName, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	refs, err := c.refs(ctx, c.git(repo, lock))
	var out []string
	for _, r := range refs {
		if _, id, ok := strings.Cut(strings.TrimPrefix(r, haveRefs), "-"); ok && len(out) < maxHave {
			out = append(out, id)
		}
	}
	return out, err
}

// refs are those that keep received commits, the newest first.
func (c *Cache) refs(ctx context.Context, g gitrun.Git) ([]string, error) {
	text, err := g.Text(ctx, "for-each-ref", "--sort=-refname", "--format=%(refname)", haveRefs)
	if err != nil {
		return nil, err
	}
	return strings.Fields(text), nil
}

// keep makes the commits of a manifest the newest that the cache has, and drops the oldest.
func (c *Cache) keep(ctx context.Context, g gitrun.Git, ids ...string) error {
	refs, err := c.refs(ctx, g)
	if err != nil {
		return err
	}
	ids = slices.Compact(slices.Clone(ids))
	var in strings.Builder
	left := maxHave - len(ids)
	for _, ref := range refs {
		_, id, _ := strings.Cut(strings.TrimPrefix(ref, haveRefs), "-")
		if slices.Contains(ids, id) || left <= 0 {
			fmt.Fprintf(&in, "delete %s\n", ref)
			continue
		}
		left--
	}
	for _, id := range ids {
		fmt.Fprintf(&in, "update %s%020d-%s %s\n", haveRefs, time.Now().UnixNano(), id, id)
	}
	if err := g.Feed(ctx, strings.NewReader(in.String()), "update-ref", "--stdin"); err != nil {
		return err
	}
	return c.used(g)
}

func (c *Cache) used(g gitrun.Git) error {
	path := filepath.Join(filepath.Dir(g.Admin), usedName)
	return home.WriteBelow(c.below(), path, []byte(time.Now().UTC().Format(time.RFC3339)+"\n"))
}

// ErrLacks is returned, wrapped, by [Cache.Unpack] when the cache no longer has a commit on which
// the manifest builds: it must be packed anew, with what [Cache.Have] lists now.
var ErrLacks = errors.New("this machine no longer has a commit on which the transfer builds (pack it again)")

// bring makes sure that the cache has the commits of a manifest. The file, which holds the repository, is closed by the
// caller.
func (c *Cache) bring(ctx context.Context, m Manifest, l Limits, s Store) (gitrun.Git, *os.File, error) {
	g, lock, err := c.found(ctx, m)
	if err != nil || lock != nil {
		return g, lock, err
	}
	// Without the lock of the repository, so that tasks of other commits need not wait while the parts travel.
	turn, err := c.turn(ctx, m)
	if err != nil {
		return g, nil, err
	}
	defer turn.Close()
	if g, lock, err = c.found(ctx, m); err != nil || lock != nil {
		return g, lock, err
	}
	pack, remove, err := download(ctx, m.Parts, kept{s, c})
	if err != nil {
		return g, nil, err
	}
	defer remove()
	if lock, err = c.repository(ctx, m); err != nil {
		return g, nil, err
	}
	g = c.git(m.Repo, lock)
	if err = accept(ctx, g, pack, []string{m.Snapshot}, l); err == nil {
		err = errors.Join(c.tidy(ctx, g), c.forget(m), c.below().Remove(turn.Name()))
	}
	return g, lock, err
}

// found returns the repository and its lock if it has the commits of a manifest.
func (c *Cache) found(ctx context.Context, m Manifest) (gitrun.Git, *os.File, error) {
	lock, err := c.repository(ctx, m)
	if err != nil {
		return gitrun.Git{}, nil, err
	}
	g := c.git(m.Repo, lock)
	has, err := c.has(ctx, g, m)
	if err != nil || !has {
		return g, nil, errors.Join(err, lock.Close())
	}
	return g, lock, nil
}

// turn waits until no other task receives the commits of a manifest. Closing the file ends the turn.
func (c *Cache) turn(ctx context.Context, m Manifest) (*os.File, error) {
	if err := c.mkdirs(partsName); err != nil {
		return nil, err
	}
	path := c.path(partsName, m.Snapshot)
	return home.Await(ctx, func() (*os.File, error) {
		f, err := home.LockBelow(c.below(), path, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			err = home.ErrLocked // another task has just ended its turn
		}
		return f, err
	})
}

// repository locks the folder of a repository, with a bare repository in it.
func (c *Cache) repository(ctx context.Context, m Manifest) (*os.File, error) {
	lock, err := c.hold(ctx, m.Repo, true)
	if err != nil {
		return nil, err
	}
	g := c.git(m.Repo, lock)
	_, err = os.Lstat(g.Admin)
	if err == nil {
		var is string
		if is, err = g.Text(ctx, "rev-parse", "--show-object-format"); err == nil && is != m.Format {
			err = fmt.Errorf("the repository in the cache has objects of the format %s, not %s", is, m.Format)
		} else if gitrun.Exited(err, 128) { // a crash may leave it incomplete
			if err = c.below().RemoveAll(g.Admin); err == nil {
				err = fs.ErrNotExist
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		parent := gitrun.Git{Dir: c.path(reposName, m.Repo), Held: lock, Vars: plain()}
		err = create(ctx, parent, m.Format, "--bare", g.Admin)
	}
	if err == nil {
		err = addShallow(ctx, g, m)
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// create makes a repository without anything of this machine's templates.
func create(ctx context.Context, g gitrun.Git, format string, args ...string) error {
	args = append([]string{"init", "-q", "--template=", "--initial-branch=none", "--object-format=" + format}, args...)
	_, err := g.Run(ctx, args...)
	return err
}

// addShallow adds the commits at which the history ends for the sender. A commit that is there has
// its history, or is in the list.
func addShallow(ctx context.Context, g gitrun.Git, m Manifest) error {
	list, err := shallowOf(g.Admin)
	if err != nil || len(m.Shallow) == 0 {
		return err
	}
	there, err := known(ctx, g, m.Format, m.Shallow)
	if err != nil {
		return err
	}
	for _, id := range m.Shallow {
		if !slices.Contains(there, id) {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > 10*maxShallow {
		return fmt.Errorf("the cached history ends at %d commits, the limit is %d", len(list), 10*maxShallow)
	}
	return writeShallow(g.Admin, list)
}

// has reports whether the commits of a manifest are there with all that they need.
func (c *Cache) has(ctx context.Context, g gitrun.Git, m Manifest) (bool, error) {
	for _, id := range m.Needs {
		if got, err := g.Commit(ctx, id); err != nil || got == "" {
			return false, errors.Join(fmt.Errorf("%w: %s", ErrLacks, short(id)), err)
		}
	}
	got, err := g.Commit(ctx, m.Snapshot)
	if err != nil {
		return false, err
	}
	if got != "" && connected(ctx, g, []string{m.Snapshot}) == nil {
		return true, nil
	}
	if len(m.Parts) == 0 {
		return false, fmt.Errorf("%w: %s", ErrLacks, short(m.Snapshot))
	}
	return false, nil
}

// tidy joins the packs when they have become many. Work trees have their own links to the old ones.
func (c *Cache) tidy(ctx context.Context, g gitrun.Git) error {
	names, err := c.below().Names(filepath.Join(g.Admin, "objects", "pack"))
	if err != nil || len(names) < maxPacks*2 {
		return err
	}
	_, err = g.Run(ctx, "repack", "-d", "-q", "--geometric=2")
	return err
}

// kept is a store that looks for parts in a cache before. A transfer that was cut continues with the parts that it
// has received.
type kept struct {
	Store
	c *Cache
}

func (k kept) Get(ctx context.Context, digest string) ([]byte, error) {
	path := k.c.path(partsName, digest)
	if data, err := home.ReadBelow(k.c.below(), path, PartBytes); err == nil && digestOf(data) == digest {
		if root, err := k.c.below().Root(filepath.Dir(path)); err == nil {
			_ = root.Chtimes(digest, time.Now(), time.Now()) // it was used
			_ = root.Close()
		}
		return data, nil
	}
	data, err := k.Store.Get(ctx, digest)
	if err != nil || digestOf(data) != digest {
		return data, err
	}
	if err := k.c.mkdirs(partsName); err != nil {
		return nil, err
	}
	return data, home.WriteBelow(k.c.below(), path, data)
}

// forget removes the parts of a manifest, whose objects are in a repository.
func (c *Cache) forget(m Manifest) error {
	for _, p := range m.Parts {
		if err := c.below().Remove(c.path(partsName, p.Digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Trim removes the repositories that were not used for MaxAge, and the least recently used while
// all have more than MaxBytes. Entries in use stay. It returns the bytes that are left.
func (c *Cache) Trim(ctx context.Context) (left int64, err error) {
	defer annotate.Error(&err, "trim the cache of repositories %s", c.Dir)
	maxBytes, maxAge := c.MaxBytes, c.MaxAge
	if maxBytes <= 0 {
		maxBytes = 20 << 30
	}
	if maxAge <= 0 {
		maxAge = 30 * 24 * time.Hour
	}
	var all []cached
	for _, kind := range []string{reposName, partsName} {
		names, err := c.below().Names(c.path(kind))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, n := range names {
			e := c.look(filepath.Join(kind, n))
			left += e.bytes
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, e := range all {
		if err := context.Cause(ctx); err != nil {
			return left, err
		}
		if left <= maxBytes && time.Since(e.used) < maxAge {
			continue
		}
		gone, err := c.drop(e)
		if err != nil {
			return left, err
		}
		if gone {
			left -= e.bytes
		}
	}
	return left, nil
}

type cached struct {
	name  string
	bytes int64
	used  time.Time
}

// look measures one entry of the cache.
func (c *Cache) look(name string) cached {
	e := cached{name: name}
	info, err := c.below().Lstat(c.path(name))
	if err != nil {
		return e
	}
	e.used = info.ModTime()
	if !info.IsDir() {
		e.bytes = info.Size()
		return e
	}
	if info, err := c.below().Lstat(c.path(name, usedName)); err == nil {
		e.used = info.ModTime()
	}
	if f, err := c.below().Folder(c.path(name)); err == nil {
		f.Files(func(info fs.FileInfo) { e.bytes += info.Size() })
		f.Close()
	}
	return e
}

// drop removes an entry that is not in use.
func (c *Cache) drop(e cached) (bool, error) {
	f, err := home.LockBelow(c.below(), c.path(e.name), os.O_RDONLY, 0)
	if errors.Is(err, home.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return true, c.below().RemoveAll(c.path(e.name))
}
