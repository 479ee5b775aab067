package folder

import (
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
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Choice is what [Pack] takes.
type Choice struct {
	// Have are commits that the receiver has, as [Cache.Have] lists them. What the repository does
	// not know is left out.
	Have []string

	// Untracked are patterns of untracked files that travel, ignored ones included: as in .gitignore, relative to the
	// folder; the name of a folder matches everything in it.
	Untracked    []string
	AllUntracked bool // takes all files that are neither tracked nor ignored

	Plain bool // the folder is one without git, and all of its files travel

	Limits Limits
}

// Pack makes what the receiver lacks of the checkout of a folder into parts in the store. It only
// reads the repository, and may be called at the same time for one. The same content makes the same
// parts, so after a failure it is called again. Errors name what cannot travel; [gitrun.ErrNone] means
// that the folder is not in a repository.
func Pack(ctx context.Context, dir string, c Choice, s Store) (Manifest, error) {
	packing := pack
	if c.Plain {
		packing = packPlain
	}
	m, err := packing(ctx, dir, c, s)
	if err != nil {
		return Manifest{}, fmt.Errorf("pack the folder %s: %w", dir, err)
	}
	return m, nil
}

func pack(ctx context.Context, dir string, c Choice, s Store) (m Manifest, err error) {
	l := c.Limits.orDefault()
	r, err := open(ctx, dir)
	if err != nil {
		return m, err
	}
	m = Manifest{V: version, Format: r.format, Commit: r.head, Branch: r.branch, Subdir: r.Prefix}
	if !utf8.ValidString(r.Prefix) {
		return m, fmt.Errorf("the name of the folder %q is not UTF-8 (start from the top of the repository)", r.Prefix)
	}
	if !branchName(r.branch) {
		m.Branch = ""
		m.Notes.add("the branch %q has a name that cannot travel; the worker has its commit without a branch", r.branch)
	}
	if m.Repo, err = r.identity(ctx); err != nil {
		return m, err
	}
	if m.Shallow, err = r.shallow(); err != nil {
		return m, err
	}
	if len(m.Shallow) > 0 {
		m.Notes.add("this is a shallow clone; the worker gets no more history than it has")
	}
	m.Name, m.Mail = r.user(ctx)
	tmp, remove, err := temporary()
	if err != nil {
		return m, err
	}
	defer remove()
	g, err := r.snapshot(ctx, tmp, c, l, &m)
	if err != nil {
		return m, err
	}
	if m.Needs, err = known(ctx, g, m.Format, c.Have[:min(len(c.Have), maxHave)]); err != nil {
		return m, err
	}
	try := func() error {
		if err := r.complete(ctx, g, m); err != nil {
			return err
		}
		if err := checkFiles(ctx, g, m.Snapshot, l); err != nil {
			return err
		}
		m.Parts, err = sendPack(ctx, g, []string{m.Snapshot}, m.Needs, tmp, l, s)
		return err
	}
	if err = try(); !errors.Is(err, errHistory) || slices.Contains(m.Shallow, m.Commit) {
		return m, err
	}
	m.Notes.add("the worker gets no history before commit %s: %v", short(m.Commit), err)
	m.Shallow = append(m.Shallow, m.Commit)
	if err := writeShallow(tmp, m.Shallow); err != nil {
		return m, err
	}
	g.Vars = append(g.Vars, "GIT_SHALLOW_FILE="+filepath.Join(tmp, shallowName))
	err = try()
	return m, err
}

// errHistory is found in an error that there may not be without the history.
var errHistory = errors.New("there is too much history")

// history is errHistory with a text of its own.
type history struct{ text string }

func (h *history) Error() string { return h.text }
func (h *history) Unwrap() error { return errHistory }

// snapshot makes commits of the uncommitted changes. They are written to a folder of ours, and the
// git that is returned sees them. The same files make the same commits.
func (r repository) snapshot(ctx context.Context, tmp string, c Choice, l Limits, m *Manifest) (gitrun.Git, error) {
	g := beside(r.git, filepath.Join(tmp, objectsName), filepath.Join(r.Common, "objects"))
	// The other half of a split index would be written to the user's repository.
	g.Vars = append(g.Vars, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.splitIndex", "GIT_CONFIG_VALUE_0=false")
	g.Index = filepath.Join(tmp, indexName)
	if err := r.quiet(ctx, m); err != nil {
		return g, err
	}
	err := gitrun.CopyIndex(filepath.Join(r.Admin, "index"), g.Index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return g, err
	}
	staged, err := g.Text(ctx, "write-tree")
	if err != nil {
		return g, err
	}
	untracked, err := r.chosen(ctx, g, c, l, m)
	if err != nil {
		return g, err
	}
	marks, err := r.remarks(ctx, g, m)
	if err != nil {
		return g, err
	}
	if err := stage(ctx, g, marks.links, untracked, l); err != nil {
		return g, err
	}
	files, err := g.Text(ctx, "write-tree")
	if err != nil {
		return g, err
	}
	head, err := g.Text(ctx, "rev-parse", r.head+"^{tree}")
	if err != nil {
		return g, err
	}
	stamp, err := g.Text(ctx, "show", "-s", "--format=%ct", r.head)
	if err != nil {
		return g, err
	}
	g.Vars = append(g.Vars, "GIT_AUTHOR_DATE=@"+stamp+" +0000", "GIT_COMMITTER_DATE=@"+stamp+" +0000")
	m.Snapshot = r.head
	if staged != head {
		if m.Index, err = g.Text(ctx, "commit-tree", staged, "-p", r.head, "-m", "Staged changes"); err != nil {
			return g, err
		}
		m.Snapshot = m.Index
	}
	if files != staged {
		m.Snapshot, err = g.Text(ctx, "commit-tree", files, "-p", m.Snapshot, "-m", "Changes that were not committed")
	}
	return g, err
}

// quiet refuses a checkout with conflicts, and says what of an unfinished operation stays here.
func (r repository) quiet(ctx context.Context, m *Manifest) error {
	var open []string
	err := each(ctx, r.git, func(e string) error {
		if _, name, ok := strings.Cut(e, "\t"); ok && !slices.Contains(open, name) && len(open) < 100 {
			open = append(open, name)
		}
		return nil
	}, "ls-files", "--unmerged", "-z")
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return fmt.Errorf("a merge has left conflicts in %s (resolve and `git add` them, or abort the merge)", named(open))
	}
	for _, op := range [][2]string{
		{"MERGE_HEAD", "merge"}, {"CHERRY_PICK_HEAD", "cherry-pick"}, {"REVERT_HEAD", "revert"}, {"rebase-merge", "rebase"},
		{"rebase-apply", "rebase"}, {"BISECT_LOG", "bisect"},
	} {
		if _, err := os.Lstat(filepath.Join(r.Admin, op[0])); err == nil {
			m.Notes.add("a %s is in progress; the worker gets the files as they are, and knows nothing of it", op[1])
		}
	}
	return nil
}

// remarks says which files travel in another form than the others.
func (r repository) remarks(ctx context.Context, g gitrun.Git, m *Manifest) (special, error) {
	s, err := specials(ctx, g)
	if err != nil {
		return s, err
	}
	m.Notes.naming("submodules travel as their recorded commits only, and their folders are empty on the worker: %s", s.links)
	if s.sparse {
		m.Notes.add("this is a sparse checkout; the worker gets all files of the commit")
	}
	m.Notes.naming("these files are marked as unchanged (git update-index --assume-unchanged) and travel as they were added: %s", s.hidden)
	lfs, err := g.Fields(ctx, "ls-files", "-z", "--", ":(top,attr:filter=lfs)")
	m.Notes.naming("files of Git LFS travel as pointers, without their content: %s", lfs)
	return s, err
}

// chosen lists the untracked files that travel.
func (r repository) chosen(ctx context.Context, g gitrun.Git, c Choice, l Limits, m *Manifest) ([]string, error) {
	g.Index = filepath.Join(r.Admin, "index")
	var all []string
	if c.AllUntracked {
		files, nested, err := others(ctx, g, l, "--exclude-standard")
		if err != nil {
			return nil, err
		}
		m.Notes.naming("these folders are repositories of their own and do not travel: %s", nested)
		all = files
	}
	if len(c.Untracked) > maxPatterns {
		return nil, fmt.Errorf("%d patterns choose untracked files, the limit is %d", len(c.Untracked), maxPatterns)
	}
	for _, p := range c.Untracked {
		clean := filepath.Clean(filepath.Join("/", p))[1:]
		if filepath.IsAbs(p) || strings.ContainsRune(p, 0) || !filepath.IsLocal(p) {
			return nil, fmt.Errorf("the pattern %q of untracked files does not stay in the folder", p)
		}
		spec := ":(top,glob)" + clean
		if r.Prefix != "" {
			spec = ":(top,glob)" + literal(r.Prefix) + "/" + clean
		}
		files, nested, err := others(ctx, g, l, "--", spec)
		if err != nil {
			return nil, err
		}
		m.Notes.naming("these folders are repositories of their own and do not travel: %s", nested)
		if len(files) == 0 {
			m.Notes.add("no untracked file matches %q", p)
		}
		all = append(all, files...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

const maxPatterns = 100

// literal is a path in which no character of a pattern means anything but itself.
func literal(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`*?[\`, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// known returns which of some commits the repository has.
func known(ctx context.Context, g gitrun.Git, format string, have []string) ([]string, error) {
	digits, err := digitsOf(format)
	if err != nil {
		return nil, err
	}
	var ask strings.Builder
	for _, id := range have {
		if hexes(id, digits) {
			ask.WriteString(id + "\n")
		}
	}
	if ask.Len() == 0 {
		return nil, nil
	}
	var out []string
	err = g.Stream(ctx, strings.NewReader(ask.String()), &lines{end: '\n', each: func(e string) error {
		if id, ok := strings.CutSuffix(e, " commit"); ok {
			out = append(out, id)
		}
		return nil
	}}, "cat-file", "--batch-check=%(objectname) %(objecttype)")
	slices.Sort(out)
	return slices.Compact(out), err
}

// complete refuses a partial clone in which objects are missing that would have to travel.
func (r repository) complete(ctx context.Context, g gitrun.Git, m Manifest) error {
	partial, err := r.partial(ctx)
	if err != nil || !partial {
		return err
	}
	missing := 0
	count := &lines{end: '\n', each: func(e string) error {
		if strings.HasPrefix(e, "?") {
			missing++
		}
		return nil
	}}
	err = g.Stream(ctx, strings.NewReader(revisions([]string{m.Snapshot}, m.Needs)), count, "rev-list", "--objects",
		"--missing=print", "--stdin")
	if err == nil && missing > 0 {
		err = &history{fmt.Sprintf("it is a partial clone that lacks %d objects which would have to travel"+
			" (run: git fetch --refetch --no-filter)", missing)}
	}
	return err
}

// revisions is how git reads on stdin which commits are meant, and which are not.
func revisions(tips, without []string) string {
	var b strings.Builder
	for _, id := range tips {
		b.WriteString(id + "\n")
	}
	for _, id := range without {
		b.WriteString("^" + id + "\n")
	}
	return b.String()
}

// sendPack puts the objects of some commits into the store, as a pack that leaves out what others
// have. It returns no parts if nothing is left.
func sendPack(
	ctx context.Context, g gitrun.Git, tips, without []string, tmp string, l Limits, s Store, how ...string,
) ([]Part, error) {
	revs := revisions(tips, without)
	var about string
	err := g.Stream(ctx, strings.NewReader(revs), &lines{end: '\n', each: func(e string) error {
		about = e
		return nil
	}}, "rev-list", "--objects", "--disk-usage", "--stdin")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(about), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("git rev-list --disk-usage: %w", err)
	}
	if n == 0 {
		return nil, nil
	}
	if n > l.PackedBytes {
		text := fmt.Sprintf("%s would have to travel, the limit is %s (raise the limit)", size(n), size(l.PackedBytes))
		return nil, &history{text}
	}
	path := filepath.Join(tmp, packName)
	f, err := saferoot.Near(path).Open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One thread makes the same pack of the same objects, so that a second attempt finds its parts.
	out := &capped{w: f, left: l.PackedBytes, most: l.PackedBytes}
	args := []string{"pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "--threads=1", "-q"}
	err = g.Stream(ctx, strings.NewReader(revs), out, append(args, how...)...)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return send(ctx, s, f)
}

// capped is a writer with a limit.
type capped struct {
	w          io.Writer
	left, most int64
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, fmt.Errorf("more than %s would have to travel, the limit (raise the limit)", size(c.most))
	}
	return c.w.Write(p)
}
