package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// tolerated are harmless faults of old commits, which known repositories have.
const tolerated = "zeroPaddedFilemode=ignore,missingSpaceBeforeDate=ignore,badTimezone=ignore,missingEmail=ignore"

// accept takes a pack into a repository. Until its objects are found to be well formed, within the
// limits and connected with the other objects, they are in a folder of their own, which git's own
// clean-up knows. There is at least one tip; each must be there afterwards.
func accept(ctx context.Context, g gitrun.Git, pack io.ReadSeeker, tips []string, l Limits) error {
	if err := scan(pack, len(tips[0])/2, l); err != nil {
		return fmt.Errorf("check the pack: %w", err)
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	objects, err := os.OpenRoot(filepath.Join(g.Admin, "objects"))
	if err != nil {
		return err
	}
	defer func() { _ = objects.Close() }()
	name := "tmp_objdir-drover-" + strconv.FormatUint(rand.Uint64(), 36)
	if err := objects.Mkdir(name, 0o700); err != nil {
		return err
	}
	defer func() { _ = objects.RemoveAll(name) }()
	if err := objects.Mkdir(name+"/pack", 0o700); err != nil {
		return err
	}
	q := beside(g, filepath.Join(objects.Name(), name), objects.Name())
	if err := q.Stream(ctx, pack, io.Discard, "index-pack", "--stdin", "--fix-thin", "--strict="+tolerated,
		"--max-input-size="+strconv.FormatInt(l.PackedBytes, 10)); err != nil {
		return fmt.Errorf("check the objects: %w", faulty(err))
	}
	for _, tip := range tips {
		if id, err := q.Commit(ctx, tip); err != nil || id != tip {
			return errors.Join(fmt.Errorf("commit %s is not in the pack", short(tip)), err)
		}
		if err := checkFiles(ctx, q, tip, l); err != nil {
			return err
		}
	}
	if err := connected(ctx, q, tips); err != nil {
		return err
	}
	return migrate(objects, name)
}

// faulty is an error of index-pack with the fault that it has found, which git says before.
func faulty(err error) error {
	var e *gitrun.Error
	if !errors.As(err, &e) {
		return err
	}
	for line := range strings.SplitSeq(e.All, "\n") {
		if fault, ok := strings.CutPrefix(line, "error: "); ok {
			return fmt.Errorf("%w: %s", err, excerpt.Line(fault, 300))
		}
	}
	return err
}

// connected refuses commits of which something is missing.
func connected(ctx context.Context, g gitrun.Git, tips []string) error {
	err := g.Stream(ctx, strings.NewReader(revisions(tips, nil)), io.Discard, "rev-list", "--objects", "--quiet",
		"--stdin", "--not", "--all")
	if err != nil {
		return fmt.Errorf("check that nothing is missing: %w", err)
	}
	return nil
}

func order(name string) int {
	if strings.HasSuffix(name, ".idx") {
		return 1
	}
	return 0
}

// migrate moves the packs of a folder to the others. Git takes a pack for whole when it has an
// index, which therefore comes last.
func migrate(objects *os.Root, name string) error {
	dir, err := objects.Open(name + "/pack")
	if err != nil {
		return err
	}
	files, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b string) int { return order(a) - order(b) })
	if err := objects.MkdirAll("pack", 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := objects.Rename(name+"/pack/"+f, "pack/"+f); err != nil {
			return err
		}
	}
	return nil
}
