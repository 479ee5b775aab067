package project

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func (a *app) fork() *cobra.Command {
	cmd := &cobra.Command{Use: "fork [--at N] [--list] [--json] SESSION", Args: console.Args(1, 1)}
	at := cmd.Flags().Int("at", 0, "copy the conversation before prompt `N`; 0 copies everything")
	list := cmd.Flags().Bool("list", false, "list the prompts of the conversation instead")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("at", "list")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		known, err := a.Known(ctx, false, false)
		if err != nil {
			return err
		}
		s, err := console.PickSession(known, words[0])
		if err != nil {
			return err
		}
		if *list {
			prompts, err := console.Ask(ctx, s.Open, func(api control.API) (control.Prompts, error) { return api.Prompts(ctx) })
			if err != nil {
				return err
			}
			if *asJSON {
				return console.PrintJSON(a.Stdout, prompts.Prompts)
			}
			for _, p := range prompts.Prompts {
				text := strings.Join(strings.Fields(p.Text), " ")
				if _, err := fmt.Fprintf(a.Stdout, "%4d  %s\n", p.N, console.Cell(text, 100)); err != nil {
					return err
				}
			}
			return nil
		}
		forked, err := a.Fork(s.Info().Session, control.ForkRequest{At: *at})
		if err != nil {
			return err
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, forked)
		}
		return a.Println(forked.Session)
	}
	return cmd
}
