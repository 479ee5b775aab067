package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// noTasks is a listing without tasks.
const noTasks = "No tasks. Start one with `drover run -d -- make test`.\n"

func (a *app) ps() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps [-a] [--tree] [--all-sessions] [--all-machines] [--watch] [--json] [-q]",
		Long: "List the live tasks of this project's sessions, newest first. -a also lists ended tasks, including those\n" +
			"of ended sessions. A table has at most 200 tasks; --limit changes that.\n" +
			"With --all-machines it lists the tasks of all sessions of this machine, and what the workers of the hub do for\n" +
			"sessions elsewhere, with the machine of each; \"gone\" is a worker that the hub does not know any more.\n" +
			"With --watch the table is drawn again in place when something has changed. Where stdout is no terminal, or with\n" +
			"--json, each live task is a line at first, and then each change.",
	}
	f := cmd.Flags()
	ended := f.BoolP("all", "a", false, "list ended tasks too")
	tree := f.Bool("tree", false, "list children below the task that started them")
	asJSON := f.Bool("json", false, "a JSON array")
	quiet := f.BoolP("quiet", "q", false, "print only IDs")
	limit := f.Int("limit", -1, "maximum number of tasks; 0 for all (default 200 in a table, all otherwise)")
	watch := f.Bool("watch", false, "keep running and show changes, until q or Ctrl-C")
	machines := f.Bool("all-machines", false, "list what the workers of the hub do for other machines too")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *limit < -1:
			return console.Usage(fmt.Sprintf("--limit %d: out of range", *limit), "from 0 on")
		case *limit >= 0:
		case *asJSON || *quiet:
			*limit = 0
		default:
			*limit = console.TablePage
		}
		if *machines {
			if *watch || *tree {
				return console.Usage("--all-machines and --watch or --tree are mutually exclusive", "leave one of them out")
			}
			return a.psMachines(cmd.Context(), *ended, *limit, *asJSON, *quiet)
		}
		l := listing{ended: *ended, tree: *tree, all: *all, limit: *limit}
		if *watch {
			if *quiet {
				return console.Usage("--watch and --quiet are mutually exclusive", "use --watch --json")
			}
			return a.watchTasks(cmd.Context(), l, *asJSON)
		}
		table, err := a.rowsOf(cmd.Context(), l)
		if err != nil {
			return err
		}
		records := table.records
		switch {
		case *asJSON:
			if asks := func(r task.Record) bool { return len(r.Questions) > 0 }; !slices.ContainsFunc(records, asks) {
				return console.PrintArray(a.Stdout, records)
			}
			shown := make([]listed, len(records))
			for i, r := range records {
				shown[i] = withDisplay(r)
			}
			return console.PrintArray(a.Stdout, shown)
		case *quiet:
			return a.printIDs(records)
		}
		if _, err := a.Stdout.Write(a.tableText(table, a.Columns())); err != nil {
			return err
		}
		a.noteMore(table.more, len(records))
		for _, r := range records {
			for _, q := range r.Questions {
				a.Note("%s", console.NeedsAnswer(q))
			}
		}
		return nil
	}
	return cmd
}

func (a *app) printIDs(records []task.Record) error {
	var ids strings.Builder
	for _, r := range records {
		fmt.Fprintln(&ids, console.Cell(string(r.ID), 40))
	}
	_, err := a.Stdout.Write([]byte(ids.String()))
	return err
}

func (a *app) noteMore(more bool, shown int) {
	if more {
		a.Note("the newest %d tasks are shown (--limit 0 shows all)", shown)
	}
}
