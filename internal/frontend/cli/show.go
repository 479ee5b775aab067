package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// onTask builds a command for one task.
func (a *app) onTask(cmd *cobra.Command, ended bool,
	do func(context.Context, control.API, found) error) *cobra.Command {
	cmd.Args = takes(1, 1)
	cmd.ValidArgsFunction = a.completeTasks(ended)
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		return taken(ctx, func() (Session, error) {
			f, err := a.resolve(ctx, words[0], *all)
			if err != nil {
				return nil, err
			}
			api, done, err := f.open(ctx)
			if err != nil {
				return f.session, err
			}
			defer done()
			return f.session, do(ctx, api, f)
		})
	}
	return cmd
}

func (a *app) result() *cobra.Command {
	cmd := &cobra.Command{Use: "result [--json] REF", Short: "Print the final answer of a task that has ended"}
	asJSON := cmd.Flags().Bool("json", false, "print the task and its answer as JSON")
	var printed int64 // kept where the host goes meanwhile, and what it has left is asked
	return a.onTask(cmd, true, func(ctx context.Context, api control.API, f found) error {
		if *asJSON {
			answer, err := control.WholeResult(ctx, api, string(f.record.ID))
			if err != nil {
				return fmt.Errorf("result of %s: %w", f.record.ID, err)
			}
			if err := printJSON(a.Stdout, answer); err != nil {
				return err
			}
			return unwell(answer.Task)
		}
		var r task.Record
		for part, err := range control.Parts(ctx, api, string(f.record.ID), printed) {
			if err != nil {
				return fmt.Errorf("result of %s: %w", f.record.ID, err)
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
			a.note("task %s ended without an answer (see drover logs %s)", r.ID, r.ID)
		}
		a.noteEnd(r)
		return unwell(r)
	})
}

// unwell is the error of a task that has not ended well, with its exit code.
func unwell(r task.Record) error {
	code := codeOf(r)
	if code == 0 {
		return nil
	}
	why := "exit code " + exit(r)
	if text := r.Why(); text != "" {
		why = excerpt.Line(text, mostReason)
	}
	return &ExitError{Code: code, Err: fmt.Errorf("task %s %s: %s", r.ID, r.Status, why)}
}

func (a *app) inspect() *cobra.Command {
	cmd := &cobra.Command{Use: "inspect REF", Short: "Print the whole record of a task as JSON"}
	// Everything here is JSON; the flag is taken because every command has it.
	cmd.Flags().Bool("json", true, "print JSON (the default)")
	return a.onTask(cmd, true, func(ctx context.Context, api control.API, f found) error {
		page, err := api.List(ctx, control.ListRequest{All: true, Under: f.record.ID})
		if err != nil {
			return fmt.Errorf("list what is below %s: %w", f.record.ID, err)
		}
		used := map[task.ID]task.Spend{}
		addUp(page.Tasks, used)
		return printJSON(a.Stdout, inspected{withDisplay(f.record), used[f.record.ID]})
	})
}

func (a *app) promote() *cobra.Command {
	cmd := &cobra.Command{Use: "promote [--json] REF", Short: "Move a foreground task to the background"}
	asJSON := cmd.Flags().Bool("json", false, "print the task as JSON")
	return a.onTask(cmd, false, func(ctx context.Context, api control.API, f found) error {
		r, err := api.Promote(ctx, string(f.record.ID))
		if err != nil {
			return fmt.Errorf("promote %s: %w", f.record.ID, err)
		}
		if *asJSON {
			return printJSON(a.Stdout, r)
		}
		_, err = fmt.Fprintln(a.Stdout, cell(string(r.ID), 40))
		return err
	})
}

func (a *app) sessions() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "sessions [--json] [--all-sessions]",
		Short:             "List, export, repair and remove sessions",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := cmd.Flags().Bool("json", false, "a JSON array")
	all := everywhere(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		infos, err := a.recount(cmd.Context(), *all)
		if err != nil {
			return err
		}
		if *asJSON {
			return printArray(a.Stdout, infos)
		}
		rows := [][]string{{"SESSION", "ROLE", "STATE", "LIVE", "TASKS", "SIZE", "AGE", "TITLE"}}
		if *all {
			rows[0] = append(rows[0], "PROJECT")
		}
		for _, i := range infos {
			state := "ended"
			switch {
			case i.Damaged:
				state = "damaged"
			case i.Live:
				state = "live"
			}
			row := []string{
				cell(string(i.Session), 40), cell(i.Role, 20), state, fmt.Sprint(i.Tasks.Live), fmt.Sprint(i.Tasks.Total),
				size(i.DiskBytes), age(a.Now(), i.StartTime), cell(i.Title, 50),
			}
			if *all {
				row = append(row, cell(i.Project, 80))
			}
			rows = append(rows, row)
		}
		return a.table(rows, byState(rows, "STATE"))
	}
	cmd.AddCommand(a.sessionsRemove(), a.sessionsExport(), a.sessionsRepair())
	return cmd
}

func (a *app) known(ctx context.Context, all bool) ([]control.Info, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	infos := make([]control.Info, len(sessions))
	for i, s := range sessions {
		infos[i] = s.Info()
	}
	return infos, nil
}

// recount asks the sessions that have not ended in order for what changes while
// they live. One that does not answer stays as its file has it.
func (a *app) recount(ctx context.Context, all bool) ([]control.Info, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	infos := make([]control.Info, len(sessions))
	var open []Session
	var places []int
	for i, s := range sessions {
		if infos[i] = s.Info(); infos[i].EndTime == nil {
			open, places = append(open, s), append(places, i)
		}
	}
	now, errs := each(ctx, open, func(ctx context.Context, api control.API) (control.Info, error) { return api.Info(ctx) })
	for i, at := range places {
		if errs[i] == nil {
			infos[at].Live, infos[at].PID, infos[at].Tasks, infos[at].DiskBytes = now[i].Live, now[i].PID, now[i].Tasks,
				now[i].DiskBytes
		}
	}
	return infos, nil
}

