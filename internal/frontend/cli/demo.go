package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show what Drover does, without an API key",
		Long: "Show what Drover does, without an API key, in any folder: a scripted main agent runs work of all eight kinds at\n" +
			"once, and real agents search and read this folder. The demo changes nothing here, makes no connection to other\n" +
			"machines, and leaves nothing behind.",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Demo(cmd.Context(), a.Stdout, a.colored(), a.Columns())
		},
	}
}
