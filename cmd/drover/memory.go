package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/agentenv/memory"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// memoryCommand shows and changes what is remembered of this folder.
func (w *world) memoryCommand() *cobra.Command {
	sub := func(use, short string, least, most int, run func(cmd *cobra.Command, words []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: todoWords(least, most), ValidArgsFunction: cobra.NoFileCompletions, RunE: run}
	}
	// shows makes a command that prints a table, or JSON.
	shows := func(use, short string, run func(out io.Writer, asJSON bool) error) *cobra.Command {
		var asJSON bool
		cmd := sub(use, short, 0, 0, func(cmd *cobra.Command, _ []string) error { return run(cmd.OutOrStdout(), asJSON) })
		cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
		return cmd
	}
	cmd := shows("memory", "What is remembered of this folder from session to session", w.memoryShow)
	cmd.Long = "Show and change what is remembered of this folder: files of which MEMORY.md is the index, and the context board.\n" +
		"New sessions begin with the index and the newest notes of the board. See docs/memory.md."
	var tags []string
	add := sub("add TEXT", "Put a note on the board, and print its ID", 1, -1, func(cmd *cobra.Command, words []string) error {
		return w.boardAdd(cmd.Context(), cmd.OutOrStdout(), strings.Join(words, " "), tags)
	})
	add.Flags().StringArrayVar(&tags, "tag", nil, "a word to find it by; may be given several times")
	board := shows("board", "The context board: short notes that new sessions begin with", w.boardList)
	board.AddCommand(shows("list", "Show all notes, newest first", w.boardList), add,
		sub("prune ID…", "Take notes off the board", 1, -1, func(cmd *cobra.Command, ids []string) error {
			return w.boardPrune(cmd.Context(), cmd.OutOrStdout(), ids)
		}),
	)
	cmd.AddCommand(
		shows("show", "Show what new sessions begin with, and when it was consolidated", w.memoryShow),
		shows("list", "List the files of memory", w.memoryList),
		sub("path", "Print the folder of memory", 0, 0, func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), w.memory().Dir())
			return err
		}),
		board, w.dreamCommand(),
	)
	return cmd
}

func (w *world) memory() *memory.Store { return memory.At(w.root.Project(w.cwd).Memory()) }

// shownMemory is memory as programs see it.
type shownMemory struct {
	Dir     string        `json:"dir"`
	Last    *time.Time    `json:"last_consolidation"` // null: never
	PID     int           `json:"consolidated_by_pid,omitempty"`
	Files   []memory.File `json:"files"`
	Entries int           `json:"board_entries"`
	Told    string        `json:"told"` // to new sessions
}

func (w *world) memoryShow(out io.Writer, asJSON bool) error {
	s := w.memory()
	state, err := s.State()
	if err != nil {
		return err
	}
	files, err := w.memoryFiles(s)
	if err != nil {
		return err
	}
	b, err := s.Board()
	if err != nil {
		return err
	}
	text, notes := s.Brief()
	for _, n := range notes {
		w.note(n)
	}
	if asJSON {
		v := shownMemory{Dir: s.Dir(), PID: state.PID, Files: append([]memory.File{}, files...), Entries: len(b.Entries), Told: text}
		if !state.Last.IsZero() {
			v.Last = &state.Last
		}
		return printAgentJSON(out, v)
	}
	last := "never"
	if !state.Last.IsZero() {
		last = state.Last.Local().Format(time.DateTime)
	}
	if state.PID != 0 {
		last += fmt.Sprintf("; under way in process %d", state.PID)
	}
	_, err = fmt.Fprintf(out, "folder         %s\nconsolidated   %s\nfiles          %d\nboard          %d notes\n\n%s\n", s.Dir(), last, len(files), len(b.Entries),
		cmp.Or(excerpt.Visible(text), "Nothing is remembered yet."))
	return err
}

// memoryFiles tells of what cannot be a file of memory.
func (w *world) memoryFiles(s *memory.Store) ([]memory.File, error) {
	files, problems, err := s.Files()
	for _, p := range problems {
		w.note(p)
	}
	return files, err
}

