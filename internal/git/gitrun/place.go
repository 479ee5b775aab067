package gitrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// ErrNone is returned, wrapped, for a folder that is not in a repository.
var ErrNone = errors.New("it is not in a git repository")

// Place is where a folder is in a work tree.
type Place struct {
	Top    string // of the work tree
	Prefix string // the folder in it; empty: the top
	Admin  string // the administrative folder of the work tree
	Common string // the administrative folder of the repository, which all its work trees share
}

// Find returns the place of a folder.
func Find(ctx context.Context, folder string) (p Place, err error) {
	for _, ask := range []struct {
		what string
		to   *string
	}{
		{"--show-toplevel", &p.Top}, {"--show-prefix", &p.Prefix}, {"--absolute-git-dir", &p.Admin},
		{"--git-common-dir", &p.Common},
	} {
		if *ask.to, err = (Git{Dir: folder}).Text(ctx, "rev-parse", "--path-format=absolute", ask.what); err != nil {
			if said, ok := errors.AsType[*Error](err); ok && strings.Contains(said.Text, "not a git repository") {
				err = ErrNone
			}
			return p, err
		}
	}
	p.Prefix = strings.TrimSuffix(p.Prefix, "/")
	p.Common, err = filepath.EvalSymlinks(p.Common)
	return p, err
}

const maxIndex = 1 << 30 // bytes

// CopyIndex copies an index with its time: git compares the content of a file that changed within the second of its
// entry only if the index is not younger. Without an index it returns [fs.ErrNotExist].
func CopyIndex(from string, to ...string) error {
	root, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(filepath.Base(from))
	if err != nil {
		return err
	}
	data, err := untrusted.Read(root, filepath.Base(from), maxIndex)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	for _, path := range to {
		if err := home.WriteBelow(saferoot.Near(path), path, data); err != nil {
			return err
		}
		in, err := saferoot.Near(path).Root(filepath.Dir(path))
		if err != nil {
			return err
		}
		err = in.Chtimes(filepath.Base(path), info.ModTime(), info.ModTime())
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}
