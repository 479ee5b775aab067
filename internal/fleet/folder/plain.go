package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// A folder without git travels as a commit without parents in a repository of ours, which is outside of the folder on
// both machines: to its tasks the folder is one without git. What comes back is a commit with the tree files/ of new
// and changed files, and the file deleted with the names of the others, each ended with a NUL.
const (
	FilesName   = "files"
	DeletedName = "deleted"
)

const (
	maxPath    = 4096
	maxElement = 255
	maxDeleted = 256 << 20 // bytes of the names of deleted files
)

// asIs keeps attributes that a folder has from changing its files.
const asIs = "* -text -eol -ident -filter -working-tree-encoding -crlf\n"

// packPlain makes a manifest of a folder without git.
func packPlain(ctx context.Context, dir string, c Choice, s Store) (m Manifest, err error) {
	l := c.Limits.orDefault()
	m = Manifest{V: plainVersion, Format: "sha1", Plain: true}
	tmp, remove, err := temporary()
	if err != nil {
		return m, err
	}
	defer remove()
	g, err := ours(ctx, filepath.Join(tmp, "git"), dir)
	if err != nil {
		return m, err
	}
	tree, notes, err := files(ctx, g, l)
	if err != nil {
		return m, err
	}
	m.Notes = append(m.Notes, notes...)
	if m.Snapshot, err = commit(ctx, g, tree, "Files", time.Unix(0, 0)); err != nil {
		return m, err
	}
	m.Repo, m.Commit = m.Snapshot, m.Snapshot
	// Without deltas an object has the same bytes in every pack, so parts of unchanged files are sent once.
	m.Parts, err = sendPack(ctx, g, []string{m.Snapshot}, nil, tmp, l, s, "--window=0")
	return m, err
}

// ours makes a repository of ours for the files of a folder.
func ours(ctx context.Context, admin, tree string) (gitrun.Git, error) {
	g := gitrun.Git{Admin: admin, Tree: tree, Vars: plain()}
	if err := create(ctx, gitrun.Git{Dir: filepath.Dir(admin), Vars: plain()}, "sha1", "--bare", admin); err != nil {
		return g, err
	}
	below := saferoot.Near(admin)
	if err := below.Mkdir(filepath.Join(admin, "info")); err != nil && !errors.Is(err, fs.ErrExist) {
		return g, err
	}
	return g, home.WriteBelow(below, filepath.Join(admin, "info", "attributes"), []byte(asIs))
}

// adminOf is the repository of ours next to a folder that [Cache.Unpack] has made of one without git.
func adminOf(dir string) string { return dir + ".git" }

// commit makes a commit of a tree, which is the same each time.
func commit(ctx context.Context, g gitrun.Git, tree, message string, at time.Time, parents ...string) (string, error) {
	stamp := "@" + strconv.FormatInt(at.Unix(), 10) + " +0000"
	g.Vars = append(slices.Clone(g.Vars), "GIT_AUTHOR_DATE="+stamp, "GIT_COMMITTER_DATE="+stamp)
	args := []string{"commit-tree", tree, "-m", message}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return g.Text(ctx, args...)
}

// files writes the tree of the files in a folder, and returns notes of what does not travel.
func files(ctx context.Context, g gitrun.Git, l Limits) (tree string, notes Notes, err error) {
	root, err := os.OpenRoot(g.Tree)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = root.Close() }()
	w := &walk{ctx: ctx, root: root, bound: bound{top: g.Tree, limits: l}}
	if err := w.folder("."); err != nil {
		return "", nil, err
	}
	notes.naming("these git repositories in the folder do not travel, only their files: %s", w.repos)
	notes.naming("these links lead out of the folder and do not travel: %s", w.outside)
	notes.naming("these are neither files nor folders nor links and do not travel: %s", w.odd)
	notes.naming("these folders are empty and do not travel: %s", w.empty)
	list := strings.NewReader(strings.Join(append(w.names, ""), "\x00"))
	if err := g.Feed(ctx, list, "update-index", "--add", "-z", "--stdin"); err != nil {
		return "", nil, err
	}
	tree, err = g.Text(ctx, "write-tree")
	return tree, notes, err
}

// walk collects the names of the files and links in a folder.
type walk struct {
	ctx   context.Context // of the one call that it works for
	root  *os.Root
	bound bound
	names []string

	repos, outside, odd, empty []string
}

func (w *walk) folder(at string) error {
	d, err := w.root.Open(at)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	before := len(w.names)
	for _, name := range names {
		if err := w.one(filepath.Join(at, name), name); err != nil {
			return err
		}
	}
	if len(names) == 0 && len(w.names) == before && at != "." {
		w.empty = append(w.empty, at)
	}
	return nil
}

