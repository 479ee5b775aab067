package merge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

const (
	lockWait    = 30 * time.Second // for a git that a killed merge has left
	maxConflict = 16 << 10         // bytes of a conflict that are shown
	maxNamed    = 5                // files that an error names
)

// Store is the folder of the journals and scratch checkouts of all repositories.
type Store struct {
	root  string
	trees *worktree.Store // its turn guards the list of a repository's checkouts

	// after is called after each step, for tests that end there; may be nil.
	after func(step string)
}

// Open names the store at an absolute path. The folder that holds it is trusted, and the
// store is made with the first merge.
func Open(root string, trees *worktree.Store) *Store {
	return &Store{root: filepath.Clean(root), trees: trees}
}

func (s *Store) step(name string) {
	if s.after != nil {
		s.after(name)
	}
}

func (s *Store) below() saferoot.Dir { return saferoot.Dir(filepath.Dir(s.root)) }

// Conflict means that a change could not be rebased.
type Conflict struct {
	Files []string
	Text  string // the conflicting places, shortened
	Onto  string // the commit on which it was rebased
}

func (c *Conflict) Error() string {
	return "the change conflicts with what was merged before, in " + names(c.Files)
}

// ErrMoved means that another process has moved the branch since it was read.
var ErrMoved = errors.New("the branch was moved by somebody else")

// ErrNothing means that the branch has all of a change already.
var ErrNothing = errors.New("the branch has all of the change already")

// Train merges one change after the other to a branch. Close ends it.
type Train struct {
	Branch string // its short name
	Repo   string // the top of the work tree from which the branch was chosen
	Tip    string // the commit of the branch, with the landed changes
	Dir    string // of the scratch checkout, in which checks run

	// Recovered reports the recovery of an interrupted merge; empty: none was interrupted.
	Recovered string

	s     *Store
	still bool
	dir   string // with the journal, the lock and the scratch checkout
	lock  *os.File
	at    place
	vars  []string
}

// place is a branch, and where it is checked out.
type place struct {
	common string
	ref    string
	admin  string // of the work tree that has it checked out; empty: none has
	top    string
}

func (p place) repository(held *os.File) gitrun.Git {
	return gitrun.Git{Admin: p.common, Tree: p.common, Held: held}
}

func (p place) checkout(held *os.File) gitrun.Git {
	return gitrun.Git{Admin: p.admin, Tree: p.top, Held: held}
}

// Request asks for a train.
type Request struct {
	Folder string // in a work tree of the repository; absolute
	Branch string // empty: the branch that is checked out there

	// Still means that the branch is not going to move: the results go elsewhere, and the
	// work tree in which it is checked out may have changes.
	Still bool
}

// Begin begins a train. It finishes a merge that was interrupted, and refuses a branch
// that is checked out with changes.
func (s *Store) Begin(ctx context.Context, q Request) (_ *Train, err error) {
	defer annotate.Error(&err, "begin a merge")
	g := gitrun.Git{Dir: q.Folder}
	t := &Train{s: s, still: q.Still}
	from, err := gitrun.Find(ctx, q.Folder)
	if err != nil {
		return nil, err
	}
	t.Repo, t.at.common = from.Top, from.Common
	if err := harmless(ctx, g); err != nil {
		return nil, err
	}
	if t.at.ref, err = target(ctx, g, q.Branch); err != nil {
		return nil, err
	}
	t.Branch = strings.TrimPrefix(t.at.ref, "refs/heads/")
	if t.vars, err = identity(ctx, g); err != nil {
		return nil, err
	}
	if t.dir, t.lock, err = s.hold(ctx, t.at.common); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = t.lock.Close()
		}
	}()
	if t.Recovered, err = s.recover(ctx, t.dir, t.lock); err != nil {
		return nil, err
	}
	turn, err := s.trees.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	if t.at.admin, t.at.top, err = whereIs(ctx, t.at); err != nil {
		return nil, err
	}
	if t.Tip, err = t.at.repository(t.lock).Commit(ctx, t.at.ref); err != nil {
		return nil, err
	}
	if t.Tip == "" {
		return nil, fmt.Errorf("branch %s has no commit (make one)", t.Branch)
	}
	if !t.still {
		if err := t.at.clean(ctx, t.lock); err != nil {
			return nil, err
		}
	}
	return t, t.scratch(ctx)
}

