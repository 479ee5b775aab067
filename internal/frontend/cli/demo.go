package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show what Drover does, without an API key",
		Long: "A tour without any key, in any folder: a scripted main agent has work of all eight kinds at once, and real\n" +
			"agents search and read this folder. It changes nothing here, talks to nobody but itself, and leaves nothing behind.",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Demo(cmd.Context(), a.Stdout, a.colored(), a.Columns())
		},
	}
}
