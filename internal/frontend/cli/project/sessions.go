package project

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func (a *app) sessions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sessions [--json] [--all-sessions]",
	}
	asJSON := cmd.Flags().Bool("json", false, "a JSON array")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		infos, err := a.recount(cmd.Context(), *all)
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintArray(a.Stdout, infos)
		}
		if len(infos) == 0 {
			return a.Println("No sessions. Start one with `drover`.")
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
				console.Cell(string(i.Session), 40), console.Cell(i.Role,
					20), state, fmt.Sprint(i.Tasks.Live), fmt.Sprint(i.Tasks.Total),
				console.Size(i.DiskBytes), console.Ago(a.Now(), i.StartTime), console.Cell(i.Title, 50),
			}
			if *all {
				row = append(row, console.Cell(i.Project, 80))
			}
			rows = append(rows, row)
		}
		return a.Table(rows, console.ByState(rows, "STATE"))
	}
	cmd.AddCommand(a.sessionsRemove(), a.sessionsExport(), a.sessionsRepair())
	return cmd
}

// recount asks the sessions that have not ended in order for what changes while
// they live. A session that does not answer keeps the values of its file.
func (a *app) recount(ctx context.Context, all bool) ([]control.Info, error) {
	sessions, err := a.Known(ctx, false, all)
	if err != nil {
		return nil, err
	}
	infos := make([]control.Info, len(sessions))
	var open []console.Session
	var places []int
	for i, s := range sessions {
		if infos[i] = s.Info(); infos[i].EndTime == nil {
			open, places = append(open, s), append(places, i)
		}
	}
	now, errs := console.Each(ctx, open, func(ctx context.Context, api control.API) (control.Info,
		error) {
		return api.Info(ctx)
	})
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
		Args: console.Args(0, -1),
	}
	old := cmd.Flags().String("old", "", "all that ended longer than AGE ago, such as 30d; without AGE as tasks.retention")
	cmd.Flags().Lookup("old").NoOptDefVal = noAge
	cmd.ValidArgsFunction = a.CompleteSessions(func(i control.Info) bool { return !i.Live })
	all := console.AllSessionsFlag(cmd)
	force := cmd.Flags().Bool("force", false, "also delete a session with a damaged log, if it has no live process")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if cmd.Flags().Changed("old") {
			return a.removeOld(cmd, *old, words, *all)
		}
		if len(words) == 0 {
			return console.Usage("SESSION is required", "see `drover sessions`")
		}
		var chosen []control.Info
		for _, word := range words { // all are looked at before the first is gone
			i, err := a.pick(cmd.Context(), word, *all)
			if err != nil {
				return err
			}
			if i.Live {
				return console.Conflict(fmt.Sprintf("remove session %s: it is live", i.Session),
					"stop its tasks first, see `drover ps`")
			}
			if !slices.ContainsFunc(chosen, func(c control.Info) bool { return c.Session == i.Session }) {
				chosen = append(chosen, i)
			}
		}
		for _, i := range chosen {
			if err := a.remove(cmd.Context(), i, *force); err != nil {
				return fmt.Errorf("remove session %s: %w", i.Session, err)
			}
			if _, err := fmt.Fprintln(a.Stdout, console.Cell(string(i.Session), 40)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// pick returns the session of this folder that a word means, or with all of any folder. The error
// names the folder of a session that belongs to another one.
func (a *app) pick(ctx context.Context, word string, all bool) (control.Info, error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return control.Info{}, err
	}
	s, err := console.PickSession(known, word)
	if err == nil {
		return s.Info(), nil
	}
	if other, missing := a.FindSession(ctx, word); console.NotFound(err) && missing == nil {
		err = console.Missing(fmt.Sprintf("session %s belongs to the folder %s", other.Info().Session, other.Info().Project),
			"add --all-sessions")
	}
	return control.Info{}, err
}
