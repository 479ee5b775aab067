package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show what Drover does, without an API key",
		Long: "Run a tour without an API key: a scripted main agent runs tasks of all eight kinds at once, and real\n" +
			"agents search and read this folder. The demo changes nothing in the folder, connects to no other machine, and removes\n" +
			"its files when it ends.",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Demo(cmd.Context(), a.Stdout, a.colored(), a.Columns())
		},
	}
}
