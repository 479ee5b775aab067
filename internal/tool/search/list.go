package search

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/tool/confine"
)

// list returns the names of the files below a folder, relative to it and
// sorted, or "." for a place that is a file. In a repository git lists the files;
// where it knows none, such as in an ignored folder, list returns all. It returns
// at most maxListed.
func list(ctx context.Context, p confine.Place) ([]string, error) {
	root, err := p.Open()
	if err != nil {
		return nil, missing(err)
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(p.Rel)
	if err != nil {
		return nil, missing(err)
	}
	if info.Mode().IsRegular() {
		return []string{"."}, nil
	}
	if !info.IsDir() {
		return nil, errNotFile
	}
	if names := tracked(ctx, p.Path()); len(names) > 0 {
		return names, nil
	}
	return walk(ctx, root, p.Rel)
}

var errNotFile = errors.New("it is neither a file nor a folder")

func missing(err error) error {
	var e *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file or folder")
	case errors.As(err, &e):
		return e.Err
	}
	return err
}

// tracked asks git. The settings keep it from running what the repository
// names; any failure means that git does not know.
func tracked(ctx context.Context, dir string) []string {
	cmd := exec.CommandContext(ctx, "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
		"-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var names []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) > 0 && len(names) < maxListed {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // a file in conflict is listed more than once
}

func walk(ctx context.Context, root *os.Root, from string) ([]string, error) {
	var names []string
	prefix := from + "/"
	if from == "." {
		prefix = ""
	}
	err := fs.WalkDir(root.FS(), from, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil // what cannot be read holds nothing for us
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Type().IsRegular():
			names = append(names, strings.TrimPrefix(name, prefix))
		}
		if len(names) >= maxListed {
			return fs.SkipAll
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// under is the name in the root of an area of a file that list returned.
func under(p confine.Place, name string) string { return path.Join(p.Rel, name) }