func (w *world) memoryList(out io.Writer, asJSON bool) error {
	files, err := w.memoryFiles(w.memory())
	if err != nil {
		return err
	}
	if asJSON {
		return printAgentJSON(out, append([]memory.File{}, files...))
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tBYTES\tCHANGED")
	for _, f := range files {
		fmt.Fprintf(tw, "%s\t%d\t%s\n", excerpt.Line(f.Name, 100), f.Bytes, f.Changed.Local().Format(time.DateTime))
	}
	return tw.Flush()
}

func (w *world) boardList(out io.Writer, asJSON bool) error {
	b, err := w.memory().Board()
	if err != nil {
		return err
	}
	for _, p := range b.Problems {
		w.note(p)
	}
	if asJSON {
		return printAgentJSON(out, append([]memory.Entry{}, b.Entries...))
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tBY\tNOTE")
	for i := len(b.Entries) - 1; i >= 0; i-- {
		e := b.Entries[i]
		fmt.Fprintf(tw, "%s\t%s\t%s\n", excerpt.Line(e.ID, 40), cmp.Or(excerpt.Line(e.By, 24), "-"), excerpt.Line(e.Line(), 100))
	}
	return tw.Flush()
}

func (w *world) boardAdd(ctx context.Context, out io.Writer, text string, tags []string) error {
	if err := w.root.Project(w.cwd).Ensure(); err != nil {
		return err
	}
	e, err := w.memory().Add(ctx, "user", text, tags...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, e.ID)
	return err
}

func (w *world) boardPrune(ctx context.Context, out io.Writer, ids []string) error {
	gone, err := w.memory().Prune(ctx, ids...)
	if errors.Is(err, memory.ErrNoEntry) {
		return &control.Error{Code: control.NotFound, Message: err.Error(), Mend: "see `drover memory board`"}
	}
	if err != nil {
		return err
	}
	for _, e := range gone {
		fmt.Fprintf(out, "%s  %s\n", e.ID, excerpt.Line(e.Line(), 100))
	}
	return nil
}

func (w *world) dreamCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use: "dream", Short: "Consolidate memory now",
		Long: "Let an agent go over the conversations since the last time, and bring what was learnt into memory. It can read\n" +
			"transcripts and change memory, and nothing else. There is one at a time; `drover ps` shows it, `drover stop` ends it.",
		Args: todoWords(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := control.StartRequest{Dream: &control.DreamRequest{}, Env: w.env, Cwd: w.cwd}
			if detach {
				return w.agentDetached(cmd.Context(), r)
			}
			return w.dream(cmd.Context(), r)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "in the detached host; print its ID")
	return cmd
}

// dream consolidates in a session of its own, in this process.
func (w *world) dream(ctx context.Context, r control.StartRequest) error {
	set, err := w.settings("")
	if err != nil {
		return err
	}
	exe, err := program()
	if err != nil {
		return err
	}
	s, err := assemble.Open(ctx, assemble.Config{Root: w.root, Folder: w.cwd, Role: session.RoleRun, Title: "consolidate memory", Version: version, Env: w.env,
		Settings: set, Keeper: []string{exe, "keeper", "--helper"}, Tell: func(_ task.ID, text string) { w.note(text) }})
	if err != nil {
		return err
	}
	s.Serve()
	text, err := ask(ctx, s, r)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, strings.TrimRight(excerpt.Plain(text), "\n"))
	return err
}

// part leaves an agent behind that brings what a conversation has taught to the
// board, if that is wanted. That it cannot be left is told, and hinders nothing.
func (w *world) part(m *session.Main) {
	p, ok := m.Parting(home.Lookup(w.env))
	if !ok {
		return
	}
	exe, err := program()
	if err == nil {
		err = w.leave(exe, p)
	}
	if err != nil {
		w.note(fmt.Sprintf("what this conversation has taught is not consolidated: %v", err))
	}
}

// leave starts a process that hands the agent over to the detached host and
// outlives this one. The conversation is on its stdin, where nobody can read it
// from a list of processes.
func (w *world) leave(exe string, p session.Parting) error {
	project := w.root.Project(w.cwd)
	dir, err := w.root.Below().Folder(project.Dir())
	if err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	defer dir.Close()
	in, err := dir.Temporary(".parting-")
	if err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	defer in.Close()
	if err := dir.Remove(filepath.Base(in.Name())); err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	if _, err := in.WriteString(p.Prompt); err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	log, err := dir.Open("rem.log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(exe, "agent", "run", "rem-agent", "--detach", "--name", "rem-consolidate", "--permission-mode", "dontAsk", "-")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.cwd, in, log, log
	cmd.Env = append(host.HostEnv(w.env), session.ParentVariable+"="+string(p.Session), parentTranscript+"="+p.Transcript)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return cmd.Process.Release() // it outlives this process, and init reaps it
}

// parentTranscript tells such a process where the conversation is.
const parentTranscript = "DROVER_PARENT_TRANSCRIPT"
