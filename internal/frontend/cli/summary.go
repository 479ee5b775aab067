package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// printSummary is `drover` by itself without a terminal: what there is, and what to type
// next.
func (a *app) printSummary(ctx context.Context, cmd *cobra.Command) error {
	known, err := a.Known(ctx, true, false)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Drover %s in %s\n\n", a.Version, a.Cwd)
	if len(known) == 0 {
		fmt.Fprintln(out, "Nothing is running here.")
	}
	for _, k := range known {
		api, release, err := k.Open(ctx)
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "drover: session %s: %s\n", k.Info().Session, err)
			continue
		}
		page, err := api.List(ctx, control.ListRequest{Limit: 200})
		release()
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "drover: session %s: %s\n", k.Info().Session, err)
			continue
		}
		fmt.Fprintf(out, "session %s  %s%s\n", k.Info().Session, excerpt.Line(excerpt.Plain(k.Info().Title), 60),
			teams(liveTeams(page.Tasks)))
		if pill := task.PillLabel(page.Tasks); pill != "" {
			fmt.Fprintf(out, "  %s\n", pill)
		}
		for _, r := range page.Tasks[:min(10, len(page.Tasks))] {
			fmt.Fprintf(out, "  %s  %-10s %s\n", r.ID, r.Status, excerpt.Line(excerpt.Plain(r.Description), 60))
		}
	}
	fmt.Fprint(out, `
Next
  drover -p "PROMPT"       answer a prompt with an agent that delegates
  drover run -d -- CMD     run a command in the background
  drover ps -a             what runs and ran here;  logs, wait, stop take its IDs
  drover demo              a tour without any key
`)
	if f := a.Model(); f.Level != console.Good {
		fmt.Fprintf(out, "\nNo model for prompts: %s\n",
			excerpt.Line(f.Detail+": "+cmp.Or(f.Fix, "see `drover doctor`"), 300))
	}
	return nil
}

// teams says how many teams are at work, where there are any.
func teams(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "  (1 team)"
	}
	return fmt.Sprintf("  (%d teams)", n)
}

// liveTeams is how many teams have a live teammate among the records.
func liveTeams(records []task.Record) int {
	seen := map[string]bool{}
	for _, r := range records {
		if r.Team != nil && !r.Status.Terminal() {
			seen[r.Team.Team] = true
		}
	}
	return len(seen)
}
