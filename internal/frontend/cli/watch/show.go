package watch

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

func (a *app) result() *cobra.Command {
	cmd := &cobra.Command{Use: "result [--json] REF"}
	asJSON := cmd.Flags().Bool("json", false, "print the task and its answer as JSON")
	var printed int64 // kept when the host ends meanwhile and its files are read
	return a.onTask(cmd, true, func(ctx context.Context, api control.API, f console.Found) error {
		if *asJSON {
			answer, err := control.WholeResult(ctx, api, string(f.Record.ID))
			if err != nil {
				return fmt.Errorf("result of %s: %w", f.Record.ID, err)
			}
			if err := console.PrintJSON(a.Stdout, answer); err != nil {
				return err
			}
			return unwell(answer.Task)
		}
		var r task.Record
		for part, err := range control.Parts(ctx, api, string(f.Record.ID), printed) {
			if err != nil {
				return fmt.Errorf("result of %s: %w", f.Record.ID, err)
			}
			r = part.Task
			text := part.Text
			if a.IsTerminal(a.Stdout) {
				text = excerpt.Plain(text)
			}
			if text == "" {
				continue
			}
			if part.Next >= part.Size {
				text = strings.TrimSuffix(text, "\n") + "\n"
			}
			if _, err := io.WriteString(a.Stdout, text); err != nil {
				return err
			}
			printed = max(part.Next, printed+1) // an older host gives all at once, and no number
		}
		if r.Status == task.Completed && printed == 0 {
			a.Note("task %s ended without an answer (see drover logs %s)", r.ID, r.ID)
		}
		a.NoteEnd(r)
		return unwell(r)
	})
}

// unwell is the error of a task that has not ended well, with its exit code.
func unwell(r task.Record) error {
	code := console.CodeOf(r)
	if code == 0 {
		return nil
	}
	why := "exit code " + console.Exit(r)
	if text := r.Why(); text != "" {
		why = excerpt.Line(text, console.MostReason)
	}
	return &console.ExitError{Code: code, Err: fmt.Errorf("task %s %s: %s", r.ID, r.Status, why)}
}

func (a *app) inspect() *cobra.Command {
	cmd := &cobra.Command{Use: "inspect REF"}
	// Everything here is JSON; the flag is taken because every command has it.
	cmd.Flags().Bool("json", true, "print JSON (the default)")
	return a.onTask(cmd, true, func(ctx context.Context, api control.API, f console.Found) error {
		page, err := api.List(ctx, control.ListRequest{All: true, Under: f.Record.ID})
		if err != nil {
			return fmt.Errorf("list what is below %s: %w", f.Record.ID, err)
		}
		used := map[task.ID]task.Spend{}
		addUp(page.Tasks, used)
		return console.PrintJSON(a.Stdout, inspected{withDisplay(f.Record), used[f.Record.ID]})
	})
}

// onTask builds a command for one task.
func (a *app) onTask(cmd *cobra.Command, ended bool,
	do func(context.Context, control.API, console.Found) error) *cobra.Command {
	cmd.Args = console.Args(1, 1)
	cmd.ValidArgsFunction = a.CompleteTasks(ended)
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		return console.Taken(ctx, func() (console.Session, error) {
			f, err := a.Resolve(ctx, words[0], *all)
			if err != nil {
				return nil, err
			}
			api, done, err := f.Open(ctx)
			if err != nil {
				return f.Session, err
			}
			defer done()
			return f.Session, do(ctx, api, f)
		})
	}
	return cmd
}
