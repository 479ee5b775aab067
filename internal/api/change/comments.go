package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

const (
	around    = 1   // lines that are quoted on both sides of one
	maxQuoted = 400 // bytes of a quoted line
)

// Comments is the message of comments on lines of a change, with the lines.
func Comments(ctx context.Context, store *worktree.Store, rec task.Record, req control.CommentRequest) (string, error) {
	if n := len(req.Comments); n == 0 || n > control.MaxComments {
		return "", invalid("the request has %d comments (send 1 to %d)", n, control.MaxComments)
	}
	c, err := find(ctx, store, rec)
	if err != nil {
		return "", err
	}
	if now := digest(c); req.Digest != "" && req.Digest != now {
		return "", control.Refuse(control.Conflict,
			fmt.Sprintf("task %s has changed its files since the diff was read: it is %s now", rec.ID, now),
			"read the diff again")
	}
	var b strings.Builder
	b.WriteString("Comments of the user on lines of your change. Take up each of them.\n")
	type version struct {
		path string
		old  bool
	}
	files := map[version][]string{}
	for i, m := range req.Comments {
		if strings.TrimSpace(m.Text) == "" || !filepath.IsLocal(m.Path) || m.Line < 0 {
			return "", invalid("comment %d names no file of the repository, no line, or has no text", i+1)
		}
		at := version{m.Path, m.Old}
		if _, ok := files[at]; !ok {
			data, err := c.Content(ctx, m.Path, m.Old)
			if errors.Is(err, fs.ErrNotExist) {
				return "", invalid("comment %d: %s is no file %s", i+1, m.Path, side(m.Old))
			}
			if err != nil {
				return "", err
			}
			files[at] = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		}
		lines := files[at]
		if m.Line > len(lines) {
			return "", invalid("comment %d: %s has %d lines %s, and no line %d", i+1, m.Path, len(lines), side(m.Old), m.Line)
		}
		fmt.Fprintf(&b, "\n%d. %s", i+1, m.Path)
		if m.Line > 0 {
			fmt.Fprintf(&b, ":%d", m.Line)
		}
		if m.Old {
			b.WriteString(" (before your change)")
		}
		b.WriteString("\n\n")
		if m.Line > 0 {
			for n := max(m.Line-around, 1); n <= min(m.Line+around, len(lines)); n++ {
				mark := " "
				if n == m.Line {
					mark = ">"
				}
				fmt.Fprintf(&b, "    %s %5d  %s\n", mark, n, quoted(lines[n-1]))
			}
			b.WriteString("\n")
		}
		b.WriteString("   " + strings.ReplaceAll(strings.TrimSpace(m.Text), "\n", "\n   ") + "\n")
	}
	if b.Len() > task.MaxMessageBytes {
		return "", invalid("the comments with their lines have %d bytes, more than the limit of %d (send them in parts)",
			b.Len(), task.MaxMessageBytes)
	}
	return b.String(), nil
}

func side(old bool) string {
	if old {
		return "before the change"
	}
	return "of the change"
}

// quoted is a line, cut between characters.
func quoted(line string) string {
	line = strings.TrimSuffix(line, "\r")
	if len(line) > maxQuoted {
		return strings.ToValidUTF8(line[:maxQuoted], "") + "…"
	}
	return valid(line)
}

func invalid(format string, args ...any) error {
	return control.Refuse(control.Invalid, fmt.Sprintf(format, args...), "")
}
