package run

import (
	"github.com/spf13/cobra"
)

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use: "demo",
		Long: "Run a tour without an API key: in a small project of its own a failing test is found, fixed by an agent in a\n" +
			"worktree, reviewed by another and merged. The model's replies come from a script; commands, files and commits are real.\n" +
			"The demo needs git, uses no network, and removes its files when it ends.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Demo(cmd.Context(), a.Stdout, a.Colored(), a.Columns())
		},
	}
}
