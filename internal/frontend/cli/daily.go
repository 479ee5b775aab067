package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/summary"
	ledger "github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// summaryTasks is how many tasks a summary looks at, the newest.
const summaryTasks = 5000

// summaryCommand says what has become of tasks.
func (a *app) summaryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summary [--since D] [--all-projects] [--json]",
		Short: "Say what has become of tasks since yesterday",
		Long: "Say what has become of tasks since yesterday: how many ended and how, which failed and why, what runs and is\n" +
			"parked, and what the agents that ended have cost. Of the newest 5,000 tasks.",
		Args: takes(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	since := f.String("since", "24h", "ends since a duration ago, such as 36h or 7d, or since a day, such as 2026-11-01")
	all := f.Bool("all-projects", false, "include the sessions of all projects")
	asJSON := f.Bool("json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := sinceTime(*since, a.Now())
		if err != nil {
			return err
		}
		tasks, _, err := a.list(cmd.Context(), true, *all, summaryTasks)
		if err != nil {
			return err
		}
		s := summary.Of(tasks, from, a.Now())
		if *asJSON {
			return printJSON(a.Stdout, s)
		}
		text := s.Text(ledger.Dollars)
		if a.IsTerminal(a.Stdout) {
			text = excerpt.Plain(text)
		}
		_, err = fmt.Fprint(a.Stdout, text)
		return err
	}
	return cmd
}