func (a *app) sessionsRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm [--all-sessions] [--force] SESSION… | --old [AGE]",
		Short: "Remove ended sessions: records, output, transcripts",
		Long: "Delete the files of ended sessions. --old deletes all that ended longer than AGE ago, such as 30d or 12h,\n" +
			"or that exceed the setting tasks.retention. Live sessions are never deleted. A session with a damaged log (see\n" +
			"`drover sessions repair`) needs --force, which reports the parts that it could not check.",
		Args: takes(0, -1),
	}
	old := cmd.Flags().String("old", "", "all that ended longer than AGE ago, such as 30d; without AGE as tasks.retention")
	cmd.Flags().Lookup("old").NoOptDefVal = noAge
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		infos, _ := a.known(cmd.Context(), false)
		var out []cobra.Completion
		for _, i := range infos {
			if !i.Live && strings.HasPrefix(string(i.Session), typed) {
				out = append(out, cell(string(i.Session), 40))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	all := everywhere(cmd)
	force := cmd.Flags().Bool("force", false, "also delete a session with a damaged log, if it has no live process")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if cmd.Flags().Changed("old") {
			return a.removeOld(cmd, *old, words, *all)
		}
		if len(words) == 0 {
			return usage("SESSION is required", "see `drover sessions`")
		}
		infos, err := a.known(cmd.Context(), *all)
		if err != nil {
			return err
		}
		var chosen []control.Info
		for _, word := range words { // all are looked at before the first is gone
			i, err := pickSession(infos, word)
			if err != nil {
				return a.elsewhere(cmd.Context(), word, err)
			}
			if i.Live {
				return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("remove session %s: it is live", i.Session),
					Fix: "stop its tasks first, see `drover ps`"}
			}
			if !slices.ContainsFunc(chosen, func(c control.Info) bool { return c.Session == i.Session }) {
				chosen = append(chosen, i)
			}
		}
		for _, i := range chosen {
			if err := a.remove(cmd.Context(), i, *force); err != nil {
				return fmt.Errorf("remove session %s: %w", i.Session, err)
			}
			if _, err := fmt.Fprintln(a.Stdout, cell(string(i.Session), 40)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// pickSession finds a session by its ID or a prefix of it that is unique.
func pickSession(infos []control.Info, word string) (control.Info, error) {
	var hits, same []control.Info
	var ids []string
	for _, i := range infos {
		if string(i.Session) == word {
			same = append(same, i)
		}
		if word != "" && strings.HasPrefix(string(i.Session), word) {
			hits, ids = append(hits, i), append(ids, string(i.Session))
		}
	}
	switch {
	case len(same) > 1: // whoever chose the ID chose it twice
		return control.Info{}, &control.Error{Code: control.Ambiguous,
			Message: fmt.Sprintf("%s is a session of %s and of %s", word, same[0].Project, same[1].Project),
			Fix:     "go to the folder, and leave out --all-sessions"}
	case len(same) == 1:
		return same[0], nil
	case len(hits) == 0:
		return control.Info{}, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("no session %q", word),
			Fix: "see `drover sessions`"}
	case len(hits) == 1:
		return hits[0], nil
	}
	return control.Info{}, severalMatches(word, ids)
}

// elsewhere is an error that says of an unknown session that it is one of another
// folder.
func (a *app) elsewhere(ctx context.Context, word string, err error) error {
	infos, listed := a.known(ctx, true)
	if !notFound(err) || listed != nil {
		return err
	}
	i, other := pickSession(infos, word)
	if other != nil {
		return err
	}
	return &control.Error{Code: control.NotFound, Message: fmt.Sprintf("session %s belongs to the folder %s", i.Session,
		i.Project), Fix: "add --all-sessions"}
}

func (a *app) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "doctor [--json]",
		Short:             "Check the setup of this machine",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.AddCommand(a.stall(), a.doctorSandbox())
	asJSON := cmd.Flags().Bool("json", false, "a JSON array")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := a.Doctor(cmd.Context())
		bad := 0
		rows := [][]string{{"CHECK", "STATE", "DETAIL", "FIX"}}
		for _, f := range findings {
			if f.Level == Bad {
				bad++
			}
			rows = append(rows, []string{cell(f.Check, 40), string(f.Level), cell(f.Detail, 200), cell(f.Fix, 200)})
		}
		var err error
		if *asJSON {
			err = printArray(a.Stdout, findings)
		} else {
			err = a.table(rows, byState(rows, "STATE"))
		}
		if err == nil && bad > 0 {
			return &ExitError{Code: codeFailed, Err: fmt.Errorf("%d of %d checks found an error", bad, len(findings))}
		}
		return err
	}
	return cmd
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "version [--json]",
		Short:             "Print the version",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := struct {
			Version  string `json:"version"`
			Commit   string `json:"commit,omitempty"`
			Go       string `json:"go"`
			OS       string `json:"os"`
			Arch     string `json:"arch"`
			Protocol string `json:"protocol"`
		}{Version: a.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: control.Protocol}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v.Commit = s.Value
				}
			}
		}
		if *asJSON {
			return printJSON(a.Stdout, v)
		}
		_, err := fmt.Fprintf(a.Stdout, "drover %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
		return err
	}
	return cmd
}
