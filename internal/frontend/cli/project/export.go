package project

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Form is how a conversation is exported.
type Form string

// The forms.
const (
	Markdown Form = "md"    // for people
	JSONL    Form = "jsonl" // the transcript as it is, a line for each entry
	JSON     Form = "json"  // the same as one array
)

func (a *app) sessionsExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [--format md|jsonl|json] [-o FILE] [--all-sessions] SESSION",
		Short: "Export the conversation of a session as Markdown or JSON",
		Long: "Write the conversation of a session's main agent. The session may be live. Markdown shortens the input and\n" +
			"output of tools; jsonl is the whole transcript as stored (see docs/transcript.md).\n" +
			"An existing file is never overwritten.",
		Args: console.Args(1, 1),
	}
	cmd.ValidArgsFunction = a.CompleteSessions(func(control.Info) bool { return true })
	format := cmd.Flags().String("format", string(Markdown), "md, jsonl or json")
	file := cmd.Flags().StringP("output", "o", "", "a new file instead of stdout")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		form := Form(*format)
		if !slices.Contains([]Form{Markdown, JSONL, JSON}, form) {
			return console.Usage(fmt.Sprintf("--format %q: unknown format", *format), "use md, jsonl or json")
		}
		info, err := a.pick(cmd.Context(), words[0], *all)
		if err != nil {
			return err
		}
		write := func(w io.Writer) error {
			err := a.Export(cmd.Context(), w, info, form)
			if errors.Is(err, fs.ErrNotExist) {
				return console.Missing(fmt.Sprintf("session %s has no conversation", info.Session),
					"see `drover ps -a` for its tasks")
			}
			return err
		}
		if *file == "" && form != Markdown && a.IsTerminal(a.Stdout) {
			out := &quiet{w: a.Stdout}
			return errors.Join(write(out), out.flush())
		}
		if *file == "" {
			return write(a.Stdout)
		}
		path := a.Path(*file)
		return console.NewFile(path, write)
	}
	return cmd
}

// quiet writes JSON to a terminal, a line at a time.
type quiet struct {
	w    io.Writer
	line []byte // that has begun
}

func (q *quiet) Write(data []byte) (int, error) {
	q.line = append(q.line, data...)
	end := bytes.LastIndexByte(q.line, '\n') + 1
	whole := q.line[:end]
	q.line = slices.Clone(q.line[end:])
	_, err := q.w.Write(excerpt.JSON(whole))
	return len(data), err
}

func (q *quiet) flush() error {
	_, err := q.w.Write(excerpt.JSON(q.line))
	return err
}
