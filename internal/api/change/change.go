// Package change shows clients the changes of a task in its worktree: files
// with hunks, within bounds, and the text of comments on their lines. It reads what
// package worktree finds, and starts nothing.
package change

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

// maxPaths limits the paths of a request.
const maxPaths = 1000

// Read returns the changes of a task. Store is nil if no task of the session can have a
// worktree.
func Read(ctx context.Context, store *worktree.Store, rec task.Record, req control.DiffRequest) (control.Diff, error) {
	for _, p := range req.Paths {
		if !filepath.IsLocal(p) {
			return control.Diff{}, control.Refuse(control.Invalid, fmt.Sprintf("path %.200q is not one of the repository", p),
				"give paths from its top folder")
		}
	}
	if len(req.Paths) > maxPaths {
		return control.Diff{}, control.Refuse(control.Invalid,
			fmt.Sprintf("the request has %d paths, more than the limit of %d", len(req.Paths), maxPaths), "name folders")
	}
	c, err := find(ctx, store, rec)
	if err != nil {
		return control.Diff{}, err
	}
	files, err := c.Files(ctx, req.Paths)
	if err != nil {
		return control.Diff{}, err
	}
	d := control.Diff{Task: rec.ID, Repo: c.Repo, Path: c.Path, Branch: c.Branch, From: c.From, Base: c.Base, Head: c.Head,
		Clean: c.Clean, Digest: digest(c), Count: len(files), Files: []control.DiffFile{}}
	for i, f := range files {
		d.Added, d.Removed = d.Added+f.Added, d.Removed+f.Removed
		if d.Cut = i >= control.MaxDiffFiles; !d.Cut {
			d.Files = append(d.Files, control.DiffFile{Path: valid(f.Path), OldPath: valid(f.OldPath), Status: f.Status,
				Binary: f.Binary, Added: f.Added, Removed: f.Removed})
		}
	}
	if req.Stat || len(files) == 0 {
		return d, nil
	}
	patch, err := c.Patch(ctx, req.Paths, req.Patch)
	var failed *gitrun.Error
	if err != nil && errors.As(err, &failed) {
		return d, err
	}
	if err != nil {
		return d, control.Refuse(control.TooLarge, err.Error(), "name some of its paths")
	}
	if req.Patch {
		d.Patch, d.Cut = limited(patch)
		return d, nil
	}
	hunks(&d, patch)
	return d, nil
}

// find looks for the change; without one its error says what to do.
func find(ctx context.Context, store *worktree.Store, rec task.Record) (worktree.Change, error) {
	gone := control.Refuse(control.NotFound, fmt.Sprintf("task %s has no change of its own: it had no worktree", rec.ID),
		"agents have one with `--isolation worktree`")
	if store == nil {
		return worktree.Change{}, gone
	}
	c, err := store.Change(ctx, rec.ID, rec.Cwd)
	if errors.Is(err, worktree.ErrGone) {
		if rec.Worktree != nil {
			gone.Message = fmt.Sprintf("task %s has no change of its own: its worktree, branch and copy are gone", rec.ID)
			gone.Fix = "what it has changed was merged or removed"
		}
		return c, gone
	}
	return c, err
}

// digest names a state of the change.
func digest(c worktree.Change) string { return c.Base[:min(12, len(c.Base))] + ".." + c.Tree }

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// limited cuts a patch between two files.
func limited(patch []byte) ([]byte, bool) {
	if len(patch) <= control.MaxPatch {
		return patch, false
	}
	cut := 0
	for _, p := range split(string(patch)) {
		if cut+len(p) > control.MaxPatch {
			break
		}
		cut += len(p)
	}
	return patch[:cut], true
}

const fileMark = "diff --git "

// split cuts a patch into the patches of its files: no line of their content begins as a header does.
func split(patch string) []string {
	var out []string
	for patch != "" {
		end := len(patch)
		if i := strings.Index(patch, "\n"+fileMark); i >= 0 {
			end = i + 1
		}
		out, patch = append(out, patch[:end]), patch[end:]
	}
	return out
}

// hunks gives each file its hunks, as far as the limit goes.
func hunks(d *control.Diff, patch []byte) {
	left := control.MaxDiffLines
	parts := split(string(patch))
	for i := range d.Files {
		if i >= len(parts) {
			return
		}
		f := &d.Files[i]
		f.Hunks, f.Cut = parse(parts[i], left)
		for _, h := range f.Hunks {
			left -= len(h.Lines)
		}
		d.Cut = d.Cut || f.Cut
	}
}

// parse reads the hunks of one file. It leaves out a hunk that has more than most lines, and
// all after it.
func parse(patch string, most int) (list []control.DiffHunk, cut bool) {
	var at *control.DiffHunk
	oldLine, newLine, lines := 0, 0, 0
	for line := range strings.Lines(patch) {
		text := strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(text, "@@ ") {
			h := header(text)
			list = append(list, h)
			at, oldLine, newLine = &list[len(list)-1], h.OldStart, h.NewStart
			continue
		}
		if at == nil || strings.HasPrefix(text, "\\") {
			continue
		}
		if text == "" { // an empty line as diff.suppressBlankEmpty has it
			text = " "
		}
		if lines++; lines > most {
			return list[:len(list)-1], true
		}
		l := control.DiffLine{Kind: text[:1], Text: text[1:]}
		if len(l.Text) > control.MaxDiffLine {
			l.Text, cut = l.Text[:control.MaxDiffLine], true
		}
		l.Text = valid(l.Text)
		if l.Kind != "+" {
			l.Old, oldLine = oldLine, oldLine+1
		}
		if l.Kind != "-" {
			l.New, newLine = newLine, newLine+1
		}
		at.Lines = append(at.Lines, l)
	}
	return list, cut
}

// header reads a line such as @@ -1,3 +1,4 @@ func main() {
func header(line string) (h control.DiffHunk) {
	numbers, section, _ := strings.Cut(strings.TrimPrefix(line, "@@ "), " @@")
	h.Section = valid(strings.TrimSpace(section))
	before, after, _ := strings.Cut(numbers, " ")
	h.OldStart, h.OldLines = span(strings.TrimPrefix(before, "-"))
	h.NewStart, h.NewLines = span(strings.TrimPrefix(after, "+"))
	return h
}

// span reads 3,4 or, for one line, 3.
func span(text string) (start, lines int) {
	first, count, several := strings.Cut(text, ",")
	start, _ = strconv.Atoi(first) // git's own digits
	if lines = 1; several {
		lines, _ = strconv.Atoi(count)
	}
	return start, lines
}
