package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Received is what came back, as the receiving side has found it.
type Received struct {
	Ref     string // empty: nothing was changed
	Commit  string // that Ref has
	Base    string // the snapshot: git diff Base Commit is what the task alone has changed
	Files   int    // that the task alone has changed
	Added   int    // lines
	Removed int
	Notes   []string
}

// RefPrefix begins all refs that [Receive] sets.
const RefPrefix = "refs/drover/"

// Receive stores what comes back under a ref of the repository of a folder, which begins with
// [RefPrefix]. HEAD, branches, the index and the work tree stay as they are. The manifest is as
// it was sent. It may be called again after a failure.
func Receive(
	ctx context.Context, dir string, m Manifest, r Return, ref string, l Limits, s Store,
) (got Received, err error) {
	defer annotate.Error(&err, "receive %s into %s", ref, dir)
	l = l.orDefault()
	if err := r.check(l); err != nil {
		return got, err
	}
	if err := r.answers(m); err != nil {
		return got, err
	}
	got.Base, got.Notes = m.Snapshot, slices.Clone(r.Notes)
	if r.Result == "" {
		return got, nil
	}
	if !strings.HasPrefix(ref, RefPrefix) || !branchName(strings.TrimPrefix(ref, "refs/")) {
		return got, fmt.Errorf("the ref %.100q is not one below %s", ref, RefPrefix)
	}
	repo, err := find(ctx, dir)
	if err != nil {
		return got, err
	}
	g := gitrun.Git{Admin: repo.Common, Tree: repo.Common}
	base, err := g.Commit(ctx, m.Commit)
	if err != nil {
		return got, err
	}
	if base == "" {
		return got, fmt.Errorf("the repository does not have commit %s, from which the task began"+
			" (it is another repository, or the commit was removed)", short(m.Commit))
	}
	previous, err := g.Commit(ctx, ref)
	if err != nil {
		return got, err
	}
	tips := []string{r.Result, r.Snapshot}
	if r.Head != "" {
		tips = append(tips, r.Head)
	}
	if err := fetch(ctx, g, r.Parts, tips, l, s); err != nil {
		return got, err
	}
	if err := got.measure(ctx, g, m, r, l); err != nil {
		return got, err
	}
	got.Commit = r.Result
	if previous != got.Commit {
		_, err := g.Run(ctx, "update-ref", "--create-reflog", "-m", "drover: received", ref, r.Result, previous)
		if err != nil {
			return got, err
		}
	}
	got.Ref = ref
	return got, nil
}

// answers refuses what comes back of another manifest.
func (r Return) answers(m Manifest) error {
	if r.Commit != m.Commit || r.Snapshot != m.Snapshot {
		return fmt.Errorf("it builds on commit %s and snapshot %s, and %s and %s were sent", short(r.Commit), short(r.Snapshot),
			short(m.Commit), short(m.Snapshot))
	}
	return nil
}

// fetch receives a pack into a repository, in which each tip must be then.
func fetch(ctx context.Context, g gitrun.Git, parts []Part, tips []string, l Limits, s Store) error {
	pack, remove, err := download(ctx, parts, s)
	if err != nil {
		return err
	}
	defer remove()
	return accept(ctx, g, pack, tips, l)
}

// download receives a pack into a file of its own, which remove removes.
func download(ctx context.Context, parts []Part, s Store) (pack *os.File, remove func(), err error) {
	tmp, clean, err := temporary()
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(tmp, packName)
	f, err := saferoot.Near(path).Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = receive(ctx, s, parts, f)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		clean()
		return nil, nil, err
	}
	return f, func() {
		_ = f.Close()
		clean()
	}, nil
}

// measure counts the changes of the task alone, and checks that the result builds on what was sent.
func (got *Received) measure(ctx context.Context, g gitrun.Git, m Manifest, r Return, l Limits) error {
	if err := m.verify(ctx, g); err != nil {
		return err
	}
	_, err := g.Run(ctx, "merge-base", "--is-ancestor", m.Snapshot, r.Result)
	if gitrun.Exited(err, 1) {
		return fmt.Errorf("commit %s, which comes back, is not on top of %s, which was sent", short(r.Result), short(m.Snapshot))
	}
	if err != nil {
		return err
	}
	return each(ctx, g, func(e string) error {
		added, rest, ok := strings.Cut(e, "\t")
		removed, _, ok2 := strings.Cut(rest, "\t")
		if !ok || !ok2 {
			return errors.New("git diff-tree printed something else than numbers")
		}
		if got.Files++; got.Files > 2*l.Files {
			return fmt.Errorf("more than %d files are changed, the limit", 2*l.Files)
		}
		a, _ := strconv.Atoi(added) // a binary file has no lines
		b, _ := strconv.Atoi(removed)
		got.Added += a
		got.Removed += b
		return nil
	}, "diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--numstat", "-z", m.Snapshot, r.Result)
}
