package folder

import (
	"cmp"
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
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// Return says what comes back from another machine. It is made by [Cache.Collect]; [Receive] checks
// all of it.
type Return struct {
	V        int    `json:"v"`
	Commit   string `json:"commit"`           // of the manifest
	Snapshot string `json:"snapshot"`         // of the manifest
	Result   string `json:"result,omitempty"` // the commit that comes back; empty: nothing was changed or committed
	Head     string `json:"head,omitempty"`   // the last commit of the task; empty: it made none
	Parts    []Part `json:"parts,omitempty"`
	Notes    Notes  `json:"notes,omitempty"` // what does not come back; for people
}

// ReadReturn reads what comes back as JSON and checks it.
func ReadReturn(data []byte, l Limits) (r Return, err error) {
	if err = decode(data, &r); err == nil {
		err = r.check(l.orDefault())
	}
	if err != nil {
		return Return{}, fmt.Errorf("read what comes back of a folder: %w", err)
	}
	return r, nil
}

func (r Return) check(l Limits) error {
	if r.V != version {
		return fmt.Errorf("its format is %d, this program knows %d (use the same version on both machines)", r.V, version)
	}
	digits := len(r.Commit)
	for _, id := range []string{r.Commit, r.Snapshot, r.Result, r.Head} {
		switch {
		case digits != 40 && digits != 64, id != "" && !hexes(id, digits), r.Snapshot == "":
			return fmt.Errorf("its commit %q is no object ID", short(id))
		}
	}
	if (r.Result == "") != (len(r.Parts) == 0) {
		return fmt.Errorf("it has %d parts and the result %q", len(r.Parts), short(r.Result))
	}
	if err := r.Notes.check(); err != nil {
		return err
	}
	return checkParts(r.Parts, l.PackedBytes)
}

// Ending describes the commit that [Cache.Collect] makes.
type Ending struct {
	Message string    // empty: "Work on another machine"
	Time    time.Time // when the task ended; zero: now. A second attempt with the same time makes the same parts
}

func (e Ending) message() string { return cmp.Or(e.Message, "Work on another machine") }

func (e Ending) time() time.Time {
	if e.Time.IsZero() {
		return time.Now()
	}
	return e.Time
}

// Collect packs the changes in a work tree of [Cache.Unpack] and not ignored: the files become
// a commit on top of the manifest's snapshot, and the commits of HEAD come with it. It does not
// trust the repository in the folder, which the task may have changed, and changes nothing in it.
func (c *Cache) Collect(
	ctx context.Context, dir string, m Manifest, e Ending, l Limits, s Store,
) (r Return, err error) {
	defer annotate.Error(&err, "collect what was changed in %s", dir)
	l = l.orDefault()
	if err := m.check(l); err != nil {
		return r, fmt.Errorf("check the manifest: %w", err)
	}
	if m.Plain {
		return c.collectPlain(ctx, dir, m, e, l, s)
	}
	r = Return{V: version, Commit: m.Commit, Snapshot: m.Snapshot}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return r, err
	}
	tmp, remove, err := temporary()
	if err != nil {
		return r, err
	}
	defer remove()
	g, err := c.bench(ctx, dir, tmp, m)
	if err != nil {
		return r, err
	}
	if r.Head, err = headOf(ctx, g, m); err != nil {
		r.Notes.add("the repository of the work tree cannot be read, so only the files come back, without commits: %v", err)
	}
	tree, err := r.tree(ctx, g, m, l)
	if err != nil {
		return r, err
	}
	if err := r.commit(ctx, g, m, e, tree); err != nil || r.Result == "" {
		return r, err
	}
	if err := checkFiles(ctx, g, r.Result, l); err != nil {
		return r, err
	}
	r.Parts, err = sendPack(ctx, g, []string{r.Result}, []string{m.Commit}, tmp, l, s)
	return r, err
}

