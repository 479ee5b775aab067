package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

func (a *app) diff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [--stat | --json] REF [PATH…]",
		Short: "Show what an agent has changed in its worktree",
		Long: "Show what an agent with `isolation: worktree` has changed against the commit that its worktree began at: its\n" +
			"commits, what it has not committed, and new files that git does not ignore. The agent may be running. If the\n" +
			"worktree is gone, the change is that of its branch or its rescue ref. A PATH is a file or folder from the top\n" +
			"of the repository.\n\n" +
			"The output is a patch. To a pipe it is complete, with binary files, so that `git apply` takes it; on a terminal\n" +
			"it has colors, and invisible characters are marked. --json has the files, hunks and lines with their numbers.",
		Args:              takes(1, -1),
		ValidArgsFunction: a.completeTasks(true),
	}
	f := cmd.Flags()
	stat := f.Bool("stat", false, "only the files and how many lines of each were changed")
	asJSON := f.Bool("json", false, "print JSON; with --stat without the lines")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		req := control.DiffRequest{Paths: words[1:], Stat: *stat, Patch: !*stat && !*asJSON}
		d, err := a.readDiff(cmd.Context(), words[0], *all, req)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return a.printIndented(d)
		case *stat:
			return a.diffStat(d)
		}
		return a.patch(d)
	}
	return cmd
}

// readDiff asks the session of a task for its change.
func (a *app) readDiff(ctx context.Context, word string, all bool, req control.DiffRequest) (control.Diff, error) {
	found, err := a.resolve(ctx, word, all)
	if err != nil {
		return control.Diff{}, err
	}
	api, done, err := found.open(ctx)
	if err != nil {
		return control.Diff{}, err
	}
	defer done()
	req.Ref = string(found.record.ID)
	d, err := api.Diff(ctx, req)
	if err != nil {
		return d, fmt.Errorf("read the diff of %s: %w", found.record.ID, err)
	}
	return d, nil
}

// diffStat prints a line for each file and one for all.
func (a *app) diffStat(d control.Diff) error {
	rows := make([][]string, 0, len(d.Files))
	for _, f := range d.Files {
		lines := fmt.Sprintf("+%d -%d", f.Added, f.Removed)
		if f.Binary {
			lines = "binary"
		}
		name := excerpt.Line(f.Path, 500)
		if f.OldPath != "" {
			name = excerpt.Line(f.OldPath, 500) + " → " + name
		}
		rows = append(rows, []string{f.Status, lines, name})
	}
	if err := a.table(rows, nil); err != nil {
		return err
	}
	text := fmt.Sprintf("%s changed, +%d -%d", several(d.Count, "file"), d.Added, d.Removed)
	if !d.Clean {
		text += ", with what is not committed"
	}
	if more := d.Count - len(d.Files); more > 0 {
		text += fmt.Sprintf("; %d of them are not listed", more)
	}
	_, err := fmt.Fprintln(a.Stdout, text)
	return err
}

// patch prints a patch, for a terminal in colours.
func (a *app) patch(d control.Diff) error {
	var out bytes.Buffer
	text := d.Patch
	if a.IsTerminal(a.Stdout) {
		colour, header := a.colored(), false
		for line := range strings.Lines(string(d.Patch)) {
			header = strings.HasPrefix(line, "diff --git ") || header && !strings.HasPrefix(line, "@@ ")
			plain := excerpt.Plain(line)
			if code := shade(line, header); colour && code != "" {
				plain = "\x1b[" + code + "m" + strings.TrimSuffix(plain, "\n") + "\x1b[0m\n"
			}
			out.WriteString(plain)
		}
		text = out.Bytes()
	}
	if _, err := a.Stdout.Write(text); err != nil {
		return err
	}
	if d.Cut {
		return &ExitError{Code: 1, Err: errors.New("print the diff: it has more than 8 MiB, and the rest was left out " +
			"(give paths; `--stat` lists them)")}
	}
	return nil
}

// shade is the color of a line of a patch; empty: none.
func shade(line string, header bool) string {
	switch {
	case header:
		return "1"
	case strings.HasPrefix(line, "@@ "):
		return "36"
	case strings.HasPrefix(line, "+"):
		return "32"
	case strings.HasPrefix(line, "-"):
		return "31"
	}
	return ""
}
