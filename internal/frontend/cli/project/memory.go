package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/memory"
)

func (a *app) memoryCommand() *cobra.Command {
	sub := func(use, short string, least, most int, run func(cmd *cobra.Command, words []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: console.Args(least, most),
			RunE: run}
	}
	// shows makes a command that prints a table, or JSON.
	shows := func(use, short string, run func(out io.Writer, asJSON bool) error) *cobra.Command {
		var asJSON bool
		cmd := sub(use, short, 0, 0, func(cmd *cobra.Command, _ []string) error { return run(cmd.OutOrStdout(), asJSON) })
		cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		return cmd
	}
	cmd := shows("memory", "Show and change the memory of this project", a.memoryShow)
	cmd.Long = "Show and change the memory of this project: files, of which MEMORY.md is the index, and the context board.\n" +
		"New sessions begin with the index and the newest notes of the board. See docs/memory.md."
	var tags []string
	add := sub("add TEXT", "Add a note to the board and print its ID", 1, -1,
		func(cmd *cobra.Command, words []string) error {
			return a.boardAdd(cmd.Context(), cmd.OutOrStdout(), strings.Join(words, " "), tags)
		})
	add.Flags().StringArrayVar(&tags, "tag", nil, "a word to find it by; may be given several times")
	board := shows("board", "Show and change the context board: short notes for new sessions", a.boardList)
	board.AddCommand(shows("list", "Show all notes, newest first", a.boardList), add,
		sub("prune ID…", "Remove notes from the board", 1, -1, func(cmd *cobra.Command, ids []string) error {
			return a.boardPrune(cmd.Context(), cmd.OutOrStdout(), ids)
		}),
	)
	cmd.AddCommand(
		shows("show", "Show the memory that new sessions begin with", a.memoryShow),
		shows("list", "List the files of memory", a.memoryList),
		sub("path", "Print the folder of memory", 0, 0, func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), a.memory().Dir())
			return err
		}),
		board, a.dreamCommand(),
	)
	return cmd
}

func (a *app) memory() *memory.Store { return memory.At(a.Root.Project(a.Cwd).Memory()) }

// shownMemory is memory as programs see it.
type shownMemory struct {
	Dir        string        `json:"dir"`
	Last       *time.Time    `json:"last_consolidation"` // null: never
	PID        int           `json:"consolidated_by_pid,omitempty"`
	Files      []memory.File `json:"files"`
	Entries    int           `json:"board_entries"`
	PromptText string        `json:"prompt_text"` // added to the prompt of new sessions
}

func (a *app) memoryShow(out io.Writer, asJSON bool) error {
	s := a.memory()
	state, err := s.State()
	if err != nil {
		return err
	}
	files, err := a.memoryFiles(s)
	if err != nil {
		return err
	}
	b, err := s.Board()
	if err != nil {
		return err
	}
	text, notes := s.Brief()
	for _, n := range notes {
		a.Hint(n)
	}
	if asJSON {
		v := shownMemory{Dir: s.Dir(), PID: state.PID, Files: append([]memory.File{}, files...), Entries: len(b.Entries),
			PromptText: text}
		if !state.Last.IsZero() {
			v.Last = &state.Last
		}
		return console.PrintJSON(out, v)
	}
	last := "never"
	if !state.Last.IsZero() {
		last = state.Last.Local().Format(time.DateTime)
	}
	if state.PID != 0 {
		last += fmt.Sprintf("; under way in process %d", state.PID)
	}
	_, err = fmt.Fprintf(out, "folder         %s\nconsolidated   %s\nfiles          %d\nboard          %d notes\n\n%s\n",
		s.Dir(), last, len(files), len(b.Entries),
		cmp.Or(excerpt.Visible(text), "Nothing is remembered yet."))
	return err
}

// memoryFiles lists the files of memory and notes what cannot be one.
func (a *app) memoryFiles(s *memory.Store) ([]memory.File, error) {
	files, problems, err := s.Files()
	for _, p := range problems {
		a.Hint(p)
	}
	return files, err
}

func (a *app) memoryList(out io.Writer, asJSON bool) error {
	files, err := a.memoryFiles(a.memory())
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintJSON(out, append([]memory.File{}, files...))
	}
	if len(files) == 0 {
		return a.Println("No files. Consolidate memory with `drover memory dream`.")
	}
	rows := [][]string{{"NAME", "BYTES", "CHANGED"}}
	for _, f := range files {
		rows = append(rows, []string{excerpt.Line(f.Name, 100), fmt.Sprint(f.Bytes), f.Changed.Local().Format(time.DateTime)})
	}
	return a.Table(rows, console.Headed)
}

func (a *app) boardList(out io.Writer, asJSON bool) error {
	b, err := a.memory().Board()
	if err != nil {
		return err
	}
	for _, p := range b.Problems {
		a.Hint(p)
	}
	if asJSON {
		return console.PrintJSON(out, append([]memory.Entry{}, b.Entries...))
	}
	if len(b.Entries) == 0 {
		return a.Println("No notes. Add one with `drover memory board add TEXT`.")
	}
	rows := [][]string{{"ID", "BY", "NOTE"}}
	for _, e := range slices.Backward(b.Entries) {
		rows = append(rows, []string{excerpt.Line(e.ID, 40), cmp.Or(excerpt.Line(e.By, 24), "-"),
			excerpt.Line(e.Line(), 100)})
	}
	return a.Table(rows, console.Headed)
}

func (a *app) boardAdd(ctx context.Context, out io.Writer, text string, tags []string) error {
	if err := a.Root.Project(a.Cwd).Ensure(); err != nil {
		return err
	}
	e, err := a.memory().Add(ctx, "user", text, tags...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, e.ID)
	return err
}

func (a *app) boardPrune(ctx context.Context, out io.Writer, ids []string) error {
	gone, err := a.memory().Prune(ctx, ids...)
	if errors.Is(err, memory.ErrNoEntry) {
		return console.Missing(err.Error(), "see `drover memory board`")
	}
	if err != nil {
		return err
	}
	for _, e := range gone {
		fmt.Fprintf(out, "%s  %s\n", e.ID, excerpt.Line(e.Line(), 100))
	}
	return nil
}

func (a *app) dreamCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use: "dream", Short: "Consolidate memory now",
		Long: "Run an agent that reads the conversations since the last consolidation and updates memory. It can read\n" +
			"transcripts and change memory, and nothing else. Only one runs at a time; `drover ps` lists it and\n" +
			"`drover stop` ends it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := control.StartRequest{Dream: &control.DreamRequest{}, Env: a.Env, Cwd: a.Cwd}
			if detach {
				return a.PrintDetached(cmd.Context(), r)
			}
			return a.dream(cmd.Context(), r)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "in the detached host; print its ID")
	return cmd
}

// dream consolidates in a session of its own, in this process.
func (a *app) dream(ctx context.Context, r control.StartRequest) error {
	return a.InSession(ctx, console.Opening{Title: "consolidate memory"}, func(ctx context.Context, s control.API) error {
		rec, err := a.StartOne(ctx, s, r)
		if err != nil {
			return err
		}
		text, err := a.AnswerOf(ctx, s, rec.ID)
		if err != nil {
			return err
		}
		return a.PrintReply(text)
	})
}