// one takes the file, the link or the folder of a name.
func (w *walk) one(path, name string) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if strings.EqualFold(name, ".git") {
		w.repos = append(w.repos, filepath.Dir(path))
		return nil
	}
	info, err := w.root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	if err := checkPath(path); err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return w.folder(path)
	case fs.ModeSymlink:
		target, err := w.root.Readlink(path)
		if err != nil {
			return err
		}
		if checkTarget(path, target) != nil {
			w.outside = append(w.outside, path)
			return nil
		}
	case 0:
	default:
		w.odd = append(w.odd, path)
		return nil
	}
	w.names = append(w.names, path)
	return w.bound.add(path)
}

// unpackPlain makes the files of a manifest in an empty folder, and the repository next to it from which
// [Cache.Collect] knows them.
func (c *Cache) unpackPlain(ctx context.Context, m Manifest, l Limits, s Store, dir string) (err error) {
	admin := adminOf(dir)
	defer func() {
		if err != nil {
			err = errors.Join(err, saferoot.Near(admin).RemoveAll(admin))
		}
	}()
	g, err := ours(ctx, admin, dir)
	if err != nil {
		return err
	}
	if err := fetch(ctx, g, m.Parts, []string{m.Snapshot}, l, kept{s, c}); err != nil {
		return err
	}
	if _, err := checkTree(ctx, g, m.Snapshot, ""); err != nil {
		return err
	}
	return lay(ctx, g, m.Snapshot)
}

// lay writes the files of a commit to an empty folder.
func lay(ctx context.Context, g gitrun.Git, commit string) error {
	if _, err := g.Run(ctx, "read-tree", commit); err != nil {
		return err
	}
	_, err := g.Run(ctx, "checkout-index", "--all", "--quiet")
	return err
}

// checkTree refuses files of a commit that could lead out of a folder, and returns their names below a folder of it.
// With a folder, nothing else may be in the commit but the names of deleted files.
func checkTree(ctx context.Context, g gitrun.Git, commit, below string) (names []string, err error) {
	var links, ids []string
	err = each(ctx, g, func(e string) error {
		head, name, _ := strings.Cut(e, "\t")
		fields := strings.Fields(head) // mode, type and ID
		if len(fields) != 3 {
			return fmt.Errorf("git ls-tree prints %.100q", e)
		}
		path, in := name, true
		if below != "" {
			path, in = strings.CutPrefix(name, below+"/")
		}
		switch {
		case !in && name == DeletedName && fields[0] == "100644":
			return nil
		case !in:
			return fmt.Errorf("the name %.100q is not one of what comes back", name)
		case fields[1] != "blob":
			return fmt.Errorf("%.100q is a %s", name, fields[1])
		case fields[0] == "120000":
			links, ids = append(links, path), append(ids, fields[2])
		}
		names = append(names, path)
		return checkPath(path)
	}, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil || len(ids) == 0 {
		return names, err
	}
	var targets bytes.Buffer
	out := &capped{w: &targets, left: int64(len(ids)) * (maxPath + 100), most: maxPath}
	if err := g.Stream(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), out, "cat-file", "--batch"); err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	for _, path := range links {
		head, err := targets.ReadString('\n')
		fields := strings.Fields(head)
		if err != nil || len(fields) != 3 {
			return nil, fmt.Errorf("git cat-file prints %.100q", head)
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil || n < 0 || n >= targets.Len() {
			return nil, fmt.Errorf("git cat-file prints %.100q", head)
		}
		if err := checkTarget(path, string(targets.Next(n))); err != nil {
			return nil, err
		}
		targets.Next(1)
	}
	return names, nil
}

// collectPlain packs the differences between a folder and the manifest from which it was unpacked.
func (c *Cache) collectPlain(
	ctx context.Context, dir string, m Manifest, e Ending, l Limits, s Store,
) (r Return, err error) {
	r = Return{V: version, Commit: m.Commit, Snapshot: m.Snapshot}
	tmp, remove, err := temporary()
	if err != nil {
		return r, err
	}
	defer remove()
	g, err := ours(ctx, filepath.Join(tmp, "git"), dir)
	if err != nil {
		return r, err
	}
	g = beside(g, filepath.Join(tmp, objectsName), filepath.Join(adminOf(dir), "objects"))
	tree, notes, err := files(ctx, g, l)
	if err != nil {
		return r, err
	}
	r.Notes = append(r.Notes, notes...)
	var changed, deleted strings.Builder
	head := ""
	err = each(ctx, g, func(entry string) error {
		if head == "" {
			head = strings.TrimPrefix(entry, ":") // the name follows
			return nil
		}
		fields := strings.Fields(head) // modes before and after, IDs before and after, and what happened
		head = ""
		switch {
		case len(fields) != 5:
			return fmt.Errorf("git diff-tree prints %.100q", entry)
		case fields[4] == "D":
			deleted.WriteString(entry + "\x00")
		default:
			fmt.Fprintf(&changed, "%s %s\t%s/%s\x00", fields[1], fields[3], FilesName, entry)
		}
		return nil
	}, "diff-tree", "-r", "-z", "--no-renames", m.Snapshot, tree)
	if err != nil || changed.Len()+deleted.Len() == 0 {
		return r, err
	}
	g.Index = filepath.Join(tmp, indexName)
	if deleted.Len() > 0 {
		var id bytes.Buffer
		if err := g.Stream(ctx, strings.NewReader(deleted.String()), &id, "hash-object", "-w", "--stdin"); err != nil {
			return r, err
		}
		fmt.Fprintf(&changed, "100644 %s\t%s\x00", strings.TrimSpace(id.String()), DeletedName)
	}
	if err := g.Feed(ctx, strings.NewReader(changed.String()), "update-index", "-z", "--index-info"); err != nil {
		return r, err
	}
	if tree, err = g.Text(ctx, "write-tree"); err != nil {
		return r, err
	}
	if r.Result, err = commit(ctx, g, tree, e.message(), e.time()); err != nil {
		return r, err
	}
	r.Parts, err = sendPack(ctx, g, []string{r.Result}, nil, tmp, l, s, "--window=0")
	return r, err
}

// Change is what came back of a folder without git.
type Change struct {
	Files   []string // new or changed, below the folder files
	Deleted []string // in the file deleted, each ended with a NUL
	Notes   []string
}

// ReceivePlain writes what [Cache.Collect] has packed of a folder without git to a new or empty folder: the folder
// files and the file deleted. It never writes to the folder from which the task began. After a failure the folder is
// empty.
func ReceivePlain(ctx context.Context, m Manifest, r Return, l Limits, s Store, dir string) (c Change, err error) {
	defer annotate.Error(&err, "receive changed files into %s", dir)
	l = l.orDefault()
	if err := r.check(l); err != nil {
		return c, err
	}
	if err := r.answers(m); err != nil {
		return c, err
	}
	c.Notes = r.Notes
	if r.Result == "" {
		return c, nil
	}
	root, err := vacant(dir)
	if err != nil {
		return c, err
	}
	defer func() { _ = root.Close() }()
	defer func() {
		if err != nil {
			err = errors.Join(err, clear(root))
		}
	}()
	tmp, remove, err := temporary()
	if err != nil {
		return c, err
	}
	defer remove()
	g, err := ours(ctx, filepath.Join(tmp, "git"), dir)
	if err != nil {
		return c, err
	}
	if err := fetch(ctx, g, r.Parts, []string{r.Result}, l, s); err != nil {
		return c, err
	}
	if c.Files, err = checkTree(ctx, g, r.Result, FilesName); err != nil {
		return c, err
	}
	if err := lay(ctx, g, r.Result); err != nil {
		return c, err
	}
	f, err := root.Open(DeletedName)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDeleted))
	if err != nil {
		return c, err
	}
	c.Deleted = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	for _, path := range c.Deleted {
		if err := checkPath(path); err != nil {
			return c, err
		}
	}
	return c, nil
}

