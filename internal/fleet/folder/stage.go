package folder

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/git/gitrun"
)

// special are entries of an index that are not plain files.
type special struct {
	links  []string // submodules
	hidden []string // files that git is configured to ignore changes of
	sparse bool     // some files are not checked out
}

func specials(ctx context.Context, g gitrun.Git) (s special, err error) {
	err = each(ctx, g, func(e string) error {
		head, name, _ := strings.Cut(e, "\t")
		tag, head, _ := strings.Cut(head, " ")
		switch {
		case strings.HasPrefix(head, "160000 "):
			s.links = append(s.links, name)
		case strings.EqualFold(tag, "S"):
			s.sparse = true
		case tag != strings.ToUpper(tag):
			s.hidden = append(s.hidden, name)
		}
		return nil
	}, "ls-files", "-v", "-s", "-z")
	return s, err
}

// stage takes the changed files of a work tree into an index of ours: the tracked ones that differ,
// and the files of the list. Submodules and other repositories in it stay as the index has them.
func stage(ctx context.Context, g gitrun.Git, links, untracked []string, l Limits) error {
	if _, err := g.Run(ctx, "update-index", "-q", "--refresh"); err != nil && !gitrun.Exited(err, 1) {
		return err
	}
	b := bound{top: g.Tree, limits: l}
	if err := each(ctx, g, b.add, "diff-files", "--name-only", "-z", "--ignore-submodules=all"); err != nil {
		return err
	}
	for _, name := range untracked {
		if err := b.add(name); err != nil {
			return err
		}
	}
	var specs strings.Builder
	specs.WriteString(".")
	for _, name := range links {
		specs.WriteString("\x00:(top,exclude,literal)" + name)
	}
	if err := g.Feed(ctx, strings.NewReader(specs.String()), "add", "--update", "--sparse", "--pathspec-from-file=-",
		"--pathspec-file-nul"); err != nil {
		return err
	}
	if len(untracked) == 0 {
		return nil
	}
	return g.Feed(ctx, strings.NewReader(strings.Join(untracked, "\x00")+"\x00"), "update-index", "--add", "-z", "--stdin")
}

// bound adds up the files that are about to be read.
type bound struct {
	top    string
	limits Limits
	files  int
	bytes  int64
	most   int64
	name   string // of the largest
}

func (b *bound) add(name string) error {
	info, err := os.Lstat(filepath.Join(b.top, name))
	if err != nil || info.IsDir() {
		return nil //nolint:nilerr // it is gone, which is a change as well
	}
	if t := info.Mode().Type(); t != 0 && t != fs.ModeSymlink {
		return nil // git does not take pipes and sockets
	}
	if b.files++; b.files > b.limits.Files {
		return fmt.Errorf("more than %d files are changed or new, the limit (leave out what need not travel, in a checkout by .gitignore)",
			b.limits.Files)
	}
	if info.Size() > b.most {
		b.most, b.name = info.Size(), name
	}
	if b.bytes += info.Size(); b.bytes > b.limits.UnpackedBytes {
		return fmt.Errorf("the files that are changed or new have more than %s, the limit; the largest is %q with %s"+
			" (leave it out, in a checkout by .gitignore, or raise the limit)", size(b.limits.UnpackedBytes), b.name, size(b.most))
	}
	return nil
}

// others lists untracked files, without folders that are repositories of their own, which are
// returned apart.
func others(ctx context.Context, g gitrun.Git, l Limits, args ...string) (files, nested []string, err error) {
	args = append([]string{"ls-files", "--others", "-z"}, args...)
	err = each(ctx, g, func(name string) error {
		if before, ok := strings.CutSuffix(name, "/"); ok {
			nested = append(nested, before)
			return nil
		}
		if info, err := os.Lstat(filepath.Join(g.Tree, name)); err != nil || info.Mode().Type()&^fs.ModeSymlink != 0 {
			return nil //nolint:nilerr // gone, or nothing that git takes
		}
		if files = append(files, name); len(files) > l.Files {
			return fmt.Errorf("there are more than %d untracked files, the limit (leave out what need not travel, in a checkout by .gitignore)",
				l.Files)
		}
		return nil
	}, args...)
	return files, nested, err
}

// named is a list of files for people.
func named(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i == maxNamed {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.60q", n)
	}
	return b.String()
}

// Notes are what does not travel, or travels in another form; for people.
type Notes []string

// add formats a note and shortens it. Above a number of notes it adds none.
func (notes *Notes) add(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if len(s) > maxNote {
		s = strings.ToValidUTF8(s[:maxNote-3], "") + "…"
	}
	if len(*notes) < maxNotes {
		*notes = append(*notes, s)
	}
}

// naming adds a note about files, if there are any.
func (notes *Notes) naming(format string, files []string) {
	if len(files) > 0 {
		notes.add(format, named(files))
	}
}