// hold makes the folder of a repository and locks it.
func (s *Store) hold(ctx context.Context, common string) (string, *os.File, error) {
	sum := sha256.Sum256([]byte(common))
	dir := filepath.Join(s.root, hex.EncodeToString(sum[:8]))
	for _, d := range []string{s.root, dir} {
		if err := s.below().Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return dir, nil, err
		}
	}
	f, err := s.flock(ctx, dir)
	return dir, f, err
}

func (s *Store) flock(ctx context.Context, dir string) (*os.File, error) {
	ctx, done := context.WithTimeoutCause(ctx, lockWait,
		errors.New("another merge to this repository is running (see `drover ps`)"))
	defer done()
	return home.Await(ctx, func() (*os.File, error) {
		return home.LockBelow(s.below(), dir, os.O_RDONLY, 0)
	})
}

// harmless refuses a repository whose own configuration names a program that a rebase
// would run.
func harmless(ctx context.Context, g gitrun.Git) error {
	if err := g.Harmless(ctx); err != nil {
		return err
	}
	list, err := g.Fields(ctx, "config", "--local", "--includes", "--name-only", "--list", "-z")
	if err != nil {
		return err
	}
	for _, key := range list {
		if k := strings.ToLower(key); strings.HasPrefix(k, "merge.") && strings.HasSuffix(k, ".driver") {
			return fmt.Errorf("the repository's configuration sets %s, a program that git would run "+
				"(move the setting to ~/.gitconfig if you trust it)", excerpt.Line(key, 100))
		}
	}
	return nil
}

// target returns the full name of a branch.
func target(ctx context.Context, g gitrun.Git, branch string) (string, error) {
	if branch == "" {
		ref, err := g.Text(ctx, "symbolic-ref", "--quiet", "HEAD")
		if gitrun.Exited(err, 1) {
			return "", errors.New("no branch is checked out (name one with --into)")
		}
		return ref, err
	}
	ref := "refs/heads/" + strings.TrimPrefix(branch, "refs/heads/")
	oid, err := g.Commit(ctx, ref)
	if err == nil && oid == "" {
		err = fmt.Errorf("the repository has no branch %.100q", branch)
	}
	return ref, err
}

// identity returns variables for git: the user's name and address for commits, if git knows
// them, and the settings that a rebase depends on.
func identity(ctx context.Context, g gitrun.Git) ([]string, error) {
	vars := []string{"GIT_SEQUENCE_EDITOR=:"}
	for _, v := range [][2]string{{"NAME", "user.name"}, {"EMAIL", "user.email"}} {
		value, err := g.Text(ctx, "config", v[1])
		if err != nil && !gitrun.Exited(err, 1) {
			return nil, err
		}
		if value != "" {
			vars = append(vars, "GIT_AUTHOR_"+v[0]+"="+value, "GIT_COMMITTER_"+v[0]+"="+value)
		}
	}
	settings := []string{"rebase.updateRefs=false", "rebase.autoSquash=false", "rebase.autoStash=false",
		"rebase.rebaseMerges=false", "rebase.forkPoint=false", "commit.gpgSign=false", "rerere.enabled=false",
		"merge.conflictStyle=merge", "rebase.backend=merge"}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		vars = append(vars, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return append(vars, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings))), nil
}

func (t *Train) scratchAdmin() string {
	return filepath.Join(t.at.common, "worktrees", scratchBase(t.dir))
}

// scratchBase returns the name by which git knows the scratch checkout.
func scratchBase(dir string) string { return "drover-merge-" + filepath.Base(dir) }

// scratch makes the scratch checkout at the tip, and removes the remains of an earlier one.
func (t *Train) scratch(ctx context.Context) error {
	top := filepath.Join(t.dir, scratchBase(t.dir))
	if err := unscratch(t.s.below(), t.at.common, t.dir); err != nil {
		return err
	}
	t.s.step("cleared")
	_, err := t.at.repository(t.lock).Run(ctx, "worktree", "add", "--detach", "--", top, t.Tip)
	if err != nil {
		return err
	}
	t.s.step("scratch")
	at, err := os.ReadFile(filepath.Join(t.scratchAdmin(), "gitdir"))
	if err != nil || strings.TrimSpace(string(at)) != filepath.Join(top, ".git") {
		return fmt.Errorf("the repository knows the scratch checkout %s by another name (run `git worktree prune`)", top)
	}
	t.Dir = top
	return nil
}

