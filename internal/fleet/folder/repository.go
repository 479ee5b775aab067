package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// repository is a checkout of the user.
type repository struct {
	gitrun.Place
	git    gitrun.Git
	format string
	head   string
	branch string
}

// find finds the checkout of a folder.
func find(ctx context.Context, dir string) (r repository, err error) {
	if r.Place, err = gitrun.Find(ctx, dir); err != nil {
		return r, err
	}
	r.git = gitrun.Git{Admin: r.Admin, Tree: r.Top}
	r.format, err = r.git.Text(ctx, "rev-parse", "--show-object-format")
	return r, err
}

// open is find for a checkout whose files are read, which must be safe and have a commit.
func open(ctx context.Context, dir string) (r repository, err error) {
	if r, err = find(ctx, dir); err != nil {
		return r, err
	}
	if err := r.git.Harmless(ctx); err != nil {
		return r, err
	}
	if r.head, err = r.git.Commit(ctx, "HEAD"); err != nil {
		return r, err
	}
	if r.head == "" {
		return r, errors.New("the repository has no commit (make one)")
	}
	ref, err := r.git.Text(ctx, "symbolic-ref", "--quiet", "HEAD")
	if err != nil && !gitrun.Exited(err, 1) {
		return r, err
	}
	r.branch = strings.TrimPrefix(ref, "refs/heads/")
	return r, nil
}

// Identify returns the identity of the repository of a folder: its first commit. Clones have the
// same; a shallow clone has the commit at which its history ends. It returns [gitrun.ErrNone] for a
// folder without a repository.
func Identify(ctx context.Context, dir string) (string, error) {
	r, err := open(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("identify the repository of %s: %w", dir, err)
	}
	return r.identity(ctx)
}

func (r repository) identity(ctx context.Context) (string, error) {
	return r.git.Text(ctx, "rev-list", "--first-parent", "--max-parents=0", "--end-of-options", r.head)
}

// shallow lists the commits at which the history ends.
func (r repository) shallow() ([]string, error) {
	list, err := shallowOf(r.Common)
	if len(list) > maxShallow {
		return nil, fmt.Errorf("it is a shallow clone whose history ends at %d commits, the limit is %d (run: git fetch --unshallow)",
			len(list), maxShallow)
	}
	return list, err
}

// shallowOf reads the commits at which the history of a repository ends.
func shallowOf(admin string) ([]string, error) {
	root, err := os.OpenRoot(admin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	data, err := untrusted.Read(root, shallowName, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(data)), err
}

func writeShallow(admin string, list []string) error {
	if len(list) == 0 {
		return nil
	}
	path := filepath.Join(admin, shallowName)
	return home.WriteBelow(saferoot.Near(path), path, []byte(strings.Join(list, "\n")+"\n"))
}

const shallowName = "shallow" // in the folder of a repository

// partial reports whether objects may be missing, to be fetched when they are needed.
func (r repository) partial(ctx context.Context) (bool, error) {
	out, err := r.git.Text(ctx, "config", "--get-regexp", `^(remote\..*\.promisor|extensions\.partialclone)$`)
	if gitrun.Exited(err, 1) {
		return false, nil
	}
	return out != "", err
}

// user is who commits here, if that is known.
func (r repository) user(ctx context.Context) (name, mail string) {
	for key, to := range map[string]*string{"user.name": &name, "user.email": &mail} {
		if text, err := r.git.Text(ctx, "config", "--get", key); err == nil && identity(text) {
			*to = text
		}
	}
	return name, mail
}

// beside is git with all objects that it writes kept in a folder of ours, and those of some
// repositories to read.
func beside(g gitrun.Git, dir string, objects ...string) gitrun.Git {
	for i, path := range objects {
		objects[i] = quotePath(path)
	}
	g.Vars = append(slices.Clone(g.Vars), "GIT_OBJECT_DIRECTORY="+dir,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+strings.Join(objects, ":"))
	return g
}

// quotePath is a path as lists of object directories have it: the list is separated by colons, and
// an entry that begins with a quote is quoted as in C.
func quotePath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// lines passes on what git prints, entry by entry.
type lines struct {
	end  byte // of an entry
	each func(string) error
	rest []byte
}

// maxEntry is the longest entry that is read.
const maxEntry = 1 << 20

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	begin := 0
	for i := len(l.rest) - len(p); i < len(l.rest); i++ {
		if l.rest[i] == l.end {
			if err := l.each(string(l.rest[begin:i])); err != nil {
				return 0, err
			}
			begin = i + 1
		}
	}
	l.rest = append(l.rest[:0], l.rest[begin:]...)
	if len(l.rest) > maxEntry {
		return 0, errors.New("git printed an entry of more than 1 MiB")
	}
	return len(p), nil
}

// each calls git and passes on its output, entry by entry, each ended with a NUL.
func each(ctx context.Context, g gitrun.Git, do func(string) error, args ...string) error {
	return g.Stream(ctx, nil, &lines{end: 0, each: do}, args...)
}

// checkFiles refuses a commit whose files are too many or too large. It follows no tree further
// than the limits, however often one tree holds another.
func checkFiles(ctx context.Context, g gitrun.Git, commit string, l Limits) error {
	files, bytes := 0, int64(0)
	return each(ctx, g, func(e string) error {
		head, name, _ := strings.Cut(e, "\t")
		fields := strings.Fields(head)
		if len(fields) == 4 && fields[3] != "-" {
			n, err := strconv.ParseInt(fields[3], 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("%q has no valid size", name)
			}
			bytes += n
		}
		switch files++; {
		case files > l.Files:
			return fmt.Errorf("commit %s has more than %d files, the limit", short(commit), l.Files)
		case bytes > l.UnpackedBytes:
			return fmt.Errorf("the files of commit %s have more than %s, the limit (reached at %q)", short(commit), size(l.UnpackedBytes), name)
		}
		return nil
	}, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
}