// checkPath refuses a name that could lead out of a folder, or into a repository in it.
func checkPath(path string) error {
	switch {
	case path == "" || strings.ContainsRune(path, 0) || len(path) > maxPath:
		return fmt.Errorf("the name %.100q is empty, too long, or has a NUL in it", path)
	case filepath.IsAbs(path):
		return fmt.Errorf("the name %.100q is absolute", path)
	case !filepath.IsLocal(path):
		return fmt.Errorf("the name %.100q leads out of the folder", path)
	case filepath.Clean(path) != path || path == ".":
		return fmt.Errorf("the name %.100q is not in its shortest form", path)
	case inGit(path):
		return fmt.Errorf("the name %.100q is that of a git repository", path)
	}
	for element := range strings.SplitSeq(path, "/") {
		if len(element) > maxElement {
			return fmt.Errorf("the name %.100q has an element of more than %d bytes", path, maxElement)
		}
	}
	return nil
}

// checkTarget refuses a link that leads out. It may go up first and then down: after a name, .. would mean the folder
// above the one to which another link leads.
func checkTarget(path, target string) error {
	switch {
	case target == "" || len(target) > maxPath || strings.ContainsRune(target, 0):
		return fmt.Errorf("the link %.100q has no valid target", path)
	case filepath.IsAbs(target):
		return fmt.Errorf("the link %.100q leads to the absolute path %.100q", path, target)
	}
	up, down := 0, false
	for element := range strings.SplitSeq(target, "/") {
		switch {
		case element == ".." && down:
			return fmt.Errorf("the link %.100q leads down and up again: %.100q", path, target)
		case element == "..":
			up++
		case element != "" && element != ".":
			down = true
		}
	}
	if up > strings.Count(path, "/") {
		return fmt.Errorf("the link %.100q leads out of the folder: %.100q", path, target)
	}
	return nil
}
