package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

func (a *app) diff() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [--stat | --json] REF [PATH…] | diff REF --comment FILE:LINE TEXT… | diff --comments FILE REF",
		Long: "Show what an agent with `isolation: worktree` has changed against the commit that its worktree began at: its\n" +
			"commits, what it has not committed, and new files that git does not ignore. The agent may be running. If the\n" +
			"worktree is gone, the change is that of its branch or its rescue ref. A PATH is a file or folder from the top\n" +
			"of the repository.\n\n" +
			"The output is a patch. To a pipe it is complete, with binary files, so that `git apply` takes it; on a terminal\n" +
			"it has colors, and invisible characters are marked. --json has the files, hunks and lines with their numbers.\n\n" +
			"--comment, with the text as the next word, says something about a line to the agent, FILE:-LINE about one before\n" +
			"the change, and FILE about the whole file. All comments go to the agent as one message with the lines; an agent\n" +
			"that has ended gets a further run. --comments reads them from a file as a JSON array of {path, line, old, text},\n" +
			"or an object {digest, comments}: with the digest of the diff that you read, nothing is sent if it has changed.",
		Args:              console.Args(1, -1),
		ValidArgsFunction: a.CompleteTasks(true),
	}
	f := cmd.Flags()
	stat := f.Bool("stat", false, "only the files and how many lines of each were changed")
	asJSON := f.Bool("json", false, "print JSON; with --stat without the lines")
	on := f.StringArray("comment", nil, "comment on this `PLACE`, FILE:LINE, with the text as a further word; repeatable")
	file := f.String("comments", "", "send the comments in this JSON `FILE`; -: stdin")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if len(*on) > 0 || *file != "" {
			comments, err := a.comments(*on, words[1:], *file)
			if err != nil {
				return err
			}
			return a.comment(cmd.Context(), words[0], *all, *asJSON, comments)
		}
		req := control.DiffRequest{Paths: words[1:], Stat: *stat, Patch: !*stat && !*asJSON}
		d, err := a.readDiff(cmd.Context(), words[0], *all, req)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return console.PrintJSON(a.Stdout, d)
		case *stat:
			return a.diffStat(d)
		}
		return a.patch(d)
	}
	return cmd
}

// readDiff asks the session of a task for its change.
func (a *app) readDiff(ctx context.Context, word string, all bool, req control.DiffRequest) (control.Diff, error) {
	found, err := a.Resolve(ctx, word, all)
	if err != nil {
		return control.Diff{}, err
	}
	req.Ref = string(found.Record.ID)
	d, err := console.Ask(ctx, found.Open, func(api control.API) (control.Diff, error) { return api.Diff(ctx, req) })
	if err != nil {
		return d, fmt.Errorf("read the diff of %s: %w", found.Record.ID, err)
	}
	return d, nil
}

// maxCommentFile is the most that a file with comments may hold.
const maxCommentFile = 1 << 20

// comments reads the comments of the flags, each with its text, or of a file.
func (a *app) comments(on, texts []string, file string) (req control.CommentRequest, err error) {
	if file != "" {
		if len(on)+len(texts) > 0 {
			return req, console.Usage("--comments is mutually exclusive with --comment and further words", "give one of them")
		}
		data, err := a.ReadFile(file, maxCommentFile)
		if err != nil {
			return req, fmt.Errorf("read the comments in %s: %w", file, err)
		}
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
			err = json.Unmarshal(data, &req.Comments)
		} else {
			err = json.Unmarshal(data, &req)
		}
		if err != nil {
			return req, console.Usage(fmt.Sprintf("--comments %s: %v", file, err),
				"write a JSON array of {path, line, old, text}")
		}
		return req, nil
	}
	if len(on) != len(texts) {
		return req, console.Usage(fmt.Sprintf("%s and %s", console.Plural(len(on), "--comment"),
			console.Plural(len(texts), "text")),
			`give each a text, as in drover diff a1b2c3d4e --comment main.go:12 "why?"`)
	}
	for i, place := range on {
		c := control.LineComment{Path: place, Text: texts[i]}
		if cut := strings.LastIndexByte(place, ':'); cut > 0 {
			if n, err := strconv.Atoi(place[cut+1:]); err == nil && n != 0 {
				c.Path, c.Line, c.Old = place[:cut], max(n, -n), n < 0
			}
		}
		req.Comments = append(req.Comments, c)
	}
	return req, nil
}

// comment sends comments to the agent of a task, and prints its ID.
func (a *app) comment(ctx context.Context, word string, all, asJSON bool, req control.CommentRequest) error {
	var rec task.Record
	err := console.Taken(ctx, func() (console.Session, error) {
		f, err := a.Resolve(ctx, word, all)
		if err != nil {
			return nil, err
		}
		api, done, err := a.OpenToResume(ctx, f)
		if err != nil {
			return f.Session, err
		}
		defer done()
		req.Ref, req.Env = string(f.Record.ID), a.Env
		if rec, err = api.Comment(ctx, req); err != nil {
			err = fmt.Errorf("comment on the diff of %s: %w", f.Record.ID, err)
		}
		return f.Session, err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintJSON(a.Stdout, rec)
	}
	return a.Println(rec.ID)
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
	if err := a.Table(rows, nil); err != nil {
		return err
	}
	text := fmt.Sprintf("%s changed, +%d -%d", console.Plural(d.Count, "file"), d.Added, d.Removed)
	if !d.Clean {
		text += ", with what is not committed"
	}
	if more := d.Count - len(d.Files); more > 0 {
		text += fmt.Sprintf("; %d of them are not listed", more)
	}
	return a.Println(text)
}

// patch prints a patch, for a terminal in colours.
func (a *app) patch(d control.Diff) error {
	var out bytes.Buffer
	text := d.Patch
	if a.IsTerminal(a.Stdout) {
		colour, header := a.Colored(), false
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
		return &console.ExitError{Code: 1,
			Err: errors.New("print the diff: it has more than 8 MiB, and the rest was left out " +
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