// unscratch removes a scratch checkout, and its entry in the repository.
func unscratch(below saferoot.Dir, common, dir string) error {
	if err := below.RemoveAll(filepath.Join(dir, scratchBase(dir))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, err := os.OpenRoot(common)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return worktree.Unlist(root, scratchBase(dir))
}

// Close removes the scratch checkout and lets the next train begin.
func (t *Train) Close() error {
	ctx, done := context.WithTimeout(context.Background(), lockWait)
	defer done()
	turn, err := t.s.trees.Turn(ctx)
	if err == nil {
		err = errors.Join(unscratch(t.s.below(), t.at.common, t.dir), turn.Close())
	}
	return errors.Join(err, t.lock.Close())
}

func (t *Train) git() gitrun.Git {
	return gitrun.Git{Admin: t.scratchAdmin(), Tree: t.Dir, Held: t.lock, Vars: t.vars}
}

// Rebase rebases a change on the tip and leaves it in the scratch checkout. Uncommitted
// changes become a commit with the message. It returns the new commit for the branch;
// a [*Conflict]; or [ErrNothing].
func (t *Train) Rebase(ctx context.Context, c worktree.Change, message string) (oid string, err error) {
	defer annotate.Error(&err, "rebase the change of task %s on %s", c.Task, t.Branch)
	if c.Common != t.at.common {
		return "", fmt.Errorf("it is a change of another repository, %s (run `drover merge` there)", c.Repo)
	}
	g := t.git()
	if c.Clean {
		base, err := g.Text(ctx, "merge-base", c.Head, t.Tip)
		if err == nil && base == c.Head {
			return "", ErrNothing
		}
	}
	for _, args := range [][]string{{"reset", "-q", "--hard"}, {"clean", "-ffdq"}} { // of the last check
		if _, err := g.Run(ctx, args...); err != nil {
			return "", err
		}
	}
	from := c.Head
	if !c.Clean {
		if from, err = g.Text(ctx, "commit-tree", c.Tree, "-p", c.Head, "-m", message); err != nil {
			return "", err
		}
	}
	if _, err := g.Run(ctx, "checkout", "-q", "--force", "--detach", from); err != nil {
		return "", err
	}
	t.s.step("snapshot")
	_, err = g.Run(ctx, "rebase", "-q", "--no-verify", "--empty=drop", "--onto", t.Tip, c.Base)
	if _, ok := errors.AsType[*gitrun.Error](err); ok {
		conflict, problem := t.conflict(ctx, g)
		_, aborted := g.Run(ctx, "rebase", "--abort")
		if problem == nil && len(conflict.Files) > 0 && aborted == nil {
			return "", conflict
		}
		return "", errors.Join(err, problem)
	}
	if err != nil {
		return "", err
	}
	if oid, err = g.Commit(ctx, "HEAD"); err != nil {
		return "", err
	}
	t.s.step("rebased")
	same, err := g.Text(ctx, "rev-parse", oid+"^{tree}", t.Tip+"^{tree}")
	if err != nil {
		return "", err
	}
	if a, b, _ := strings.Cut(same, "\n"); a == b {
		return "", ErrNothing
	}
	if t.still {
		return oid, nil
	}
	return oid, t.at.free(ctx, t.lock, t.Tip, oid)
}

func (t *Train) conflict(ctx context.Context, g gitrun.Git) (*Conflict, error) {
	files, err := g.Fields(ctx, "diff", "--name-only", "--diff-filter=U", "-z")
	if err != nil {
		return nil, err
	}
	text, err := g.Run(ctx, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--diff-filter=U")
	if err != nil {
		return nil, err
	}
	if len(text) > maxConflict {
		text = append(text[:maxConflict:maxConflict], "\n[shortened]\n"...)
	}
	slices.Sort(files)
	return &Conflict{Files: slices.Compact(files), Text: strings.ToValidUTF8(string(text), "\uFFFD"), Onto: t.Tip}, nil
}

// names lists the first of some files.
func names(files []string) string {
	var out []string
	for _, f := range files[:min(len(files), maxNamed)] {
		out = append(out, excerpt.Line(f, 200))
	}
	if more := len(files) - maxNamed; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