// bench is a repository of ours for the files of a work tree. It reads the objects of the work tree
// and of the cache, and nothing else of either.
func (c *Cache) bench(ctx context.Context, dir, tmp string, m Manifest) (gitrun.Git, error) {
	admin := filepath.Join(tmp, "git")
	g := gitrun.Git{Admin: admin, Tree: dir, Index: filepath.Join(tmp, indexName)}
	if err := create(ctx, gitrun.Git{Dir: tmp, Vars: plain()}, m.Format, "--bare", admin); err != nil {
		return g, err
	}
	cache := c.path(reposName, m.Repo, bareName)
	ends, err := shallowOf(cache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return g, err
	}
	if err := writeShallow(admin, append(ends, m.Shallow...)); err != nil {
		return g, err
	}
	g.Vars = plain()
	objects := []string{filepath.Join(cache, "objects")}
	if at := filepath.Join(dir, ".git", "objects"); ordinary(filepath.Join(at, "info", "alternates")) {
		objects = append(objects, at)
	}
	g = beside(g, filepath.Join(tmp, objectsName), objects...)
	id, err := g.Commit(ctx, m.Snapshot)
	if err == nil && id == "" {
		err = fmt.Errorf("the snapshot %s from which the task began is gone from the work tree and from the cache", short(m.Snapshot))
	}
	return g, err
}

// ordinary reports whether git can read a file without waiting for anybody.
func ordinary(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// headOf returns the commit of HEAD in a work tree, if it differs from the manifest. It reads the
// files itself: in a repository that the task has changed, git may wait for a pipe.
func headOf(ctx context.Context, g gitrun.Git, m Manifest) (string, error) {
	root, err := os.OpenRoot(filepath.Join(g.Tree, ".git"))
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	data, err := untrusted.Read(root, "HEAD", 4<<10)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if ref, ok := strings.CutPrefix(id, "ref: "); ok {
		if id, err = refOf(root, ref); err != nil || id == "" {
			return "", err // empty: a branch without a commit
		}
	}
	if !hexes(id, len(m.Commit)) {
		return "", fmt.Errorf("HEAD is %.60q", id)
	}
	if id == m.Commit {
		return "", nil
	}
	if got, err := g.Commit(ctx, id); err != nil || got != id {
		return "", errors.Join(fmt.Errorf("HEAD is %s, and there is no such commit", short(id)), err)
	}
	return id, nil
}

// refOf reads the object ID of a ref.
func refOf(root *os.Root, ref string) (string, error) {
	// A repository with refs in another form has the branch .invalid there.
	if !strings.HasPrefix(ref, "refs/") || !filepath.IsLocal(ref) || ref == "refs/heads/.invalid" {
		return "", fmt.Errorf("HEAD is the ref %.100q", ref)
	}
	data, err := untrusted.Read(root, ref, 4<<10)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return strings.TrimSpace(string(data)), err
	}
	data, err = untrusted.Read(root, "packed-refs", 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if id, name, _ := strings.Cut(line, " "); name == ref {
			return id, nil
		}
	}
	return "", err
}

// tree writes the files of the work tree as they are now.
func (r *Return) tree(ctx context.Context, g gitrun.Git, m Manifest, l Limits) (string, error) {
	if _, err := g.Run(ctx, "read-tree", m.Snapshot); err != nil {
		return "", err
	}
	untracked, nested, err := others(ctx, g, l, "--exclude-standard")
	if err != nil {
		return "", err
	}
	r.Notes.naming("these folders are repositories of their own and do not come back: %s", nested)
	marks, err := specials(ctx, g)
	if err != nil {
		return "", err
	}
	if err := stage(ctx, g, marks.links, untracked, l); err != nil {
		return "", err
	}
	return g.Text(ctx, "write-tree")
}

// commit makes the commit that comes back, if there is something.
func (r *Return) commit(ctx context.Context, g gitrun.Git, m Manifest, e Ending, tree string) error {
	before, err := g.Text(ctx, "rev-parse", m.Snapshot+"^{tree}")
	if err != nil || before == tree && r.Head == "" {
		return err
	}
	parents := []string{m.Snapshot}
	if r.Head != "" {
		straight := false
		if !m.Changes() {
			if straight, err = g.Ancestor(ctx, m.Commit, r.Head); err != nil {
				return err
			}
		}
		if straight { // nothing of the user's is between
			parents = []string{r.Head}
			head, err := g.Text(ctx, "rev-parse", r.Head+"^{tree}")
			if err != nil {
				return err
			}
			if head == tree {
				r.Result = r.Head
				return nil
			}
		} else {
			parents = append(parents, r.Head)
		}
	}
	r.Result, err = commit(ctx, g, tree, e.message(), e.time(), parents...)
	return err
}
